//! How byte-level BPE models cut text into words before merging: a table from `tokenizer.ggml.pre` to regular expressions.
//!
//! The expressions are facts about the models (each stands in the `tokenizer.json` of its family); a wrong one gives other
//! tokens than the model was trained on, so an unknown name is refused and never guessed.

/// GPT-2.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3: digits in groups of three, words may take one leading symbol.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2: as Llama 3, with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 3.5: combining marks belong to words.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's Tekken: words split where lower case turns to upper.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o: as Tekken, with contractions and digits in groups of three.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// DeepSeek V3, last of three steps.
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// One digit at a time.
const DIGIT: &str = r"\p{N}";

/// A way of cutting text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pre {
    /// Applied one after another; each cuts out its matches from the pieces that the one before left.
    pub(super) splits: &'static [&'static str],
    /// A word that is a token as a whole is not built by merges.
    pub(super) ignore_merges: bool,
    /// Whether a beginning-of-sequence token is added where the file does not say.
    pub(super) add_bos: bool,
    /// Text is brought into Unicode's composed form first.
    pub(super) compose: bool,
}

const fn plain(splits: &'static [&'static str]) -> Pre {
    Pre { splits, ignore_merges: false, add_bos: false, compose: false }
}

/// Names with the same rule share a row.
const TABLE: &[(&[&str], Pre)] = &[
    (&["default"], plain(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"])),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "mellum",
        ],
        plain(&[GPT2]),
    ),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        plain(&[DIGIT, GPT2]),
    ),
    (
        &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        Pre { splits: &[LLAMA3], ignore_merges: true, add_bos: true, compose: false },
    ),
    (&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], plain(&[LLAMA3])),
    (&["qwen2"], Pre { splits: &[QWEN2], ignore_merges: false, add_bos: false, compose: true }),
    (&["deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"], plain(&[QWEN2])),
    (&["qwen35"], Pre { splits: &[QWEN35], ignore_merges: false, add_bos: false, compose: true }),
    (&["tekken"], Pre { splits: &[TEKKEN], ignore_merges: true, add_bos: true, compose: false }),
    (&["gpt-4o", "llama4", "minimax-m2"], plain(&[GPT4O])),
    (
        &["deepseek-v3", "hunyuan-dense"],
        plain(&[r"\p{N}{1,3}", "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+", DEEPSEEK3]),
    ),
    (
        &["deepseek-coder"],
        plain(&[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u{4e00}-\u{9fa5}\u{0800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            DIGIT,
        ]),
    ),
];

/// The rule of that name.
pub(super) fn find(name: &str) -> Option<Pre> {
    TABLE.iter().find(|(names, _)| names.contains(&name)).map(|(_, pre)| *pre)
}

/// All names, for a message.
pub(super) fn names() -> String {
    TABLE.iter().flat_map(|(names, _)| names.iter().copied()).collect::<Vec<_>>().join(", ")
}

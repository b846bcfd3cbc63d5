//! The real SmolLM2-135M-Instruct file. The expected ids are those of OpenVINO GenAI's own tokenizer.

use std::path::Path;

use serde_json::json;

use super::{HARD, decoded};
use crate::prompt::Text;
use crate::prompt::template::ChatOptions;

const PROMPT: &[u32] = &[
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
    2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
];

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's input, not configuration")]
#[ignore = "needs the model file in CASCADIA_TEST_GGUF, run by the integration tests"]
fn smollm2_renders_encodes_and_decodes() {
    let path = std::env::var("CASCADIA_TEST_GGUF").expect("CASCADIA_TEST_GGUF names the SmolLM2 file");
    let text = Text::open(Path::new(&path)).unwrap();
    assert_eq!(text.describe(), ("gpt2", "smollm"));
    assert_eq!((text.vocab_size(), text.context_length()), (49152, Some(8192)));
    assert_eq!(text.eos_ids(), [0, 2]);
    let messages = [json!({"role": "user", "content": "What is the capital of France?"})];
    let rendered = text.render_chat(&messages, &ChatOptions::new(0)).unwrap();
    assert_eq!(text.encode(&rendered, false).unwrap(), PROMPT);
    assert_eq!(decoded(text.detokenizer().showing_special(), PROMPT), rendered);
    for hard in HARD {
        let ids = text.encode(hard, true).unwrap();
        assert_eq!(&decoded(text.detokenizer(), &ids), hard);
    }
}

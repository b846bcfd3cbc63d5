//! Holds `include/cascadia_plugin.h` equal to the contract, as a C11 and as a C++17 compiler see it: size, offset and type
//! of every field of `abi.lock`, every constant, the manifest that its macro makes, the wall of `cascadia_plugin.hpp`. What
//! `cascadia_sdk.h` makes of an engine is driven through its tables.
//!
//! `ABI_BLESS=1 cargo test -p cascadia-plugin-api --test header` writes the header's generated part anew.

use std::fmt::Write;
use std::path::Path;

use cascadia_plugin_api::abi::host::{self, dtype, level};
use cascadia_plugin_api::abi::{chunk, code, engine, entry, ids, task};
use cascadia_plugin_api::ext::draft::{embeddings, kv_events, stage, token_mask, tokenize};
use cascadia_plugin_api::ext::features;
use cascadia_plugin_api::{lock, manifest};

#[path = "header/compiler.rs"]
mod compiler;

use compiler::{C, CPP};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/cascadia_plugin.h");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/examples/echo-c/echo.c");

// ---- Layout ----

/// A table as a line of the lock has it: `name size=N align=N; field@offset:size type; ...`.
struct Table<'a> {
    name: &'a str,
    head: &'a str,
    fields: Vec<Field<'a>>,
}

struct Field<'a> {
    name: &'a str,
    place: &'a str,
    ty: &'a str,
}

fn tables() -> Vec<Table<'static>> {
    lock::TEXT.lines().map(|line| table(line).unwrap_or_else(|| panic!("abi.lock: {line}"))).collect()
}

fn table(line: &'static str) -> Option<Table<'static>> {
    // `;` also stands in array types, always without a field's `@` behind it.
    let mut parts = line.split("; ");
    let head = parts.next()?;
    let mut fields: Vec<Field<'static>> = Vec::new();
    let mut at = head.len();
    for part in parts {
        let begin = at + 2;
        at = begin + part.len();
        match part.split_once('@') {
            Some((name, rest)) => {
                let (place, ty) = rest.split_once(' ')?;
                fields.push(Field { name, place, ty });
            }
            None => {
                let last = fields.last_mut()?;
                let from = begin - 2 - last.ty.len();
                last.ty = &line[from..at];
            }
        }
    }
    Some(Table { name: head.split(' ').next()?, head, fields })
}

/// A Rust type of the lock as a C declaration of `declarator`.
fn declare(ty: &str, declarator: &str) -> String {
    if let Some(rest) = ty.strip_prefix("unsafe extern \"C\" fn(") {
        let (params, result) = rest.rsplit_once(')').expect("a function type has its parenthesis");
        let params: Vec<_> =
            params.split(", ").filter_map(|p| p.split_once(": ")).map(|(_, ty)| declare(ty, "")).collect();
        let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
        return declare(result.strip_prefix(" -> ").unwrap_or("()"), &format!("(*{declarator})({params})"));
    }
    if let Some((item, len)) = ty.strip_prefix('[').and_then(|t| t.strip_suffix(']')?.split_once("; ")) {
        return declare(item, &format!("({declarator})[{len}]"));
    }
    if let Some(target) = ty.strip_prefix("*mut ") {
        return declare(target, &format!("*{declarator}"));
    }
    if let Some(target) = ty.strip_prefix("*const ") {
        return format!("const {}", declare(target, &format!("*{declarator}")));
    }
    let named = match ty {
        "()" | "c_void" => "void".to_owned(),
        "u8" | "u32" | "u64" | "i32" => {
            format!("{}int{}_t", if ty.starts_with('u') { "u" } else { "" }, &ty[1..])
        }
        "usize" => "size_t".to_owned(),
        "f32" => "float".to_owned(),
        "f64" => "double".to_owned(),
        rust => c_table(rust),
    };
    format!("{named} {declarator}")
}

/// The C name of a Rust struct: `HostV1` is `cascadia_host_v1`.
fn c_table(rust: &str) -> String {
    let mut name = "cascadia".to_owned();
    for c in rust.chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    assert!(
        lock::hashes().any(|(known, _)| known == name),
        "no table is called {name}: a new kind of type {rust}?"
    );
    name
}

/// A program that prints the layout in the lock's form and is compiled only where every field has the lock's type.
fn layout_program() -> String {
    let mut types = String::new();
    let mut prints = String::new();
    for Table { name, fields, .. } in tables() {
        writeln!(types, "void types_of_{name}({name} *t);\nvoid types_of_{name}({name} *t) {{")
            .expect("text");
        writeln!(prints, "    printf(\"{name} size=%zu align=%zu\", sizeof({name}), ALIGN({name}));")
            .expect("text");
        for field in fields {
            let c = field.name.to_owned();
            writeln!(types, "    {} = &t->{c}; (void)p_{c};", declare(field.ty, &format!("*p_{c}")))
                .expect("text");
            writeln!(
                prints,
                "    printf(\"; {}@%zu:%zu\", offsetof({name}, {c}), sizeof((({name} *)0)->{c}));",
                field.name
            )
            .expect("text");
        }
        types.push_str("}\n");
        prints.push_str("    printf(\"\\n\");\n");
    }
    format!(
        "/* A pointer of an incompatible type, or no member of a name: the header's field differs from abi.lock. */\n\
         #include \"cascadia_plugin.h\"\n#include <stdio.h>\n#ifdef __cplusplus\n#define ALIGN(t) alignof(t)\n#else\n\
         #define ALIGN(t) _Alignof(t)\n#endif\n{types}int main(void) {{\n{prints}    return 0;\n}}\n"
    )
}

#[test]
fn every_table_has_the_layout_and_the_types_of_the_lock() {
    let program = layout_program();
    for language in [C, CPP] {
        let printed = language.run("layout", &program);
        let mut lines = printed.lines();
        for Table { head, fields, .. } in tables() {
            let mut expected = head.to_owned();
            for field in fields {
                write!(expected, "; {}@{}", field.name, field.place).expect("text");
            }
            let found = lines.next().unwrap_or("nothing");
            assert_eq!(found, expected, "{} sees another layout than abi.lock", language.compiler);
        }
    }
}

#[test]
fn the_header_declares_no_other_table() {
    let text = std::fs::read_to_string(HEADER).expect("the header is readable");
    let declared = text.lines().filter_map(|l| l.strip_prefix("typedef struct ")?.strip_suffix(" {"));
    let mut unknown: Vec<_> =
        declared.filter(|name| !lock::hashes().any(|(known, _)| known == *name)).collect();
    unknown.sort_unstable();
    assert_eq!(unknown, [""; 0], "structs of the header that abi.lock does not have");
}

// ---- Constants ----

/// A constant's value as the C program prints it.
trait Value {
    const PRINT: &'static str;
    fn text(&self) -> String;
}

impl Value for u32 {
    const PRINT: &'static str = "\"%llu\", (unsigned long long)";
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for u64 {
    const PRINT: &'static str = u32::PRINT;
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for &str {
    const PRINT: &'static str = "\"%s\", ";
    fn text(&self) -> String {
        (*self).to_owned()
    }
}

struct Constant {
    rust: &'static str,
    c: String,
    print: &'static str,
    value: String,
}

fn constant<T: Value>(rust: &'static str, prefix: &str, name: &str, value: T) -> Constant {
    Constant { rust, c: format!("CASCADIA_{prefix}{name}"), print: T::PRINT, value: value.text() }
}

/// Every constant of the contract; the prefix is what the header puts between `CASCADIA_` and the name.
fn constants() -> Vec<Constant> {
    macro_rules! list {
        ($($module:ident as $prefix:literal { $($name:ident)* })*) => {
            vec![$($(constant(stringify!($name), $prefix, stringify!($name), $module::$name)),*),*]
        };
    }
    list! {
        entry as "" { MAGIC ABI_MAJOR ABI_MINOR }
        code as "CODE_" {
            OK QUEUE_FULL PROMPT_TOO_LONG INVALID_CONFIG BACKEND PEER_REJECTED BATCH_ABORTED UNSUPPORTED CANCELLED
            CLOSED DEADLINE_EXCEEDED OUT_OF_MEMORY POISONED PANIC PLUGIN_CRASHED NOT_CONNECTED MODEL_NOT_FOUND
            SHARD_REJECTED
        }
        ids as "ID_" {
            PLUGIN BUILDER ENGINE MODEL_CARD LOAD_REPORT HOST_LOG HOST_METRICS HOST_CLOCK HOST_CANCEL HOST_WAKE
            HOST_HEARTBEAT HOST_DLOPEN HOST_TRACE HOST_FAULT HOST_TRANSPORT KV_EVENTS TOKEN_MASK TOKENIZE EMBEDDINGS STAGE
            KV_STATE ADAPTERS PAUSE ASYNC_SINK
        }
        task as "TASK_" { IGNORE_EOS HAS_SEED LOGPROBS PROMPT_LOGPROBS }
        task as "" { GRAMMAR_NONE GRAMMAR_JSON_SCHEMA GRAMMAR_REGEX GRAMMAR_LARK GRAMMAR_MASK }
        chunk as "" { FINISH_NONE FINISH_STOP FINISH_LENGTH FINISH_CANCELLED FINISH_ERROR }
        chunk as "CHUNK_" { NAN_SEEN HAS_PROMPT_TOKENS HAS_CACHED_TOKENS HAS_STOP_TOKEN }
        engine as "" { STEP_MORE STEP_IDLE STEP_WAIT SINK_GO_ON SINK_STOP }
        level as "LEVEL_" { ERROR WARN INFO DEBUG TRACE }
        host as "" { METRIC_COUNTER METRIC_GAUGE METRIC_HISTOGRAM DLOPEN_GLOBAL FRAME_TENSOR FRAME_RAW }
        dtype as "DTYPE_" { F32 F16 BF16 I8 U8 I32 I64 U32 }
        kv_events as "" {
            KV_STORED KV_REMOVED KV_CLEARED KV_HAS_PARENT KV_TIER_DEVICE KV_TIER_HOST KV_TIER_DISK KV_TIER_SHARED
        }
        token_mask as "" { MASK_ALL MASK_SOME MASK_DEAD_END MASK_UNREACHED }
        tokenize as "" {
            TOKENIZE_PARSE_SPECIAL TOKENIZE_ADD_SPECIAL DETOKENIZE_SPECIAL TOKEN_NONE TOKEN_TEXT TOKEN_SPECIAL
        }
        embeddings as "" {
            POOLING_DEFAULT POOLING_MEAN POOLING_FIRST POOLING_LAST EMBED_NORMALIZE EMBED_CAN_SHORTEN
        }
        stage as "" { ROW_SAMPLED ROW_SCORED STAGE_TOKEN_SCORED SEQUENCE_PREFILL SEQUENCE_BEGINS }
        features as "FEATURE_" {
            SAMPLING MIN_P TYPICAL_P PENALTIES REPETITION_PENALTY SEED LOGIT_BIAS TOKEN_LISTS LOGPROBS TOP_LOGPROBS
            PROMPT_LOGPROBS MIN_TOKENS IGNORE_EOS JSON_SCHEMA REGEX EBNF EMBEDDINGS NO_GENERATION
        }
    }
}

#[test]
fn every_constant_has_its_value() {
    let constants = constants();
    let mut program = "#include \"cascadia_plugin.h\"\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for Constant { c, print, .. } in &constants {
        let (format, cast) = print.split_once(", ").expect("a format and a cast");
        writeln!(program, "    printf(\"%s=\" {format} \"\\n\", \"{c}\", {cast}{c});").expect("text");
    }
    program.push_str("    return 0;\n}\n");
    let expected: Vec<_> = constants.iter().map(|k| format!("{}={}", k.c, k.value)).collect();
    for language in [C, CPP] {
        let printed = language.run("constants", &program);
        for (found, expected) in printed.lines().zip(&expected) {
            assert_eq!(found, expected, "{} sees another value than Rust", language.compiler);
        }
        assert_eq!(printed.lines().count(), expected.len());
    }
}

#[test]
fn no_constant_of_the_contract_is_forgotten() {
    let sources = [
        include_str!("../src/abi.rs"),
        include_str!("../src/abi/builder.rs"),
        include_str!("../src/abi/chunk.rs"),
        include_str!("../src/abi/code.rs"),
        include_str!("../src/abi/engine.rs"),
        include_str!("../src/abi/entry.rs"),
        include_str!("../src/abi/host.rs"),
        include_str!("../src/abi/plugin.rs"),
        include_str!("../src/abi/prim.rs"),
        include_str!("../src/abi/task.rs"),
        include_str!("../src/ext.rs"),
        include_str!("../src/ext/draft/adapters.rs"),
        include_str!("../src/ext/draft/async_sink.rs"),
        include_str!("../src/ext/draft/embeddings.rs"),
        include_str!("../src/ext/draft/kv_events.rs"),
        include_str!("../src/ext/draft/kv_state.rs"),
        include_str!("../src/ext/draft/pause.rs"),
        include_str!("../src/ext/draft/stage.rs"),
        include_str!("../src/ext/draft/token_mask.rs"),
        include_str!("../src/ext/draft/tokenize.rs"),
    ];
    let mut written: Vec<_> = sources
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            line.trim_start().strip_prefix("pub const ")?.split_once(':').map(|(name, _)| name)
        })
        // The views' own constants, and the symbol that CASCADIA_ENTRY defines.
        .filter(|name| !["EMPTY", "SYMBOL"].contains(name) && !name.contains(' '))
        .collect();
    let mut listed: Vec<_> = constants().iter().map(|k| k.rust).collect();
    written.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, written, "list the new constant above and put it into the header");
}

// ---- What is generated ----

const BEGIN: &str = "/* generated: begin */\n";
const END: &str = "/* generated: end */\n";

/// The hashes of the tables and the asserts of their sizes.
fn generated() -> String {
    let mut text = "#define CASCADIA_TABLE_HASHES \\\n".to_owned();
    let hashes: Vec<_> =
        lock::hashes().map(|(name, hash)| format!("\\\"{name}\\\":\\\"{hash}\\\"")).collect();
    for (i, pair) in hashes.iter().enumerate() {
        let last = i + 1 == hashes.len();
        writeln!(text, "    \"{pair}{}", if last { "\"" } else { ",\" \\" }).expect("text");
    }
    text.push('\n');
    for Table { name, head, fields } in tables() {
        let size = head.split(['=', ' ']).nth(2).expect("a size");
        let last = fields.last().expect("a field");
        let (offset, _) = last.place.split_once(':').expect("an offset");
        writeln!(
            text,
            "CASCADIA_ASSERT(sizeof({name}) == {size} && offsetof({name}, {}) == {offset}, \"{name}\");",
            last.name.to_owned()
        )
        .expect("text");
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "blessing is asked for by the developer's environment")]
#[test]
fn the_generated_part_is_that_of_the_lock() {
    let text = std::fs::read_to_string(HEADER).expect("the header is readable");
    let (before, rest) = text.split_once(BEGIN).expect("the header has the first marker");
    let (found, after) = rest.split_once(END).expect("the header has the second marker");
    if std::env::var_os("ABI_BLESS").is_some() {
        std::fs::write(HEADER, [before, BEGIN, &generated(), END, after].concat()).expect("it is writable");
        return;
    }
    let bless = "run ABI_BLESS=1 cargo test -p cascadia-plugin-api --test header";
    for (found, expected) in found.lines().zip(generated().lines()) {
        assert_eq!(found, expected, "{bless}");
    }
    assert_eq!(found.lines().count(), generated().lines().count(), "{bless}");
}

/// The bytes and the flags of a section of a shared library that a compiler has just made.
fn section(library: &Path, name: &str) -> (Vec<u8>, u64) {
    let file = std::fs::read(library).expect("the library is readable");
    let int = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0_usize, |n, byte| n << 8 | usize::from(*byte))
    };
    let headers = int(40, 8);
    let header = |i: usize| headers + i * int(58, 2);
    let names = int(header(int(62, 2)) + 24, 8);
    let is = |at: &usize| file[names + int(*at, 4)..].starts_with(format!("{name}\0").as_bytes());
    let at = (0..int(60, 2)).map(header).find(is).unwrap_or_else(|| {
        panic!("{} has no section {name}", library.display());
    });
    let begin = int(at + 24, 8);
    (file[begin..begin + int(at + 32, 8)].to_vec(), int(at + 8, 8) as u64)
}

const LIBRARY: [&str; 4] = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden"];

#[test]
fn the_manifest_is_the_one_that_rust_plugins_carry() {
    let source = include_str!("header/probe.c");
    // Longer than the 4,095 characters that C promises for a literal.
    let source = source.replace("LONG", &"0123456789".repeat(600));
    let about = format!(
        r#"{{"engines": [{{"name": "a", "description": "it's \"b\""}}], "x": true, "long": "{}"}}"#,
        "0123456789".repeat(600)
    );
    let parts = manifest::parts("probe-c", "1.2.3", &about);
    let expected: String = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
    const WRITE: u64 = 1;
    for language in [C, CPP] {
        for (name, flags) in
            [("manifest", &[][..]), ("manifest-small", &["-s", "-flto", "-Wl,--gc-sections"])]
        {
            let library = language.compile(name, &source, &[&LIBRARY[..], flags].concat());
            let (bytes, flags) = section(&library, manifest::SECTION);
            assert_eq!(String::from_utf8_lossy(&bytes), expected, "{} {name}", language.compiler);
            assert_eq!(flags & WRITE, 0, "{} {name}: the section is writable", language.compiler);
        }
    }
}

// ---- Helpers ----

#[test]
fn the_helpers_read_older_and_newer_writers() {
    let program = include_str!("header/helpers.c");
    let expected = "4 0 3 0\n1 2\n1 0 1\n4 broken \n4\n1 full {}\n1\n1 1\n3 1\n";
    for language in [C, CPP] {
        assert_eq!(language.run("helpers", program), expected, "{}", language.compiler);
    }
}

#[test]
fn no_exception_passes_the_wall_of_the_cpp_header() {
    let program = include_str!("header/wall.cpp");
    let expected = "0\n2 too long {\"have\":2}\n4 no error \n11 the plugin ran out of memory \n13 a bug \n\
                    13 the plugin threw something that is no std::exception \n5\n";
    assert_eq!(CPP.run("wall", program), expected);
}

#[test]
fn an_engine_of_the_sdk_header_keeps_the_contract_in_both_languages() {
    let program = include_str!("header/sdk.c");
    let expected = include_str!("header/sdk.txt");
    for language in [C, CPP] {
        let printed = language.run("sdk", program);
        for (line, (found, expected)) in printed.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{}, line {} of sdk.txt", language.compiler, line + 1);
        }
        assert_eq!(printed.lines().count(), expected.lines().count(), "{}", language.compiler);
    }
}

#[test]
fn an_option_with_a_field_of_another_type_does_not_compile() {
    let sound = include_str!("header/sdk.c");
    let wrong = sound.replace("int64_t threads, fast;", "int threads; int64_t fast;");
    assert_ne!(sound, wrong);
    for language in [C, CPP] {
        let told = language.try_compile("sdk-wrong", &wrong, &[]).expect_err("it compiles");
        assert!(told.contains("negative"), "{told}");
    }
}

#[test]
fn the_example_compiles_in_both_languages() {
    let source = std::fs::read_to_string(EXAMPLE).expect("the example is readable");
    for language in [C, CPP] {
        let library = language.compile("echo", &source, &LIBRARY);
        let (bytes, _) = section(&library, manifest::SECTION);
        assert!(
            bytes.starts_with(b"{\"manifest\":1,\"id\":\"echo-c\""),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

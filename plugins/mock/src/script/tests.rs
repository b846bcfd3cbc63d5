//! Every kind of item, and what is said of each kind of mistake.

use super::*;

fn parse(text: &str) -> Result<Vec<Item>, String> {
    Script::parse(text).map(|s| s.0.to_vec())
}

#[test]
fn each_kind_of_item_is_read() {
    let items = parse(
        r#"["Hi", {"hex":"f09f"}, {"ids":[72,105]}, {"ids":[9],"text":"x"}, {"delay_ms":5}, ["a",{"hex":"62"}],
            {"repeat":2,"item":"z"}, {"finish":"length"},
            {"error":"lost","code":"out_of_memory","details":{"have":1}}]"#,
    )
    .unwrap();
    let token = |text: &str| Token::of(text.as_bytes());
    let bare = |id| Token { id, bytes: None };
    assert_eq!(
        items,
        [
            Item::Tokens(vec![token("Hi")]),
            Item::Tokens(vec![Token::of([0xf0, 0x9f])]),
            Item::Tokens(vec![bare(72), bare(105)]),
            Item::Tokens(vec![Token { id: 9, bytes: Some("x".into()) }]),
            Item::Delay(5),
            Item::Tokens(vec![token("a"), token("b")]),
            Item::Tokens(vec![token("z")]),
            Item::Tokens(vec![token("z")]),
            Item::Finish(End::Length),
            Item::Error(Error {
                code: code::OUT_OF_MEMORY,
                message: "lost".into(),
                details: r#"{"have":1}"#.into()
            }),
        ]
    );
}

#[test]
fn ids_of_text_are_stable_and_above_the_bytes() {
    assert_eq!(Token::of("word"), Token::of("word"));
    assert_ne!(Token::of("word").id, Token::of(" word").id);
    for text in ["", "a", " Paris", "\u{1f4a9}"] {
        let id = Token::of(text).id;
        assert!((FIRST_ID..FIRST_ID + TEXT_IDS).contains(&id), "{text}: {id}");
    }
    // Written into scenarios: this number must not change.
    assert_eq!(Token::of("Hi").id, 46_714);
}

#[test]
fn a_mistake_is_named_with_its_place() {
    for (text, expected) in [
        ("[", "script is not JSON"),
        ("{}", "script must be an array"),
        ("[1]", "script[0]: an item is"),
        (r#"["a",{"hex":"f"}]"#, "script[1].hex: pairs"),
        (r#"[{"hex":"+f"}]"#, "script[0].hex: pairs"),
        (r#"[{"ids":[-1]}]"#, "script[0].ids: "),
        (r#"[{"ids":[]}]"#, "script[0].ids: at least one"),
        (r#"[{"hex":"00","text":"x"}]"#, "text does not go with hex"),
        (r#"[{"say":"x"}]"#, "an object has one of"),
        (r#"[{"delay_ms":"5"}]"#, "script[0].delay_ms: a whole number"),
        (r#"[{"finish":"eos"}]"#, "script[0].finish: "),
        (r#"[{"repeat":2}]"#, "repeat needs an item"),
        (r#"[{"repeat":9,"item":{"hex":"0"}}]"#, "script[0].item.hex: pairs"),
        (r#"[{"repeat":99999999,"item":"a"}]"#, "more than 1048576 items"),
        (r#"[{"repeat":1048576,"item":"a"},"b"]"#, "more than 1048576 items"),
        (r#"[["a",{"delay_ms":1}]]"#, "script[0][1]: only text"),
        (r#"[{"error":"x","code":"nonsense"}]"#, "script[0].code: "),
    ] {
        let said = parse(text).unwrap_err();
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn the_length_adds_delays_and_counts_the_rest() {
    let script = Script::parse(r#"["a",{"delay_ms":5},["b","c"],{"delay_ms":7}]"#).unwrap();
    assert_eq!(script.length(), (12, 2));
}

//! Templates: the house styles of real models, Python's manners, refusals, hostile templates.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::{ChatOptions, Template, TemplateError, TemplateSource};

const CHATML: &str = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn compile(text: &str) -> Template {
    let tokens = ("<s>".to_owned(), "</s>".to_owned());
    let source =
        TemplateSource { default: text.to_owned(), bos_token: tokens.0, eos_token: tokens.1, tool_use: None };
    Template::compile(source).unwrap()
}

fn options() -> ChatOptions {
    ChatOptions::new(1_753_862_400)
}

fn user(text: &str) -> Vec<Value> {
    vec![json!({"role": "user", "content": text})]
}

fn render(text: &str, messages: &[Value]) -> Result<String, TemplateError> {
    compile(text).render(messages, &options())
}

/// Renders an expression with `x` at hand.
fn expression(text: &str, x: Value) -> String {
    let mut options = options();
    options.extra.insert("x".to_owned(), x);
    compile(&format!("{{{{ {text} }}}}")).render(&[], &options).unwrap()
}

#[test]
fn a_tag_whose_marks_share_a_letter_is_an_error_and_no_panic() {
    for source in ["{%}", "a{%}b%}", "{% generation %}{%}", "{%", "{{%}}"] {
        let source = TemplateSource { default: source.to_owned(), ..TemplateSource::default() };
        assert!(matches!(Template::compile(source), Err(TemplateError::Compile(_))));
    }
}

#[test]
fn a_chat_renders_with_and_without_the_assistants_head() {
    let mut options = options();
    let template = compile(CHATML);
    assert_eq!(
        template.render(&user("hi"), &options).unwrap(),
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    );
    options.add_generation_prompt = false;
    assert_eq!(template.render(&user("hi"), &options).unwrap(), "<|im_start|>user\nhi<|im_end|>\n");
}

#[test]
fn blocks_are_trimmed_as_transformers_trims_them() {
    let text = "{% for m in messages %}\n    {% if m.role == 'user' %}\nQ: {{ m.content }}\n    {% endif %}\n{% endfor %}\nend\n";
    assert_eq!(render(text, &user("a")).unwrap(), "Q: a\nend");
}

#[test]
fn python_methods_slices_and_loops_work() {
    let x = json!({"a": 1, "b": [1, 2]});
    let cases = [
        ("'  a '.strip() + 'b'", "ab"),
        ("'a,b'.split(',')[-1]", "b"),
        ("'<think>x</think>y'.split('</think>')[-1].lstrip('\\n')", "y"),
        ("x.items() | list | length", "2"),
        ("x.get('zz', 'none')", "none"),
        ("'ab'.startswith('a')", "True"),
        ("[1, 2, 3][::-1] | join(' ')", "3 2 1"),
        ("'abc'[1:]", "bc"),
        ("none", "None"),
        ("'x' if missing is defined else 'y'", "y"),
        ("x is mapping and x.b is sequence and x.b is not string", "True"),
        ("'%s-%s' | format('a', 1)", "a-1"),
        ("'a' ~ 1 ~ true", "a1True"),
        ("bos_token + eos_token", "<s></s>"),
        ("tools is none and documents is none", "True"),
    ];
    for (text, expected) in cases {
        assert_eq!(expression(text, x.clone()), expected, "{text}");
    }
    let text = "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}{% if ns.n > 1 %}{% break %}{% endif %}{% endfor %}{{ ns.n }}";
    let messages: Vec<Value> =
        ["system", "user", "user", "user"].iter().map(|r| json!({"role": r})).collect();
    assert_eq!(render(text, &messages).unwrap(), "2");
    let text = "{% macro m(x, y='d') %}{{ x }}{{ y }}{% endmacro %}{{ m('a') }}{{ m('b', y='c') }}";
    assert_eq!(render(text, &[]).unwrap(), "adbc");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let x = json!({"z": [1, 2.0, null, true], "a": "<é'\"\n\u{1}>", "e": {}, "l": []});
    // Each expectation is the output of Python's json.dumps.
    let cases = [
        ("x | tojson", r#"{"z": [1, 2.0, null, true], "a": "<é'\"\n\u0001>", "e": {}, "l": []}"#),
        ("x.z | tojson(indent=2)", "[\n  1,\n  2.0,\n  null,\n  true\n]"),
        (
            "{'k': {'n': [1]}} | tojson(4)",
            "{\n    \"k\": {\n        \"n\": [\n            1\n        ]\n    }\n}",
        ),
        ("'é🎉' | tojson(ensure_ascii=true)", r#""\u00e9\ud83c\udf89""#),
        ("x.z | tojson(separators=(',', ':'))", "[1,2.0,null,true]"),
        ("{'b': 1, 'a': 2} | tojson(sort_keys=true)", r#"{"a": 2, "b": 1}"#),
        ("'</script>' | tojson", "\"</script>\""),
        ("x.e | tojson(indent=2)", "{}"),
    ];
    for (text, expected) in cases {
        assert_eq!(expression(text, x.clone()), expected, "{text}");
    }
    let error = render("{{ missing | tojson }}", &[]).unwrap_err().to_string();
    assert!(error.contains("undefined cannot be written as json"), "{error}");
}

#[test]
fn a_templates_own_refusal_keeps_its_words() {
    let text = "{% macro check(m) %}{% if m.role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}{% endmacro %}{% for m in messages %}{{ check(m) }}{% endfor %}";
    let error = render(text, &[json!({"role": "tool"})]).unwrap_err();
    assert!(matches!(&error, TemplateError::Raised(m) if m == "roles must alternate"), "{error:?}");
    assert_eq!(error.to_string(), "the chat template refuses the conversation: roles must alternate");
    let other = render("{{ messages[0].content.strip() }}", &[json!({"content": null})]).unwrap_err();
    assert!(matches!(other, TemplateError::Render(_)), "{other:?}");
}

#[test]
fn the_date_is_the_callers() {
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}", &[]).unwrap(), "30 Jul 2025");
}

#[test]
fn empty_tool_calls_count_as_absent_and_arguments_are_objects() {
    let text = "{% for m in messages %}{{ 'tool_calls' in m }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %};{% endfor %}";
    let call =
        |arguments: Value| json!({"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]});
    let messages = [
        json!({"tool_calls": []}),
        json!({"tool_calls": null}),
        call(json!("{\"b\": 1, \"a\": 2}")),
        call(json!({"x": []})),
        call(json!("not json")),
    ];
    assert_eq!(
        render(text, &messages).unwrap(),
        r#"False;False;True{"b": 1, "a": 2};True{"x": []};True"not json";"#
    );
}

#[test]
fn tools_choose_their_template_and_an_empty_list_is_none() {
    let source = TemplateSource {
        default: "plain {{ tools is none }}".to_owned(),
        tool_use: Some("tools {{ tools | length }}".to_owned()),
        ..TemplateSource::default()
    };
    let template = Template::compile(source).unwrap();
    let mut options = options();
    assert_eq!(template.render(&[], &options).unwrap(), "plain True");
    options.tools = Some(json!([]));
    assert_eq!(template.render(&[], &options).unwrap(), "plain True");
    options.tools = Some(json!([{"type": "function"}]));
    assert_eq!(template.render(&[], &options).unwrap(), "tools 1");
}

#[test]
fn extra_variables_reach_the_template_but_do_not_replace_its_own() {
    let mut options = options();
    options.extra.insert("enable_thinking".to_owned(), json!(false));
    options.extra.insert("messages".to_owned(), json!("stolen"));
    let text = "{{ enable_thinking is false }} {{ messages[0].content }}";
    assert_eq!(compile(text).render(&user("hi"), &options).unwrap(), "True hi");
}

#[test]
fn the_final_message_can_stay_open() {
    let mut options = options();
    options.continue_final = true;
    let both = compile(CHATML).render(&user("x"), &options).unwrap_err();
    assert!(matches!(both, TemplateError::Continue(_)), "{both:?}");
    options.add_generation_prompt = false;
    let messages =
        [json!({"role": "user", "content": "q"}), json!({"role": "assistant", "content": "The answer "})];
    let open = compile(CHATML).render(&messages, &options).unwrap();
    assert_eq!(open, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer ");
    let trimming = CHATML.replace("m['content']", "m['content'] | trim");
    let open = compile(&trimming).render(&messages, &options).unwrap();
    assert!(open.ends_with("assistant\nThe answer"), "{open:?}");
    let parts = [json!({"role": "assistant", "content": [{"type": "text", "text": "ab"}]})];
    let open = compile("{{ messages[0].content[0].text }}|").render(&parts, &options).unwrap();
    assert_eq!(open, "ab");
    for bad in [&[][..], &[json!({"role": "assistant", "content": null})]] {
        assert!(matches!(compile(CHATML).render(bad, &options), Err(TemplateError::Continue(_))));
    }
}

#[test]
fn training_marks_render_their_content() {
    let text = "a\n{%- generation -%}\n b {% endgeneration %}{{ '{% generation %}' | length }}";
    assert!(render(text, &[]).unwrap().starts_with("ab "));
    assert_eq!(
        super::without_generation_tags("x {% set a = '%}' %} {% endgeneration %}"),
        "x {% set a = '%}' %} {% endif %}"
    );
    assert_eq!(super::without_generation_tags("x {%"), "x {%");
}

#[test]
fn syntax_errors_are_found_when_compiled() {
    for text in ["{% for %}", "{{ x", "{% include 'etc' %}", "{% unknown %}"] {
        let source = TemplateSource { default: text.to_owned(), ..TemplateSource::default() };
        assert!(matches!(Template::compile(source), Err(TemplateError::Compile(_))), "{text}");
    }
}

/// Runs with the stack of a runtime thread.
fn on_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap()
}

#[test]
fn hostile_templates_end() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(matches!(render(endless, &[]), Err(TemplateError::Endless)));
    let doubling = "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    assert!(matches!(render(doubling, &[]), Err(TemplateError::Endless)));
    let laughs = "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson | length }}";
    let error = render(laughs, &[]).unwrap_err().to_string();
    assert!(error.contains("more than"), "{error}");
    let error = on_small_stack(|| {
        render("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", &[]).unwrap_err().to_string()
    });
    assert!(error.contains("recursion"), "{error}");
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    let source = TemplateSource { default: deep, ..TemplateSource::default() };
    assert!(on_small_stack(|| Template::compile(source).is_err()));
}

#[test]
fn deep_arguments_render_on_a_small_stack() {
    let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
    let text = on_small_stack(move || expression("x | tojson | length", deep));
    assert_eq!(text, "241");
}

#[test]
fn the_prompt_is_bounded() {
    let mut options = options();
    options.max_bytes = 100;
    let error = compile(CHATML).render(&user(&"x".repeat(200)), &options).unwrap_err();
    assert!(matches!(error, TemplateError::TooLong { limit: 100 }), "{error:?}");
    assert!(compile(CHATML).render(&user("x"), &options).is_ok());
}

#[test]
fn a_long_conversation_stays_within_its_fuel() {
    let messages: Vec<Value> =
        (0..5000).map(|_| json!({"role": "user", "content": "word ".repeat(100)})).collect();
    assert!(render(CHATML, &messages).unwrap().len() > 2_500_000);
}

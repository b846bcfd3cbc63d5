//! Tasks and runs for the tests.

use cascadia_plugin_api::sdk::{GrammarKind, Sampling, Task, TraceContext};

use crate::options::Options;
use crate::order::{Order, Raw};
use crate::prompt;
use crate::run::Run;

/// A task whose prompt is `text` in bytes.
pub(crate) fn task(id: u64, text: &str) -> Task {
    Task {
        id,
        group: 0,
        request_id: String::new(),
        session_id: String::new(),
        trace: TraceContext::default(),
        model: "mock".into(),
        tokens: text.bytes().map(u32::from).collect(),
        text: String::new(),
        max_tokens: 0,
        min_tokens: 0,
        ignore_eos: false,
        stop_tokens: Vec::new(),
        sampling: Sampling {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
            banned: Vec::new(),
            allowed: Vec::new(),
        },
        logprobs: None,
        prompt_logprobs: None,
        generated_from: 0,
        grammar: (GrammarKind::None, String::new()),
        priority: 0,
        deadline_ns: None,
        cache_salt: String::new(),
        adapter: String::new(),
        attachments: 0,
        options: Vec::new(),
    }
}

/// The run of a task, its order read from its own prompt.
pub(crate) fn run_of(task: Task, options: &Options) -> Run {
    let text = prompt::text(&task.tokens, &task.text).into_owned();
    let order = Order::read(&Raw::new(), prompt::order_line(&text)).unwrap();
    Run::new(task, order, &text, options, None)
}

/// A run of this prompt.
pub(crate) fn run(id: u64, text: &str) -> Run {
    run_of(task(id, text), &Options::default())
}

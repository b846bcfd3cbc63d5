//! Tasks and runs for the tests.

use cascadia_plugin_api::sdk::Task;

use crate::options::Options;
use crate::order::{Order, Raw};
use crate::prompt;
use crate::run::Run;

/// A task whose prompt is `text` in bytes.
pub(crate) fn task(id: u64, text: &str) -> Task {
    Task { id, model: "mock".into(), tokens: text.bytes().map(u32::from).collect(), ..Task::default() }
}

/// The run of a task, its order read from its own prompt.
pub(crate) fn run_of(task: Task, options: &Options) -> Run {
    let text = prompt::text(&task.tokens, &task.text).into_owned();
    let order = Order::read(&Raw::new(), prompt::order_line(&text)).unwrap();
    Run::new(task, order, || prompt::echo(&text), options, None)
}

/// A run of this prompt.
pub(crate) fn run(id: u64, text: &str) -> Run {
    run_of(task(id, text), &Options::default())
}

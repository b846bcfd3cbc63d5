//! The OpenAI dialect: chat and text completions, the list of models, cancelling.
//!
//! `intake` reads a request and finds its model; `fields` reads it strictly by field; `chat` and `completions` make a generation of them; `run` takes it from
//! admission to the answer; `frames` writes streams and `unary` whole answers.

pub mod cancel;
pub mod chat;
pub mod completions;
mod encode;
mod fields;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod intake;
mod logprobs;
mod messages;
pub mod models;
mod params;
mod refused;
mod run;
pub mod tokens;
mod unary;

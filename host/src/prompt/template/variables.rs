//! What a template sees, looked up by name as it asks. A table of it would be made anew for each conversation, for the two or
//! three names that a template reads.

use std::sync::Arc;

use minijinja::value::{Object, Value as JinjaValue};

/// The variables of one rendering. The caller's extras cannot replace the others.
#[derive(Debug)]
pub(super) struct Variables {
    pub(super) messages: JinjaValue,
    pub(super) tools: JinjaValue,
    pub(super) add_generation_prompt: JinjaValue,
    pub(super) bos_token: JinjaValue,
    pub(super) eos_token: JinjaValue,
    pub(super) strftime_now: JinjaValue,
    /// Few, each with another name.
    pub(super) extra: Vec<(String, JinjaValue)>,
}

impl Object for Variables {
    fn get_value(self: &Arc<Self>, key: &JinjaValue) -> Option<JinjaValue> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<JinjaValue> {
        let extra = || self.extra.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        Some(match key {
            "messages" => self.messages.clone(),
            "tools" => self.tools.clone(),
            "add_generation_prompt" => self.add_generation_prompt.clone(),
            "bos_token" => self.bos_token.clone(),
            "eos_token" => self.eos_token.clone(),
            "strftime_now" => self.strftime_now.clone(),
            // Transformers always defines it; templates test it for none.
            "documents" => extra().cloned().unwrap_or_else(|| JinjaValue::from(())),
            _ => extra()?.clone(),
        })
    }
}

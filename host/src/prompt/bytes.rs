//! The text side of an engine whose token ids are bytes: 0..255, no vocabulary file, the engine's own template.

use std::sync::Arc;

use super::pieces::Pieces;
use super::template::{Template, TemplateSource};
use super::tokenizer::{Bos, Encoder, Tokenizer};
use super::{LoadError, Text};

pub(super) fn load(template: &str) -> Result<Text, LoadError> {
    let pieces = Pieces::build((0..=u8::MAX).map(|byte| Some((vec![byte], false))), false)?;
    let template = (!template.is_empty())
        .then(|| {
            Template::compile(TemplateSource { default: template.to_owned(), ..TemplateSource::default() })
        })
        .transpose()?;
    Ok(Text {
        tokenizer: Tokenizer {
            encoder: Encoder::Bytes,
            pieces: Arc::new(pieces),
            bos: Bos::Never,
            by_window: false,
        },
        template,
        eos: Vec::new(),
        context: None,
        name: None,
        kind: "bytes".to_owned(),
        pre: String::new(),
    })
}

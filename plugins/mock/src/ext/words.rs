//! `cascadia.tokenize/1`: bytes are tokens, and one special token stands at both ends of nothing in particular.

use cascadia_plugin_api::sdk::{Error, Result, TokenKind, Tokenize};

use crate::engine::Mock;
use crate::script::SPECIAL;

/// What the special token looks like in a text.
const SPECIAL_TEXT: &[u8] = b"<|mock|>";

impl Tokenize for Mock {
    fn tokenize(&self, text: &[u8], parse_special: bool, add_special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() + 1);
        if add_special {
            ids.push(SPECIAL);
        }
        let mut rest = text;
        while let Some((byte, tail)) = rest.split_first() {
            match rest.strip_prefix(SPECIAL_TEXT).filter(|_| parse_special) {
                Some(tail) => {
                    ids.push(SPECIAL);
                    rest = tail;
                }
                None => {
                    ids.push(u32::from(*byte));
                    rest = tail;
                }
            }
        }
        Ok(ids)
    }

    fn detokenize(&self, tokens: &[u32], special: bool) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(tokens.len());
        for id in tokens {
            match (u8::try_from(*id), *id) {
                (Ok(byte), _) if self.options.breaks("detok-lossy") && !byte.is_ascii() => bytes.push(b'?'),
                (Ok(byte), _) => bytes.push(byte),
                (Err(_), SPECIAL) if special => bytes.extend_from_slice(SPECIAL_TEXT),
                (Err(_), SPECIAL) => {}
                (Err(_), id) => return Err(Error::config(format!("no token has the id {id}"))),
            }
        }
        Ok(bytes)
    }

    fn token(&self, token: u32) -> Result<(Vec<u8>, TokenKind)> {
        Ok(match (u8::try_from(token), token) {
            (Ok(byte), _) => (vec![byte], TokenKind::Text),
            (Err(_), SPECIAL) => (SPECIAL_TEXT.to_vec(), TokenKind::Special),
            // Generated tokens have ids that are hashes of their text: no text can be told from them.
            (Err(_), _) => (Vec::new(), TokenKind::None),
        })
    }
}

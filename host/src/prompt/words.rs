//! A tokenizer that somebody else has: what the host asks of it.

/// A token's bytes as they stand inside a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Any bytes; perhaps a part of a character.
    pub bytes: Vec<u8>,
    /// It is no text.
    pub special: bool,
}

/// A tokenizer that somebody else has. Errors are for people.
pub trait Words: Send + Sync {
    /// Ids of a text in which special tokens may be written out. `add_special`: with what the model wants around it.
    ///
    /// # Errors
    /// What its owner says.
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String>;

    /// The bytes of ids that make a text of their own, special ones included.
    ///
    /// # Errors
    /// What its owner says.
    fn decode(&self, tokens: &[u32]) -> Result<Vec<u8>, String>;

    /// One token; none where no token has that id.
    ///
    /// # Errors
    /// What its owner says.
    fn token(&self, token: u32) -> Result<Option<Token>, String>;
}

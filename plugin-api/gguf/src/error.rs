//! What can be wrong with a GGUF header. Each message names the place (key or tensor), the byte offset or the value.

/// Why a header could not be read, or why a value is not what the caller asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first four bytes are not `GGUF`.
    #[error("not a gguf file: it starts with bytes {found:02x?}, not with \"GGUF\"; check the path")]
    Magic {
        /// The four bytes found.
        found: [u8; 4],
    },
    /// Version 1, a future version, or a big-endian file (whose version reads as a multiple of 16,777,216).
    #[error("gguf version {0} is not readable; convert the model again to little-endian version 3")]
    Version(u32),
    /// The input ended inside the header.
    #[error("gguf ends at byte {at} inside {place}; the file is cut short, fetch it again")]
    Truncated {
        /// Offset at which a byte was missing.
        at: u64,
        /// Key, tensor or part of the header that was being read.
        place: String,
    },
    /// The reader failed.
    #[error("gguf: read {place} at byte {at}")]
    Io {
        /// Offset of the failed read.
        at: u64,
        /// Key, tensor or part of the header that was being read.
        place: String,
        /// What the reader said.
        #[source]
        source: std::io::Error,
    },
    /// A count or a length is beyond the reader's limit.
    #[error(
        "gguf: {place} at byte {at} claims {what} {found}, the limit is {limit}; the file is damaged or hostile"
    )]
    Limit {
        /// Offset behind the claim.
        at: u64,
        /// Key, tensor or part of the header that was being read.
        place: String,
        /// What is counted.
        what: &'static str,
        /// The claim.
        found: u64,
        /// The largest accepted value.
        limit: u64,
    },
    /// A key, a name or a string value is not UTF-8.
    #[error("gguf: {place} at byte {at} holds a string that is not utf-8; convert the model again")]
    Utf8 {
        /// Offset behind the string.
        at: u64,
        /// Key, tensor or part of the header that was being read.
        place: String,
    },
    /// A metadata value carries a type number that does not exist.
    #[error("gguf: {place} at byte {at} has value type {found}, known are 0 to 12; convert the model again")]
    ValueType {
        /// Offset behind the type number.
        at: u64,
        /// The key.
        place: String,
        /// The number found.
        found: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error(
        "gguf: {place} at byte {at} has the boolean {found}, only 0 and 1 are valid; the file is damaged"
    )]
    Bool {
        /// Offset behind the byte.
        at: u64,
        /// The key.
        place: String,
        /// The byte found.
        found: u8,
    },
    /// Two metadata keys or two tensors have the same name.
    #[error("gguf: {place} at byte {at} occurs twice; convert the model again")]
    Duplicate {
        /// Offset behind the second one's name.
        at: u64,
        /// The key or tensor.
        place: String,
    },
    /// `general.alignment` is not a power of two within reason.
    #[error(
        "gguf: general.alignment is {0}, it must be a power of two up to 1048576; convert the model again"
    )]
    Alignment(u64),
    /// A tensor's shape, size or offset is impossible.
    #[error("gguf: tensor {name} {problem}; the file is damaged, fetch it again")]
    Tensor {
        /// The tensor's name.
        name: String,
        /// What is wrong, with the values.
        problem: String,
    },
    /// A model was to be opened by another part than its first.
    #[error(
        "gguf: this is part {no} of {count} of a model; name the part that ends in -00001-of-{count:05}.gguf"
    )]
    Part {
        /// Its number, from 1.
        no: u64,
        /// All parts.
        count: u64,
    },
    /// A caller's getter met another type.
    #[error("gguf: metadata key {key} is {found}, expected {expected}; convert the model again")]
    WrongType {
        /// The key.
        key: String,
        /// What the getter reads.
        expected: &'static str,
        /// What the file holds.
        found: &'static str,
    },
    /// A key that the caller cannot do without is absent; made by [`Error::missing`].
    #[error("gguf: metadata key {key} is missing; convert the model again with a current converter")]
    Missing {
        /// The key.
        key: String,
    },
}

impl Error {
    /// The error for a key that the caller needs and the file lacks.
    pub fn missing(key: &str) -> Self {
        Self::Missing { key: key.to_owned() }
    }

    /// Whether more bytes might help: a caller that passed a prefix of the file can retry with a longer one.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::Truncated { .. })
    }
}

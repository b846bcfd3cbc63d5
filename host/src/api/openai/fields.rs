//! Reads a JSON object field by field. Null is absent; a wrong type or a value out of range names the field; unknown
//! fields are left alone, as the clients' own extras rely on it.

use serde_json::{Map, Value};

use crate::error::{ApiError, Code};

/// Most values of a body, nested ones too: more than the token ids of any window, and some 100 MB.
const MAX_VALUES: usize = 2_000_000;

/// Fields of a body that are looked through one by one.
const FEW: usize = 16;

/// A request's object.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body. Its values are counted first: each takes far more memory than its two bytes of text.
    pub(super) fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        if body.is_empty() {
            return Err(ApiError::new(Code::InvalidJson, "the body is empty; send a JSON object"));
        }
        if body.len() > MAX_VALUES && values(body) > MAX_VALUES {
            let message = format!("the body has over {MAX_VALUES} values; send fewer");
            return Err(ApiError::new(Code::BodyTooLarge, message));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields(map)),
            Ok(_) => Err(ApiError::new(Code::InvalidJson, "the body is JSON, but no object")),
            Err(e) => Err(ApiError::new(Code::InvalidJson, format!("the body is not JSON: {e}"))),
        }
    }

    /// Takes a field out; null counts as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        // Some fifty names are asked for, of which a body has a few: a look at those costs less than a hash for each.
        if self.0.len() <= FEW && !self.0.keys().any(|key| key == name) {
            return None;
        }
        self.0.remove(name).filter(|v| !v.is_null())
    }

    /// Puts a field back.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// A text.
    pub(super) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    /// A yes or no; absent is no.
    pub(super) fn boolean(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(b)) => Ok(b),
            Some(other) => Err(wrong(name, "a boolean", &other)),
        }
    }

    /// An object.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields(map))),
            Some(other) => Err(wrong(name, "an object", &other)),
        }
    }

    /// A number in a range.
    pub(super) fn number(&mut self, name: &str, min: f64, max: f64) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64() {
            Some(n) if (min..=max).contains(&n) => Ok(Some(n as f32)),
            Some(n) => Err(out_of_range(name, &n.to_string(), min, max)),
            None => Err(wrong(name, "a number", &value)),
        }
    }

    /// A whole number in a range.
    pub(super) fn integer(&mut self, name: &str, min: i64, max: i64) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        // 4.0 is a whole number too: some languages have no other.
        let whole = value
            .as_i64()
            .or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64));
        match whole {
            Some(n) if (min..=max).contains(&n) => Ok(Some(n)),
            Some(n) => Err(out_of_range(name, &n.to_string(), min as f64, max as f64)),
            None if value.is_number() => Err(wrong(name, "a whole number", &value)),
            None => Err(wrong(name, "an integer", &value)),
        }
    }

    /// A list of token ids.
    pub(super) fn token_ids(&mut self, name: &str) -> Result<Vec<u32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let ids = value.as_array().filter(|a| a.len() <= 4096).and_then(|items| {
            items.iter().map(|v| v.as_u64().and_then(|n| u32::try_from(n).ok())).collect::<Option<Vec<_>>>()
        });
        ids.ok_or_else(|| wrong(name, "a list of at most 4096 token ids", &value))
    }

    /// Names of what is left.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What is left, for templates that read extras.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

/// Values in a text that may be JSON, one more or less: what begins or goes on outside of its strings.
fn values(body: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// A field has the wrong type.
pub(super) fn wrong(name: &str, expected: &str, found: &Value) -> ApiError {
    let mut shown = found.to_string();
    if shown.len() > 80 {
        shown.truncate(shown.floor_char_boundary(80));
        shown.push_str("...");
    }
    ApiError::new(Code::InvalidValue, format!("{name} must be {expected}, not {shown}")).param(name)
}

/// A number is outside of what a field may have.
pub(super) fn out_of_range(name: &str, found: &str, min: f64, max: f64) -> ApiError {
    ApiError::new(Code::InvalidValue, format!("{name} is {found}; it must be from {min} to {max}"))
        .param(name)
}

/// A field asks for something that the engine or this host does not do.
pub(super) fn unsupported(name: &str, why: impl std::fmt::Display) -> ApiError {
    ApiError::new(Code::UnsupportedParameter, format!("{name} is not supported: {why}")).param(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).expect("an object")
    }

    #[test]
    fn null_is_absent_and_wrong_values_name_their_field() {
        assert_eq!(fields(r#"{"n":null}"#).integer("n", 1, 8), Ok(None));
        assert_eq!(fields(r#"{"n":2.0}"#).integer("n", 1, 8), Ok(Some(2)));
        for bad in
            [r#"{"n":"2"}"#, r#"{"n":0}"#, r#"{"n":-1}"#, r#"{"n":1.5}"#, r#"{"n":[1]}"#, r#"{"n":1e300}"#]
        {
            let error = fields(bad).integer("n", 1, 8).expect_err(bad);
            assert_eq!((error.code, error.param.as_deref()), (Code::InvalidValue, Some("n")), "{bad}");
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, n) in [("3", 1), ("[1,2,3]", 4), (r#"{"a":[],"b":{}}"#, 5), (r#"["a,b[{\",",2]"#, 3)] {
            assert_eq!(values(text.as_bytes()), n, "{text}");
        }
        let zeros = |n| format!("{{\"x\":[{}0]}}", "0,".repeat(n));
        assert!(Fields::parse(zeros(MAX_VALUES - 10).as_bytes()).is_ok());
        let refused = Fields::parse(zeros(MAX_VALUES).as_bytes());
        assert_eq!(refused.err().map(|e| e.code), Some(Code::BodyTooLarge));
        // A text may have as many commas as it likes.
        let text = format!("{{\"x\":\"{}\"}}", "a,".repeat(MAX_VALUES));
        assert!(Fields::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_no_object_is_refused_as_json() {
        for bad in ["", "[]", "{", "null", "\u{1}"] {
            assert_eq!(
                Fields::parse(bad.as_bytes()).err().map(|e| e.code),
                Some(Code::InvalidJson),
                "{bad:?}"
            );
        }
    }
}

//! Reads a JSON object field by field. Null is absent; a wrong type or a value out of range names the field; unknown
//! fields are left alone, as the clients' own extras rely on it.

use std::fmt::{self, Display};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::{ApiError, Code};

/// Most values of a body, nested ones too: more than the token ids of any window, and some 300 MB where each has a name.
const MAX_VALUES: usize = 2_000_000;

/// Fields that are looked through one by one. Nearly every body has fewer: a look at those costs less than a hash for each of
/// the fifty names that are asked for.
const FEW: usize = 16;

/// A request's object: each name once, the last value of those given. One that was taken is null.
#[derive(Default)]
pub(super) struct Fields {
    /// By name, if more than a few.
    all: Vec<(String, Value)>,
    /// Names that nobody has taken out of a field that is an object, `field.name`.
    inside: Vec<String>,
    /// A bit for each length of a name that there is, those over the last together: most names that are asked for are not
    /// there, and most of those have a length of their own.
    lengths: u64,
}

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
        // Read for an object, what is none is not read to its end.
        let error = match serde_json::from_slice(body) {
            Ok(fields) => return Ok(fields),
            Err(e) if e.is_data() => serde_json::from_slice::<IgnoredAny>(body).err(),
            Err(e) => Some(e),
        };
        let message = match error {
            None => "the body is JSON, but no object".to_owned(),
            Some(e) => format!("the body is not JSON: {e}"),
        };
        Err(ApiError::new(Code::InvalidJson, message))
    }

    fn find(&mut self, name: &str) -> Option<&mut Value> {
        if self.lengths & length(name) == 0 {
            return None;
        }
        let at = if self.all.len() <= FEW {
            self.all.iter().position(|(key, _)| key == name)
        } else {
            self.all.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()
        };
        at.map(|at| &mut self.all[at].1)
    }

    /// Takes a field out; null counts as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.find(name).map(std::mem::take).filter(|value| !value.is_null())
    }

    /// Puts a field back that was taken.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        if let Some(taken) = self.find(name) {
            *taken = value;
        }
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

    /// An object, as it came.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(wrong(name, "an object", &other)),
        }
    }

    /// An object of few fields, to be read as a body is.
    pub(super) fn few(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        match self.object(name)? {
            None => Ok(None),
            Some(map) if map.len() > FEW => {
                let message = format!("{name} has {} fields; it may have {FEW}", map.len());
                Err(ApiError::new(Code::InvalidValue, message).param(name))
            }
            Some(map) => {
                let mut fields = Fields::default();
                map.into_iter().for_each(|(name, value)| fields.add(name, value));
                Ok(Some(fields))
            }
        }
    }

    /// A number in a range.
    pub(super) fn number(&mut self, name: &str, min: f64, max: f64) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64() {
            Some(n) if (min..=max).contains(&n) => Ok(Some(n as f32)),
            Some(n) => Err(out_of_range(name, n, min, max)),
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
            Some(n) => Err(out_of_range(name, n, min, max)),
            // One that is too long for the type is out of range too.
            None if value.as_f64().is_some_and(|n| n.fract() == 0.0) => {
                Err(out_of_range(name, &value, min, max))
            }
            None if value.is_number() => Err(wrong(name, "a whole number", &value)),
            None => Err(wrong(name, "an integer", &value)),
        }
    }

    /// What of the few fields of `name` nobody has taken is left, as `name.field`.
    pub(super) fn leave(&mut self, name: &str, rest: &Fields) {
        self.inside.extend(rest.names().map(|field| format!("{name}.{field}")));
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
        let own = self.all.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str());
        own.chain(self.inside.iter().map(String::as_str))
    }
}

/// While they are read.
impl Fields {
    fn add(&mut self, name: String, value: Value) {
        if self.all.len() <= FEW
            && let Some(known) = self.find(&name)
        {
            *known = value;
        } else {
            self.lengths |= length(&name);
            self.all.push((name, value));
        }
    }

    fn settle(&mut self) {
        if self.all.len() > FEW {
            // Of those with one name the last comes first.
            self.all.reverse();
            self.all.sort_by(|(a, _), (b, _)| a.cmp(b));
            self.all.dedup_by(|(a, _), (b, _)| a == b);
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some((name, value)) = map.next_entry()? {
                    fields.add(name, value);
                }
                fields.settle();
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// The bit of a name's length.
fn length(name: &str) -> u64 {
    1 << name.len().min(63)
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
pub(super) fn out_of_range<T: Display>(name: &str, found: impl Display, min: T, max: T) -> ApiError {
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
        for (long, shown) in
            [("18446744073709551615", "18446744073709551615"), ("99999999999999999999999", "1e+23")]
        {
            let error =
                fields(&format!(r#"{{"n":{long}}}"#)).integer("n", i64::MIN, i64::MAX).expect_err(long);
            let range = "from -9223372036854775808 to 9223372036854775807";
            assert_eq!(error.message, format!("n is {shown}; it must be {range}"));
        }
    }

    #[test]
    fn what_is_left_of_an_object_is_left_of_the_body() {
        let mut body = fields(r#"{"o":{"a":1,"b":2,"c":null},"x":3}"#);
        let mut object = body.few("o").expect("an object").expect("there");
        assert_eq!(object.integer("a", 0, 9), Ok(Some(1)));
        body.leave("o", &object);
        assert_eq!(body.names().collect::<Vec<_>>(), ["x", "o.b"]);
        let many: Vec<String> = (0..=FEW).map(|n| format!("\"f{n}\":1")).collect();
        let error = fields(&format!("{{\"o\":{{{}}}}}", many.join(","))).few("o").err().expect("too many");
        assert_eq!((error.code, error.param.as_deref()), (Code::InvalidValue, Some("o")));
        assert_eq!(error.message, "o has 17 fields; it may have 16");
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
    fn of_a_name_that_is_given_twice_the_last_counts_and_the_name_is_one() {
        for others in [0, 5, FEW - 2, FEW - 1, FEW, 4 * FEW] {
            let others: String = (0..others).map(|n| format!("\"o{n}\":{n},")).collect();
            let text = format!("{{\"a\":1,{others}\"b\":2,\"a\":3,\"b\":null}}");
            let mut fields = fields(&text);
            assert_eq!(fields.names().filter(|name| *name == "a").count(), 1, "{text}");
            assert_eq!(fields.integer("a", 0, 9), Ok(Some(3)), "{text}");
            assert_eq!((fields.take("a"), fields.take("b"), fields.take("c")), (None, None, None), "{text}");
            assert_eq!(fields.names().count(), others.matches(':').count(), "{text}");
        }
    }

    #[test]
    fn of_many_fields_all_are_found() {
        let many: Vec<String> = (0..100_000).map(|n| format!("\"o{n}\":[]")).collect();
        let mut fields = fields(&format!("{{{}}}", many.join(",")));
        for n in 0..100_000 {
            assert!(fields.take(&format!("o{n}")).is_some());
        }
        assert_eq!(fields.names().count(), 0);
    }

    #[test]
    fn what_is_no_object_is_refused_as_json() {
        let object = |bad: &str| bad.ends_with("but no object");
        for (bad, told) in
            [("", false), ("[]", true), ("[1", false), ("{", false), ("null", true), ("\u{1}", false)]
        {
            let error = Fields::parse(bad.as_bytes()).err().expect(bad);
            assert_eq!(
                (error.code, object(&error.message)),
                (Code::InvalidJson, told),
                "{bad:?}: {}",
                error.message
            );
        }
    }
}

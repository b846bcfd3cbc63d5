//! `tojson` as Python's `json.dumps` writes it, because models were trained on that text: `", "` and `": "`, key order
//! kept, no HTML escapes, floats as `repr` shows them.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Nesting of values.
const MAX_DEPTH: usize = 128;
/// Bytes of one result. A value may contain itself many times over, so its text must be bounded while it is written.
const MAX_BYTES: usize = 32 << 20;

/// The arguments of `json.dumps`.
#[derive(Debug)]
pub(super) struct Style {
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
}

impl Style {
    /// From `tojson(indent=…, separators=…, ensure_ascii=…, sort_keys=…)`; one bare number is the indent, as in Jinja.
    pub(super) fn from_args(args: &Rest<Value>, kwargs: &Kwargs) -> Result<Self, Error> {
        let named: Option<Value> = kwargs.get("indent")?;
        let indent = indent(named.as_ref().or(args.first()))?;
        // Python drops the space behind the comma where lines are broken.
        let comma = if indent.is_some() { "," } else { ", " };
        let mut style = Self {
            indent,
            item: comma.to_owned(),
            key: ": ".to_owned(),
            ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
            sorted: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        };
        if let Some(pair) = kwargs.get::<Option<Value>>("separators")?.filter(|pair| !pair.is_none()) {
            let at = |n| pair.get_item_by_index(n).ok().and_then(|v| v.as_str().map(str::to_owned));
            let (Some(item), Some(key)) = (at(0), at(1)) else {
                return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two strings"));
            };
            (style.item, style.key) = (item, key);
        }
        Ok(style)
    }
}

fn indent(value: Option<&Value>) -> Result<Option<String>, Error> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    if let Some(text) = value.as_str() {
        return Ok(Some(text.to_owned()));
    }
    if value.kind() == ValueKind::Bool {
        return Ok(None);
    }
    let bad = || Error::new(ErrorKind::InvalidOperation, "indent must be a number from 0 to 16 or a string");
    let width = value.as_usize().filter(|n| *n <= 16).ok_or_else(bad)?;
    Ok(Some(" ".repeat(width)))
}

/// The text of a value, or what about it is no JSON.
pub(super) fn dump(value: &Value, style: &Style) -> Result<String, String> {
    let mut writer = Writer { out: String::new(), style };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    out: String,
    style: &'a Style,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("a value nested deeper than {MAX_DEPTH} cannot be written as json"));
        }
        if self.out.len() > MAX_BYTES {
            return Err(format!("a value of more than {MAX_BYTES} bytes cannot be written as json"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            other => return Err(format!("{other} cannot be written as json")),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) {
        match f64::try_from(value.clone()) {
            Ok(x) if !value.is_integer() => self.out.push_str(&float(x)),
            _ => self.out.push_str(&value.to_string()),
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        let items = value.try_iter().map_err(|e| e.to_string())?;
        self.out.push('[');
        let mut some = false;
        for item in items {
            self.separate(some, depth + 1);
            some = true;
            self.value(&item, depth + 1)?;
        }
        self.close(some, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        let mut keys: Vec<Value> = value.try_iter().map_err(|e| e.to_string())?.collect();
        if self.style.sorted {
            keys.sort();
        }
        self.out.push('{');
        for (n, key) in keys.iter().enumerate() {
            self.separate(n > 0, depth + 1);
            match key.as_str() {
                Some(text) => self.string(text),
                // Python writes 1, None and True as "1", "null" and "true".
                None => {
                    self.out.push('"');
                    self.value(key, depth + 1)?;
                    self.out.push('"');
                }
            }
            self.out.push_str(&self.style.key);
            let item = value.get_item(key).map_err(|e| e.to_string())?;
            self.value(&item, depth + 1)?;
        }
        self.close(!keys.is_empty(), depth, '}');
        Ok(())
    }

    fn separate(&mut self, comma: bool, depth: usize) {
        if comma {
            self.out.push_str(&self.style.item);
        }
        self.line(depth);
    }

    fn close(&mut self, some: bool, depth: usize, bracket: char) {
        if some {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' => self.escape(u16::try_from(u32::from(c)).unwrap_or_default()),
                c if self.style.ascii && !c.is_ascii() => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.escape(*unit);
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, unit: u16) {
        self.out.push_str(&format!("\\u{unit:04x}"));
    }
}

/// Python's `repr`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{x:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_in_python() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (123456789.125, "123456789.125"),
        ];
        for (x, expected) in cases {
            assert_eq!(float(x), expected);
        }
    }
}

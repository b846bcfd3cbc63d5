//! Blanks what is not code, keeping every line where it is.

/// Comments, strings and character literals become spaces.
pub(super) fn comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest);
        let after_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if length > 0 && !(after_word && matches!(first, 'r' | 'b' | 'c')) {
            let (gone, left) = rest.split_at(length);
            code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = left;
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Bytes of the comment or literal at the start of `text`; 0 if there is none.
fn skipped(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block(text);
    }
    if let Some(inside) = text.strip_prefix('\'') {
        return character(inside).map_or(0, |length| length + 1);
    }
    // Prefixes of strings: r, b, br, c, cr.
    let prefix = ["", "br", "cr", "r", "b", "c"].into_iter().find(|prefix| {
        let rest = text.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with('"') || (prefix.ends_with('r') && rest.trim_start_matches('#').starts_with('"'))
    });
    match prefix {
        Some(prefix) if prefix.ends_with('r') => raw(text, prefix.len()),
        Some(prefix) => string(text, prefix.len()),
        None => 0,
    }
}

fn block(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of a character literal after its first quote; None for a lifetime.
fn character(inside: &str) -> Option<usize> {
    if let Some(escaped) = inside.strip_prefix('\\') {
        // The character after the backslash may be a quote itself.
        let end = escaped.char_indices().skip(1).find(|(_, c)| *c == '\'')?;
        return Some(end.0 + 2);
    }
    let first = inside.chars().next()?;
    inside[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 1)
}

fn string(text: &str, prefix: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(prefix + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw(text: &str, prefix: usize) -> usize {
    let rest = &text[prefix..];
    let marks = rest.len() - rest.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(marks));
    let start = prefix + marks + 1;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

/// Blanks inline modules under `#[cfg(test)]`; expects code without comments and strings.
pub(super) fn tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        let (before, from) = rest.split_at(at);
        let length = item(from).unwrap_or(MARK.len());
        let (gone, after) = from.split_at(length);
        out += before;
        out.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    out + rest
}

/// Bytes up to the end of the item: its closing brace, or a semicolon before any brace.
fn item(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b';' if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_stay_and_literals_go() {
        let code =
            comments_and_strings(r#"fn f<'a>(c: char) { c == '\'' || c == '{' || b"x" == s; var("}") }"#);
        assert!(code.starts_with("fn f<'a>(c: char) {"));
        assert_eq!(code.matches(['{', '}']).count(), 2, "{code}");
    }

    #[test]
    fn lines_are_kept() {
        let text = "a\n/* b\nc */\n\"d\ne\"\nf";
        assert_eq!(comments_and_strings(text).lines().count(), text.lines().count());
    }

    #[test]
    fn a_test_function_or_import_goes_alone() {
        let code = tests("#[cfg(test)] use a::b;\n#[cfg(test)]\nfn f() { g() }\nfn h() {}");
        assert_eq!(code.trim(), "fn h() {}");
    }
}

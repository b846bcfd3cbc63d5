//! Which known word someone meant who wrote an unknown one.

/// The nearest of `known`, when it is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|k| (distance(k, word), k)).min()?;
    // Of a path's last part a third may differ: the tables before it are nearly always right.
    let own = word.rsplit('.').next().unwrap_or(word);
    (near.0 <= own.len() / 3 + 1).then_some(near.1)
}

/// Edit distance; the words are short.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = if x == *y { diagonal } else { 1 + diagonal.min(row[j]).min(row[j + 1]) };
            diagonal = row[j + 1];
            row[j + 1] = cost;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_near_word_is_offered_and_a_far_one_is_not() {
        let known = ["listen", "no_auth", "max_body_mb"];
        assert_eq!(nearest("lissten", known), Some("listen"));
        assert_eq!(nearest("noauth", known), Some("no_auth"));
        assert_eq!(nearest("verbosity", known), None);
        assert_eq!(nearest("x", []), None);
        let paths = ["server.listen", "server.no_auth"];
        assert_eq!(nearest("servr.lissten", paths), Some("server.listen"));
        assert_eq!(nearest("server.bogus", paths), None);
    }
}

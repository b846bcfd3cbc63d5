//! Stop strings over a stream: found across pieces, never shown in part, nothing held back longer than needed.

/// Looks for the stop string that is complete first in text that comes piece by piece.
#[derive(Debug)]
pub struct Matcher {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
}

impl Matcher {
    /// A matcher for these strings; empty ones are ignored.
    pub fn new(stops: Vec<String>) -> Matcher {
        Matcher { stops: stops.into_iter().filter(|s| !s.is_empty()).collect(), held: String::new() }
    }

    /// Whether there is nothing to look for: every piece is shown as it is.
    pub fn is_idle(&self) -> bool {
        self.stops.is_empty()
    }

    /// Takes a piece; appends to `out` what may be shown. True when a stop string is complete: nothing of it or behind
    /// it is shown, and no more pieces may come.
    pub fn push(&mut self, piece: &str, out: &mut String) -> bool {
        if self.stops.is_empty() {
            out.push_str(piece);
            return false;
        }
        self.held.push_str(piece);
        // The string that is complete first wins, as it would if the text came letter by letter; of those that end together
        // the one that begins first. What is shown then never depends on where the engine cuts its pieces.
        let ends = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop.len())));
        if let Some((at, _)) = ends.min_by_key(|(at, length)| (at + length, *at)) {
            out.push_str(&self.held[..at]);
            self.held.clear();
            return true;
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let shown = self.held.len() - keep;
        out.push_str(&self.held[..shown]);
        self.held.drain(..shown);
        false
    }

    /// Appends what was held back, when the text ends without a stop string.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }
}

/// Length of the longest end of `text` that is a proper beginning of `stop`, in bytes; always at a character border.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest)
        .rev()
        .find(|n| {
            text.is_char_boundary(text.len() - n)
                && stop.as_bytes().starts_with(&text.as_bytes()[text.len() - n..])
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool, String) {
        let mut matcher = Matcher::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let (mut shown, mut stopped) = (Vec::new(), false);
        for piece in pieces {
            let mut out = String::new();
            stopped = matcher.push(piece, &mut out);
            shown.push(out);
            if stopped {
                break;
            }
        }
        let mut rest = String::new();
        if !stopped {
            matcher.finish(&mut rest);
        }
        (shown, stopped, rest)
    }

    #[test]
    fn a_stop_string_across_pieces_is_never_shown_in_part() {
        let (shown, stopped, _) = run(&["<|im_end|>"], &["Hi", "<|im", "_end|>", "X"]);
        assert_eq!((shown.concat().as_str(), stopped), ("Hi", true));
    }

    #[test]
    fn held_text_is_shown_as_soon_as_it_cannot_be_a_stop_string() {
        assert_eq!(run(&["abc"], &["a", "b", "x"]).0, ["", "", "abx"]);
        assert_eq!(run(&["aab"], &["aaa", "b"]), (vec!["a".into(), String::new()], true, String::new()));
    }

    #[test]
    fn held_text_is_not_lost_at_the_end() {
        assert_eq!(run(&["STOP"], &["go ST"]), (vec!["go ".into()], false, "ST".into()));
    }

    #[test]
    fn the_earliest_match_wins() {
        let (shown, stopped, _) = run(&["zz", "b"], &["aabzz"]);
        assert_eq!((shown.concat().as_str(), stopped), ("aa", true));
    }

    #[test]
    fn a_stop_string_inside_a_longer_one_cuts_at_the_same_place_however_the_text_is_cut() {
        for (stops, shown) in
            [(["b", "abc"], "a"), (["bc", "abc"], ""), (["abc", "bc"], ""), (["c", "b"], "a")]
        {
            for pieces in [&["abc"][..], &["ab", "c"], &["a", "bc"], &["a", "b", "c"]] {
                let (told, stopped, _) = run(&stops, pieces);
                assert_eq!((told.concat().as_str(), stopped), (shown, true), "{stops:?} in {pieces:?}");
            }
        }
    }

    #[test]
    fn every_split_shows_what_the_whole_text_shows() {
        let text = "ab<|e\u{e9}<|end|>tail";
        let borders: Vec<_> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
        for stop in ["<|end|>", "\u{e9}<", "nowhere", "b<|e\u{e9}<|end|>t"] {
            let expected = text.find(stop).map_or(text, |at| &text[..at]);
            for &a in &borders {
                for &b in borders.iter().filter(|b| **b >= a) {
                    let (shown, _, rest) = run(&[stop], &[&text[..a], &text[a..b], &text[b..]]);
                    assert_eq!(shown.concat() + &rest, expected, "{stop} split at {a} and {b}");
                }
            }
        }
    }
}

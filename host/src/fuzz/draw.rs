//! Values out of bytes: the same bytes give the same values, and few bytes give small ones.

/// What is left of the bytes. Drawing from none gives zeros.
pub(super) struct Draw<'a>(pub(super) &'a [u8]);

/// Few letters, so that strings of them often meet; of one, two, three and four bytes.
const LETTERS: [char; 8] = ['a', 'b', '<', '|', '\u{e9}', '\u{20ac}', '\u{fffd}', '\u{1f600}'];

impl<'a> Draw<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// At most so many bytes.
    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let n = self.below(most + 1).min(self.0.len());
        let (part, rest) = self.0.split_at(n);
        self.0 = rest;
        part
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// At most so many bytes as a text.
    pub(super) fn string(&mut self, most: usize) -> String {
        String::from_utf8_lossy(self.bytes(most)).into_owned()
    }

    /// As many of the letters as bytes were drawn.
    pub(super) fn letters(&mut self, most: usize) -> String {
        self.bytes(most).iter().map(|b| LETTERS[usize::from(*b) % LETTERS.len()]).collect()
    }
}

//! SentencePiece's BPE, as GGUF files of kind "llama" need it: vocabulary and scores, no merge list.
//!
//! Of all neighbours whose join is a token, the join with the best score happens first, the leftmost among equals, until
//! none is left. What is no token then becomes one token per byte. The tokenizers library cannot do this exactly: it ranks
//! pairs, so two ways to the same token get different ranks. Invariant: an encoded id is one of the vocabulary's; the work
//! is O(n log n) in the text.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// SentencePiece's visible space.
const SPACE: char = '\u{2581}';
/// Marks a symbol that was joined into its left neighbour.
const GONE: u32 = u32::MAX;

/// The encoder.
pub(super) struct Spm {
    tokens: HashMap<Box<str>, (u32, f32)>,
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
    prefix_space: bool,
    added: Added,
}

/// A row of the vocabulary, as the encoder sees it.
pub(super) enum Row<'a> {
    /// Text that may be built by joining.
    Normal { id: u32, text: &'a str, score: f32 },
    /// One byte.
    Byte { id: u32, byte: u8 },
    /// Text that is found before anything else.
    Added { id: u32, text: &'a str },
}

impl Spm {
    pub(super) fn new<'a>(
        rows: impl Iterator<Item = Row<'a>>,
        unknown: Option<u32>,
        prefix_space: bool,
    ) -> Self {
        let mut out = Self {
            tokens: HashMap::new(),
            bytes: Box::new([None; 256]),
            unknown,
            prefix_space,
            added: Added::default(),
        };
        for row in rows {
            match row {
                Row::Normal { id, text, score } => {
                    out.tokens.insert(text.into(), (id, score));
                }
                Row::Byte { id, byte } => out.bytes[usize::from(byte)] = Some(id),
                // Converters write spaces in added tokens either way.
                Row::Added { id, text } => out.added.insert(&text.replace(SPACE, " "), id),
            }
        }
        out
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (plain, found) = self.added.split(rest);
            self.encode_plain(plain, &mut out);
            rest = &rest[plain.len()..];
            if let Some((id, len)) = found {
                out.push(id);
                rest = &rest[len..];
            }
        }
        out
    }

    /// Text between added tokens. Each stretch gets its own prefix space, as llama.cpp does and the models expect.
    fn encode_plain(&self, plain: &str, out: &mut Vec<u32>) {
        if plain.is_empty() {
            return;
        }
        let mut text = String::with_capacity(plain.len() + SPACE.len_utf8());
        if self.prefix_space {
            text.push(SPACE);
        }
        text.extend(plain.chars().map(|c| if c == ' ' { SPACE } else { c }));
        Joiner::new(&self.tokens, &text).run(|symbol| self.emit(symbol, out));
    }

    fn emit(&self, symbol: &str, out: &mut Vec<u32>) {
        if let Some((id, _)) = self.tokens.get(symbol) {
            out.push(*id);
            return;
        }
        for byte in symbol.bytes() {
            match self.bytes[usize::from(byte)] {
                Some(id) => out.push(id),
                None => {
                    // One unknown token for the whole symbol.
                    out.extend(self.unknown);
                    return;
                }
            }
        }
    }
}

/// A stretch of the text; a doubly linked list over a vector.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    end: u32,
    prev: u32,
    next: u32,
}

/// A possible join of a symbol with its right neighbour.
struct Join {
    score: f32,
    left: u32,
    right: u32,
    /// Bytes of the joined text, by which an outdated entry is told.
    len: u32,
}

impl Ord for Join {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}
impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Join {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Join {}

struct Joiner<'a> {
    tokens: &'a HashMap<Box<str>, (u32, f32)>,
    text: &'a str,
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Join>,
}

impl<'a> Joiner<'a> {
    fn new(tokens: &'a HashMap<Box<str>, (u32, f32)>, text: &'a str) -> Self {
        let mut symbols = Vec::with_capacity(text.len());
        for (start, c) in text.char_indices() {
            let at = symbols.len() as u32;
            let (start, end) = (start as u32, (start + c.len_utf8()) as u32);
            symbols.push(Symbol { start, end, prev: at.wrapping_sub(1), next: at + 1 });
        }
        if let Some(last) = symbols.last_mut() {
            last.next = GONE;
        }
        Self { tokens, text, symbols, heap: BinaryHeap::new() }
    }

    fn run(mut self, mut emit: impl FnMut(&str)) {
        for left in 1..self.symbols.len() as u32 {
            self.propose(left - 1, left);
        }
        while let Some(join) = self.heap.pop() {
            let (left, right) = (self.symbols[join.left as usize], self.symbols[join.right as usize]);
            // Outdated: one of the two was joined with another in the meantime.
            if left.end != right.start || right.end - left.start != join.len {
                continue;
            }
            self.symbols[join.left as usize].end = right.end;
            self.symbols[join.left as usize].next = right.next;
            // Empty and out of place: no entry of the heap fits it any more.
            self.symbols[join.right as usize] = Symbol { start: GONE, end: GONE, prev: GONE, next: GONE };
            if right.next != GONE {
                self.symbols[right.next as usize].prev = join.left;
                self.propose(join.left, right.next);
            }
            if left.prev != GONE {
                self.propose(left.prev, join.left);
            }
        }
        for symbol in self.symbols.iter().filter(|symbol| symbol.start != GONE) {
            emit(&self.text[symbol.start as usize..symbol.end as usize]);
        }
    }

    fn propose(&mut self, left: u32, right: u32) {
        let (start, end) = (self.symbols[left as usize].start, self.symbols[right as usize].end);
        if let Some((_, score)) = self.tokens.get(&self.text[start as usize..end as usize]) {
            self.heap.push(Join { score: *score, left, right, len: end - start });
        }
    }
}

/// Added tokens as a tree over bytes: finds the first occurrence, and the longest there.
#[derive(Default)]
struct Added {
    /// (node, byte) → node; node 0 is the root.
    edges: HashMap<(u32, u8), u32>,
    ids: HashMap<u32, u32>,
    nodes: u32,
    first: Vec<u8>,
}

impl Added {
    fn insert(&mut self, text: &str, id: u32) {
        let Some(first) = text.bytes().next() else { return };
        if !self.first.contains(&first) {
            self.first.push(first);
        }
        let mut node = 0;
        for byte in text.bytes() {
            let nodes = &mut self.nodes;
            node = *self.edges.entry((node, byte)).or_insert_with(|| {
                *nodes += 1;
                *nodes
            });
        }
        self.ids.insert(node, id);
    }

    /// The text before the first added token, and that token with its length in bytes.
    fn split<'t>(&self, text: &'t str) -> (&'t str, Option<(u32, usize)>) {
        for (at, byte) in text.bytes().enumerate() {
            if self.first.contains(&byte)
                && let Some(found) = self.longest(&text.as_bytes()[at..])
            {
                return (&text[..at], Some(found));
            }
        }
        (text, None)
    }

    fn longest(&self, text: &[u8]) -> Option<(u32, usize)> {
        let (mut node, mut found) = (0, None);
        for (at, byte) in text.iter().enumerate() {
            match self.edges.get(&(node, *byte)) {
                Some(next) => node = *next,
                None => break,
            }
            if let Some(id) = self.ids.get(&node) {
                found = Some((*id, at + 1));
            }
        }
        found
    }
}

//! What waits to be sent of an answer: its texts as the engine gave them, and between them what is finished. A text gets its
//! frame only when it leaves: a frame is many times as long as a token, and made where it is sent it is made in memory that is
//! at hand, once, instead of being written on one core and read on another.
//!
//! What must hold: records leave whole and in their order. What counts as waiting is their length as they will leave, but for
//! characters that a frame writes longer.

use super::Framing;

/// In a record's head, beside its length: it is finished, and needs no frame.
const FINISHED: u32 = 1 << 31;
const HEAD: usize = size_of::<u32>();
/// What is finished is cut into records of this length, so that no part is much longer than asked. A text over it is better
/// finished at once: it has one frame, and cannot be cut.
pub const LONG: usize = 16 * 1024;

/// Records, of which the first may have been taken.
#[derive(Debug)]
pub struct Outbox {
    records: Vec<u8>,
    taken: usize,
    /// How long they will be.
    waits: usize,
    /// What a frame adds to a text.
    around: u32,
    /// Where the last record is a text without a frame that can grow, its place; else [`NOTHING`]. A stream's memory is cold with each
    /// token, so both are small.
    grows: u32,
}

/// No record that can grow.
const NOTHING: u32 = u32::MAX;

/// Records on their way.
#[derive(Debug, Default)]
pub struct Parcel {
    records: Vec<u8>,
    waits: usize,
}

impl Outbox {
    /// For texts that leave in such frames.
    pub fn new(framing: &dyn Framing) -> Outbox {
        let (before, after) = framing.around();
        let around = u32::try_from(before.len() + after.len()).unwrap_or(u32::MAX);
        Outbox { records: Vec::new(), taken: 0, waits: 0, around, grows: NOTHING }
    }

    /// Adds a text, whole characters, that gets its frame when it leaves.
    pub fn text(&mut self, text: &[u8]) {
        if self.around == 0 {
            return self.bare(text);
        }
        self.add(text);
        self.waits += self.around as usize;
    }

    fn add(&mut self, text: &[u8]) {
        self.records.reserve(HEAD + text.len());
        self.records.extend_from_slice(&told(0, text.len()));
        self.records.extend_from_slice(text);
        self.waits += text.len();
    }

    /// A text that nothing will stand around needs no record of its own, and a collected answer has as many as tokens.
    fn bare(&mut self, text: &[u8]) {
        // A record that leaves as nothing would look like the end.
        if text.is_empty() {
            return;
        }
        let head = self.grows as usize;
        if self.grows == NOTHING || self.records.len() - head >= LONG {
            self.grows = u32::try_from(self.records.len()).unwrap_or(NOTHING);
            return self.add(text);
        }
        self.records.extend_from_slice(text);
        self.waits += text.len();
        let length = self.records.len() - head - HEAD;
        self.records[head..head + HEAD].copy_from_slice(&told(0, length));
    }

    /// Adds what `write` appends.
    pub fn finished(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.grows = NOTHING;
        let head = self.records.len();
        let unfinished = Unfinished { records: &mut self.records, head };
        unfinished.records.extend_from_slice(&[0; HEAD]);
        write(unfinished.records);
        std::mem::forget(unfinished);
        let length = self.records.len() - head - HEAD;
        self.waits += length;
        if length == 0 || length > LONG {
            let whole = self.records.split_off(head);
            for part in whole[HEAD..].chunks(LONG) {
                self.records.extend_from_slice(&told(FINISHED, part.len()));
                self.records.extend_from_slice(part);
            }
            return;
        }
        self.records[head..head + HEAD].copy_from_slice(&told(FINISHED, length));
    }

    /// About how many bytes will leave.
    pub fn waits(&self) -> usize {
        self.waits
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.records.len() == self.taken
    }

    /// Takes everything, or about `most` bytes and one record at least.
    pub fn take(&mut self, most: usize) -> Parcel {
        self.grows = NOTHING;
        if self.waits <= most && self.taken == 0 {
            let records = std::mem::take(&mut self.records);
            return Parcel { records, waits: std::mem::take(&mut self.waits) };
        }
        let (mut end, mut waits) = (self.taken, 0);
        while waits < most
            && let Some((kind, record, next)) = record_at(&self.records, end)
        {
            waits += record.len() + if kind == FINISHED { 0 } else { self.around as usize };
            end = next;
        }
        let records = self.records[self.taken..end].to_vec();
        (self.taken, self.waits) = (end, self.waits - waits);
        // The memory of what was taken goes back once it is the larger half: each byte is then moved about once.
        if self.taken > self.records.len() / 2 {
            self.records.drain(..std::mem::take(&mut self.taken));
            self.records.shrink_to_fit();
        }
        Parcel { records, waits }
    }

    /// Gives everything to `put` in place. The memory stays for what comes next, if it is little.
    pub fn empty_into(&mut self, framing: &dyn Framing, put: &mut dyn FnMut(&[u8])) {
        write(&self.records[self.taken..], framing, put);
        self.clear();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if self.records.capacity() > LITTLE {
            self.records = Vec::new();
        } else {
            self.records.clear();
        }
        (self.taken, self.waits, self.grows) = (0, 0, NOTHING);
    }
}

/// A record that is being written. Where that fails halfway, by a panic, nothing of it stays: its head would tell of nothing.
struct Unfinished<'a> {
    records: &'a mut Vec<u8>,
    head: usize,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.records.truncate(self.head);
    }
}

/// The head of a record.
fn told(kind: u32, length: usize) -> [u8; HEAD] {
    // An answer is bounded far below this.
    (u32::try_from(length).unwrap_or(0) & !FINISHED | kind).to_le_bytes()
}

/// Memory that a stream may keep between two tokens.
const LITTLE: usize = 256;

/// Room for characters that are written longer, and for what follows behind the last of an answer.
const BEHIND: usize = 512;

impl Parcel {
    /// What it looks like on its way.
    pub fn open(self, framing: &dyn Framing) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.waits + BEHIND);
        write(&self.records, framing, |part| bytes.extend_from_slice(part));
        bytes
    }
}

fn write(records: &[u8], framing: &dyn Framing, mut put: impl FnMut(&[u8])) {
    let ((before, after), between) = (framing.around(), framing.between());
    let (mut at, mut behind_text) = (0, false);
    while let Some((kind, record, next)) = record_at(records, at) {
        let is_text = kind != FINISHED;
        match (behind_text, is_text) {
            (false, false) => {}
            (false, true) => put(before),
            (true, true) => put(between),
            (true, false) => put(after),
        }
        if is_text {
            put(&framing.within(record))
        } else {
            put(record)
        }
        (at, behind_text) = (next, is_text);
    }
    if behind_text {
        put(after);
    }
}

/// The record there: what it is, its bytes, and where the next begins.
fn record_at(records: &[u8], at: usize) -> Option<(u32, &[u8], usize)> {
    let (head, rest) = records.get(at..)?.split_first_chunk::<HEAD>()?;
    let told = u32::from_le_bytes(*head);
    let length = (told & !FINISHED) as usize;
    Some((told & FINISHED, rest.get(..length)?, at + HEAD + length))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::generate::Bare;

    /// Texts in brackets.
    struct Brackets;

    impl Framing for Brackets {
        fn around(&self) -> (&[u8], &[u8]) {
            (b"[", b"]")
        }

        fn between(&self) -> &[u8] {
            b"]["
        }

        fn within<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
            Cow::Borrowed(text)
        }
    }

    fn outbox(texts: &[&str]) -> Outbox {
        let mut outbox = Outbox::new(&Brackets);
        outbox.finished(|bytes| bytes.extend_from_slice(b"begin "));
        texts.iter().for_each(|text| outbox.text(text.as_bytes()));
        outbox.finished(|bytes| bytes.extend_from_slice(b" end"));
        outbox
    }

    fn opened(parcel: Parcel) -> String {
        String::from_utf8(parcel.open(&Brackets)).expect("text")
    }

    fn opened_bare(parcel: Parcel) -> String {
        String::from_utf8(parcel.open(&Bare)).expect("text")
    }

    #[test]
    fn texts_are_framed_as_they_leave_and_nothing_else_is() {
        let mut all = outbox(&["a", "", "bc"]);
        let whole = "begin [a][][bc] end";
        assert_eq!(all.waits(), whole.len());
        let mut put = Vec::new();
        outbox(&["a", "", "bc"]).empty_into(&Brackets, &mut |part| put.extend_from_slice(part));
        assert_eq!(put, whole.as_bytes());
        assert_eq!(opened(all.take(usize::MAX)), whole);
        assert!(all.is_empty() && all.waits() == 0 && opened(all.take(1)).is_empty());
    }

    #[test]
    fn parts_are_whole_records_and_all_of_them_come() {
        for most in 1..30 {
            let mut all = outbox(&["a", "bb", "ccc", "dddd"]);
            let (mut whole, mut waits) = (String::new(), all.waits());
            while !all.is_empty() {
                let part = opened(all.take(most));
                assert!(!part.is_empty() && part.len() < most + "[dddd]".len(), "{most}: {part}");
                waits -= part.len();
                assert_eq!(all.waits(), waits);
                whole += &part;
            }
            assert_eq!(whole, "begin [a][bb][ccc][dddd] end", "{most}");
        }
    }

    #[test]
    fn what_is_finished_leaves_in_parts_however_long_it_is() {
        let mut all = Outbox::new(&Bare);
        let whole: Vec<u8> = (0..10 * LONG + 7).map(|at| (at % 251) as u8).collect();
        all.finished(|bytes| bytes.extend_from_slice(&whole));
        assert_eq!(all.waits(), whole.len());
        let mut came = Vec::new();
        while !all.is_empty() {
            let part = all.take(2 * LONG).open(&Brackets);
            assert!(!part.is_empty() && part.len() <= 3 * LONG, "{}", part.len());
            came.extend_from_slice(&part);
        }
        assert!(came == whole && all.waits() == 0);
    }

    #[test]
    fn texts_without_a_frame_are_one_record_however_many_they_are() {
        let mut all = Outbox::new(&Bare);
        all.finished(|bytes| bytes.extend_from_slice(b"begin "));
        ["a", "", "bc", "d"].iter().for_each(|text| all.text(text.as_bytes()));
        assert_eq!(all.records.len(), 2 * HEAD + "begin abcd".len());
        all.finished(|bytes| bytes.extend_from_slice(b" end"));
        all.text(b"e");
        assert_eq!(all.waits(), "begin abcd ende".len());
        assert_eq!(opened_bare(all.take(8)), "begin abcd");
        all.text(b"f");
        assert_eq!(opened_bare(all.take(usize::MAX)), " endef");
        assert!(all.is_empty() && all.waits() == 0);
        let long = [b'x'; 1000];
        (0..100).for_each(|_| all.text(&long));
        let part = opened_bare(all.take(LONG));
        assert!(part.len() < 2 * LONG && !all.is_empty());
        assert_eq!(part.len() + opened_bare(all.take(usize::MAX)).len(), 100 * long.len());
    }

    #[test]
    fn what_fails_halfway_leaves_nothing_behind() {
        for framing in [&Bare as &dyn Framing, &Brackets] {
            let mut all = Outbox::new(framing);
            all.finished(|bytes| bytes.extend_from_slice(b"begin "));
            let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                all.finished(|bytes| {
                    bytes.extend_from_slice(b"half of it");
                    std::panic::panic_any("asked for");
                });
            }));
            assert!(failed.is_err());
            all.finished(|bytes| bytes.extend_from_slice(b"end"));
            assert_eq!(all.waits(), "begin end".len());
            assert_eq!(opened(all.take(usize::MAX)), "begin end");
        }
    }

    #[test]
    fn what_is_forgotten_is_gone_and_what_comes_then_is_whole() {
        let mut all = outbox(&["a", "b"]);
        assert_eq!(opened(all.take(1)), "begin ");
        all.clear();
        assert!(all.is_empty() && all.waits() == 0);
        all.text(b"c");
        assert_eq!(opened(all.take(usize::MAX)), "[c]");
    }
}

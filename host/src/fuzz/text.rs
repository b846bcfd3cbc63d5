//! The text of a generation against models that see all of it at once.

use super::draw::Draw;
use crate::generate::assemble::{Assembler, Detokenize, Progress};
use crate::generate::stop::Matcher;
use crate::generate::{Finish, More, Piece};
use crate::prompt::Text;
use crate::prompt::detok::{Detokenizer, Pushed};

/// Where the string begins that is complete first; of those that end together the one that begins first.
fn earliest(text: &str, stops: &[String]) -> Option<usize> {
    let sound = stops.iter().filter(|stop| !stop.is_empty());
    sound.filter_map(|stop| text.find(stop.as_str()).map(|at| (at + stop.len(), at))).min().map(|(_, at)| at)
}

/// Stop strings over pieces.
pub fn stops(data: &[u8]) {
    let mut draw = Draw(data);
    let stops: Vec<String> = (0..draw.below(5)).map(|_| draw.letters(6)).collect();
    let mut matcher = Matcher::new(stops.clone());
    let (mut whole, mut shown) = (String::new(), String::new());
    while !draw.is_empty() {
        let piece = draw.letters(7);
        whole.push_str(&piece);
        let stopped = matcher.push(&piece, &mut shown);
        let at = earliest(&whole, &stops);
        assert_eq!(stopped, at.is_some(), "{stops:?} in {whole:?}");
        if let Some(at) = at {
            assert_eq!(shown, whole[..at], "{stops:?} in {whole:?}");
            return;
        }
        let held = whole.strip_prefix(shown.as_str()).expect("what is shown is how the text begins");
        let begins = stops.iter().any(|stop| stop.len() > held.len() && stop.starts_with(held));
        assert!(held.is_empty() || begins, "{held:?} is held back for {stops:?}");
    }
    matcher.finish(&mut shown);
    assert_eq!(shown, whole);
}

struct Ids(Detokenizer);

impl Detokenize for Ids {
    fn push(&mut self, token: u32, out: &mut Vec<u8>) -> bool {
        self.0.push(token, out) != Pushed::Unknown
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(out);
    }
}

/// Token ids and bytes to characters, up to a stop string.
pub fn text(data: &[u8]) {
    let mut draw = Draw(data);
    let vocabulary = Text::bytes("").expect("PANIC: no template compiles");
    let stops: Vec<String> = (0..draw.below(3)).map(|_| draw.letters(4)).collect();
    let mut assembler = Assembler::new(Box::new(Ids(vocabulary.detokenizer())), stops.clone(), 0);
    let (mut bytes, mut shown, mut tokens) = (Vec::new(), String::new(), 0_usize);
    let mut stopped = false;
    while !draw.is_empty() && !stopped {
        let by_ids = draw.below(2) == 0;
        let part = draw.bytes(9);
        // Ids from 256 on are in no vocabulary of bytes: they give no text.
        let ids: Vec<u32> = part.iter().map(|b| u32::from(*b) + 256 * u32::from(*b == 7)).collect();
        let piece = if by_ids {
            Piece { tokens: &ids, bytes: &[], more: More::NONE }
        } else {
            Piece { tokens: &ids, bytes: part, more: More::NONE }
        };
        bytes.extend(part.iter().filter(|b| !by_ids || **b != 7));
        tokens += ids.len();
        let progress = assembler.push(piece, |text| shown.push_str(text.text));
        stopped = progress == Progress::StopString;
        assert!(stopped || progress == Progress::Open);
    }
    let whole = String::from_utf8_lossy(&bytes);
    let at = earliest(&whole, &stops);
    if stopped {
        let at = at.expect("only a stop string stops");
        assert_eq!(shown, whole[..at], "{stops:?} in {whole:?}");
        assert!(usize::try_from(assembler.usage().completion).is_ok_and(|n| n <= tokens));
        return;
    }
    let more = More { finish: Some(Finish::Stop), ..More::NONE.clone() };
    let end = Piece { tokens: &[], bytes: &[], more: &more };
    let progress = assembler.push(end, |text| shown.push_str(text.text));
    assert_eq!(progress, Progress::Ended(Finish::Stop));
    assert_eq!(usize::try_from(assembler.usage().completion), Ok(tokens));
    // Half a character at the end is a mark only now, and may complete a stop string.
    let expected = at.map_or(&*whole, |at| &whole[..at]);
    assert_eq!(shown, expected, "{stops:?} in {whole:?}");
}

//! The place of a task in its script, which it may play several times.

use crate::script::{Item, MAX_ITEMS, Script, Token};

/// A script, how often it is played, and what comes next.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Stands for the first item, the first time.
    opening: Option<Item>,
    script: Script,
    at: usize,
    laps: u64,
}

impl Plan {
    /// Plays `script` `laps` times.
    pub(crate) fn new(opening: Option<Item>, script: Script, laps: u64) -> Plan {
        Plan { opening, script, at: 0, laps }
    }

    /// What comes next; `None` at the end.
    pub(crate) fn peek(&self) -> Option<&Item> {
        let item = self.script.0.get(self.at).filter(|_| self.laps > 0)?;
        Some(self.opening.as_ref().unwrap_or(item))
    }

    /// The id and the bytes of the token that comes next, where it comes alone and brings its bytes.
    pub(crate) fn word(&self) -> Option<(u32, &[u8])> {
        match self.peek()? {
            Item::Tokens(tokens) => match &tokens[..] {
                [Token { id, bytes: Some(bytes) }] => Some((*id, bytes)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Goes on to the item after this one.
    pub(crate) fn pass(&mut self) {
        self.opening = None;
        self.at += 1;
        if self.at >= self.script.0.len() {
            self.at = 0;
            self.laps = self.laps.saturating_sub(1);
        }
    }

    /// Milliseconds of the delays that come next, which are passed.
    pub(crate) fn pass_delays(&mut self) -> u64 {
        let mut sum = 0_u64;
        while let Some(Item::Delay(ms)) = self.peek() {
            sum = sum.saturating_add(*ms);
            self.pass();
        }
        sum
    }

    /// All tokens up to the first item that is none, taken out.
    pub(crate) fn take_words(&mut self) -> Vec<Token> {
        let mut words = Vec::new();
        while let Some(Item::Tokens(tokens)) = self.peek().filter(|_| words.len() < MAX_ITEMS) {
            words.extend_from_slice(tokens);
            self.pass();
        }
        words
    }

    /// Begins again after the end; false for a script that would never give a token.
    pub(crate) fn again(&mut self) -> bool {
        let gives = |item: &Item| matches!(item, Item::Tokens(tokens) if !tokens.is_empty());
        let can = self.script.0.iter().any(gives);
        if can {
            (self.at, self.laps) = (0, 1);
        }
        can
    }

    /// Milliseconds of all delays, and the number of the other items, of all laps.
    pub(crate) fn length(&self) -> (u64, u64) {
        let (ms, items) = self.script.length();
        (ms.saturating_mul(self.laps), items.saturating_mul(self.laps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Item {
        Item::Tokens(vec![Token::of(text)])
    }

    #[test]
    fn laps_begin_with_the_opening_once() {
        let script = Script(vec![item(" a"), item(" b")].into());
        let mut plan = Plan::new(Some(item("a")), script, 2);
        for expected in ["a", " b", " a", " b"] {
            assert_eq!(plan.peek(), Some(&item(expected)));
            plan.pass();
        }
        assert_eq!(plan.peek(), None);
        assert!(plan.again());
        assert_eq!(plan.peek(), Some(&item(" a")));
    }

    #[test]
    fn a_script_without_tokens_does_not_begin_again() {
        let mut plan = Plan::new(None, Script(vec![Item::Delay(3), Item::Delay(4)].into()), 1);
        assert_eq!(plan.pass_delays(), 7);
        assert_eq!(plan.peek(), None);
        assert!(!plan.again());
        assert_eq!(Plan::new(None, Script(Vec::new().into()), 5).peek(), None);
    }
}

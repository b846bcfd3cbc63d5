//! Eight integers of 4 bits in a word of 32, the first in the lowest bits.

/// Where AWQ keeps each of eight neighbours.
pub(super) const AWQ: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// All integers of some words, one a byte.
pub(super) fn nibbles(words: &[u8]) -> Vec<u8> {
    words.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect()
}

/// The integer in a place, 0 to 7, of a word.
pub(super) fn nibble(words: &[u8], word: usize, place: usize) -> u8 {
    words[word * 4 + place / 2] >> (4 * (place % 2)) & 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_eight_is_in_the_lowest_bits() {
        let word = 0x8765_4321u32.to_le_bytes();
        assert_eq!(nibbles(&word), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((0..8).map(|place| nibble(&word, 0, place)).collect::<Vec<_>>(), nibbles(&word));
        // Its packers write neighbours 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on.
        let packed = [0, 2, 4, 6, 1, 3, 5, 7];
        assert!((0..8).all(|at| packed[AWQ[at]] == at));
    }
}

//! The prefix index: which block holds the keys and values of which text.
//!
//! A block is known by the hash of everything up to its end: its scope, the blocks before it, its tokens. A hash only says
//! where to look: a hit is believed when the block before it is the one just found and its own tokens (and, at the
//! beginning, the scope) are equal. So two texts of one hash cost a hit and never a wrong answer.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::Arc;

use crate::blocks::Block;
use crate::entry::Scope;

#[cfg(test)]
mod tests;

pub(crate) struct Index {
    by_hash: HashMap<u64, Block, BuildHasherDefault<DefaultHasher>>,
    /// By block.
    nodes: Vec<Option<Node>>,
    /// By block and position.
    tokens: Vec<u32>,
    block_size: usize,
}

#[derive(Clone)]
struct Node {
    hash: u64,
    parent: Option<Block>,
    scope: Arc<Scope>,
}

/// A whole block of some sequence.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) hash: u64,
    /// The indexed block before it; none at the beginning.
    pub(crate) parent: Option<Block>,
    pub(crate) scope: &'a Arc<Scope>,
    pub(crate) tokens: &'a [u32],
}

/// What the index says about a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Block(Block),
    /// Another text has this hash.
    Other,
}

/// Hash of a block behind the one of hash `parent`.
pub(crate) fn hash(parent: Option<u64>, scope: &Scope, tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match parent {
        Some(parent) => hasher.write_u64(parent),
        None => std::hash::Hash::hash(scope, &mut hasher),
    }
    for token in tokens {
        hasher.write_u32(*token);
    }
    hasher.finish()
}

impl Index {
    pub(crate) fn new(blocks: usize, block_size: usize) -> Self {
        Index {
            by_hash: HashMap::with_capacity_and_hasher(blocks, BuildHasherDefault::default()),
            nodes: vec![None; blocks],
            tokens: vec![0; blocks * block_size],
            block_size,
        }
    }

    pub(crate) fn names(&self, block: Block) -> bool {
        self.nodes[block as usize].is_some()
    }

    pub(crate) fn find(&self, text: Text<'_>) -> Found {
        let Some(block) = self.by_hash.get(&text.hash).copied() else { return Found::Nothing };
        let Some(node) = &self.nodes[block as usize] else { return Found::Nothing };
        let same_place = node.parent == text.parent
            && (text.parent.is_some() || Arc::ptr_eq(&node.scope, text.scope) || node.scope == *text.scope);
        let at = block as usize * self.block_size;
        if same_place && self.tokens[at..at + self.block_size] == *text.tokens {
            Found::Block(block)
        } else {
            Found::Other
        }
    }

    /// Names a block whose text [`Index::find`] did not find.
    pub(crate) fn insert(&mut self, block: Block, text: Text<'_>) {
        let at = block as usize * self.block_size;
        self.tokens[at..at + self.block_size].copy_from_slice(text.tokens);
        self.nodes[block as usize] =
            Some(Node { hash: text.hash, parent: text.parent, scope: text.scope.clone() });
        let before = self.by_hash.insert(text.hash, block);
        debug_assert_eq!(before, None, "a hash names one block");
    }

    pub(crate) fn remove(&mut self, block: Block) {
        if let Some(node) = self.nodes[block as usize].take() {
            self.by_hash.remove(&node.hash);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_hash.clear();
        self.nodes.fill(None);
    }

    /// Hash, block, parent and tokens of everything it names.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(u64, Block, Option<Block>, Vec<u32>)> {
        assert_eq!(self.by_hash.len(), self.nodes.iter().flatten().count());
        let one = |(hash, block): (&u64, &Block)| {
            let node = self.nodes[*block as usize].as_ref().unwrap();
            assert_eq!(node.hash, *hash);
            let at = *block as usize * self.block_size;
            (*hash, *block, node.parent, self.tokens[at..at + self.block_size].to_vec())
        };
        self.by_hash.iter().map(one).collect()
    }
}

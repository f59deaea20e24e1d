//! A set of byte strings, walked one byte at a time.
//!
//! The strings are sorted once; then the children of a node are a range of nodes that follow each other, so a
//! node is twelve bytes and a step is a look at the bytes that lead to its children.

use std::collections::VecDeque;
use std::ops::Range;

use crate::Error;
use crate::merge::NO_TOKEN;

/// Longest token, in bytes, of the models that walk a trie: it bounds the work for each byte of a text.
const LONGEST: usize = 1024;

#[derive(Debug)]
struct Node {
    /// Children are the nodes from here on.
    first: u32,
    children: u32,
    /// The token that ends here, or `NO_TOKEN`.
    id: u32,
}

#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    /// The byte that leads to each node.
    labels: Vec<u8>,
    /// The root's children by byte: a quarter of all steps.
    roots: Box<[Option<u32>; 256]>,
}

impl Trie {
    /// # Errors
    /// [`Error::TokenLength`] for a token over 1024 bytes, [`Error::Duplicate`].
    pub fn new<'a>(tokens: impl Iterator<Item = (u32, &'a [u8])>) -> Result<Self, Error> {
        let mut sorted: Vec<(&[u8], u32)> =
            tokens.filter(|(_, piece)| !piece.is_empty()).map(|(id, piece)| (piece, id)).collect();
        if let Some((piece, id)) = sorted.iter().find(|(piece, _)| piece.len() > LONGEST) {
            return Err(Error::TokenLength { id: *id, bytes: piece.len(), most: LONGEST });
        }
        sorted.sort_unstable();
        if let Some([(piece, first), (_, second)]) =
            sorted.array_windows().find(|[first, second]| first.0 == second.0)
        {
            let text = String::from_utf8_lossy(piece).into_owned();
            return Err(Error::Duplicate { text, first: *first, second: *second });
        }
        let mut trie = Self { nodes: Vec::new(), labels: Vec::new(), roots: Box::new([None; 256]) };
        trie.push(0);
        // The strings below each node that is yet to get its children, and how much of them leads there.
        let mut queue: VecDeque<(Range<usize>, usize)> = VecDeque::from([(0..sorted.len(), 0)]);
        let mut node = 0;
        while let Some((mut below, depth)) = queue.pop_front() {
            let first = trie.nodes.len();
            let mut id = NO_TOKEN;
            if let Some((piece, token)) = sorted.get(below.start)
                && piece.len() == depth
            {
                id = *token;
                below.start += 1;
            }
            while !below.is_empty() {
                let strings = sorted.get(below.clone()).unwrap_or_default();
                let Some(&label) = strings.first().and_then(|(piece, _)| piece.get(depth)) else { break };
                let same = |piece: &[u8]| piece.get(depth).is_none_or(|&byte| byte <= label);
                let count = strings.partition_point(|(piece, _)| same(piece));
                queue.push_back((below.start..below.start + count, depth + 1));
                trie.push(label);
                below.start += count;
            }
            let children = trie.nodes.len() - first;
            if let Some(node) = trie.nodes.get_mut(node) {
                *node = Node { first: first as u32, children: children as u32, id };
            }
            node += 1;
        }
        for byte in 0..=255u8 {
            trie.roots[usize::from(byte)] = trie.search(0, byte);
        }
        Ok(trie)
    }

    fn push(&mut self, label: u8) {
        self.nodes.push(Node { first: 0, children: 0, id: NO_TOKEN });
        self.labels.push(label);
    }

    fn search(&self, node: u32, byte: u8) -> Option<u32> {
        let node = self.nodes.get(node as usize)?;
        let first = node.first as usize;
        let labels = self.labels.get(first..first + node.children as usize)?;
        let at = if labels.len() <= 8 {
            labels.iter().position(|&label| label == byte)?
        } else {
            labels.binary_search(&byte).ok()?
        };
        Some(node.first + at as u32)
    }

    /// Gives the length and id of each token that `text` begins with, shortest first.
    pub fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = Some(0);
        text.iter()
            .enumerate()
            .map_while(move |(at, &byte)| {
                node = match at {
                    0 => *self.roots.get(usize::from(byte))?,
                    _ => self.search(node?, byte),
                };
                let id = self.nodes.get(node? as usize)?.id;
                Some((at + 1, id))
            })
            .filter(|&(_, id)| id != NO_TOKEN)
    }

    /// The longest token that `text` begins with: its length and id.
    pub fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        self.prefixes(text).last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_search_finds(
            tokens in proptest::collection::btree_set(proptest::collection::vec(0u8..4, 1..6), 0..40),
            text in proptest::collection::vec(0u8..4, 0..10),
        ) {
            let trie = Trie::new((0u32..).zip(tokens.iter().map(Vec::as_slice))).unwrap();
            let mut wanted: Vec<(usize, u32)> = (0u32..)
                .zip(&tokens)
                .filter(|(_, token)| text.starts_with(token))
                .map(|(id, token)| (token.len(), id))
                .collect();
            wanted.sort_unstable();
            prop_assert_eq!(trie.longest(&text), wanted.last().copied());
            prop_assert_eq!(trie.prefixes(&text).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn tokens_are_bounded_and_differ() {
        let long = vec![0; LONGEST + 1];
        assert!(matches!(Trie::new([(3, &long[..])].into_iter()), Err(Error::TokenLength { id: 3, .. })));
        let twice = [(1, &b"a"[..]), (2, b"a")];
        assert!(matches!(Trie::new(twice.into_iter()), Err(Error::Duplicate { first: 1, second: 2, .. })));
    }
}

//! The loop that BPE and SentencePiece share: join the best pair of neighbours until no pair can be joined.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Id of a symbol that is no token.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

/// A run of the text that is, or may become, one token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// Byte offsets into the text.
    pub start: usize,
    pub end: usize,
    pub id: u32,
}

impl Symbol {
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Up to this many symbols a scan over all pairs beats a heap: most words are shorter.
const SCAN: usize = 24;

/// Joins neighbours in `symbols` until `pair` gives None for each. `pair` gives a priority (lowest is joined
/// first, the leftmost among equals) and the id of the joined token.
///
/// Up to `SCAN` symbols this is quadratic in their number, above it n log n.
pub(crate) fn merge(symbols: &mut Vec<Symbol>, pair: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>) {
    if symbols.len() <= SCAN { scan(symbols, pair) } else { heap(symbols, pair) }
}

fn scan(symbols: &mut Vec<Symbol>, pair: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>) {
    // Priorities of the pairs (i, i + 1), and what they give.
    let mut pairs = [None; SCAN];
    let look = |symbols: &[Symbol], i: usize| match symbols.get(i..i + 2) {
        Some(&[left, right]) => pair(left, right),
        _ => None,
    };
    for (i, slot) in pairs.iter_mut().enumerate().take(symbols.len()) {
        *slot = look(symbols, i);
    }
    loop {
        let live = pairs.iter().take(symbols.len()).enumerate();
        let best = live.filter_map(|(i, pair)| pair.map(|(priority, id)| (priority, i, id))).min();
        let Some((_, i, id)) = best else { return };
        let end = symbols.remove(i + 1).end;
        if let Some(left) = symbols.get_mut(i) {
            *left = Symbol { end, id, ..*left };
        }
        // The pairs behind the joined one move down with their symbols.
        pairs.copy_within(i + 2.., i + 1);
        if let Some(slot) = pairs.get_mut(i) {
            *slot = look(symbols, i);
        }
        if let Some(before) = i.checked_sub(1)
            && let Some(slot) = pairs.get_mut(before)
        {
            *slot = look(symbols, before);
        }
    }
}

/// A pair that could be joined when it was found. It still can where both symbols end where they did.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: u32,
    left: usize,
    middle: usize,
    end: usize,
    id: u32,
}

fn heap(symbols: &mut Vec<Symbol>, pair: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>) {
    // A symbol that was joined to its left has `end` 0. `next` and `before` skip those.
    let count = symbols.len();
    let mut next: Vec<usize> = (1..=count).collect();
    let mut before: Vec<usize> = (0..count).map(|i| i.wrapping_sub(1)).collect();
    let mut queue = BinaryHeap::with_capacity(count);
    let find = |symbols: &[Symbol], left: usize, right: usize| {
        let (&a, &b) = (symbols.get(left)?, symbols.get(right)?);
        let (priority, id) = pair(a, b)?;
        Some(Reverse(Candidate { priority, left, middle: a.end, end: b.end, id }))
    };
    queue.extend((1..count).filter_map(|right| find(symbols, right - 1, right)));
    while let Some(Reverse(best)) = queue.pop() {
        let left = best.left;
        let Some(&right) = next.get(left) else { continue };
        let (Some(a), Some(b)) = (symbols.get(left), symbols.get(right)) else { continue };
        if a.end != best.middle || b.end != best.end {
            continue;
        }
        let after = next.get(right).copied().unwrap_or(count);
        if let Some(symbol) = symbols.get_mut(right) {
            symbol.end = 0;
        }
        if let Some(symbol) = symbols.get_mut(left) {
            *symbol = Symbol { end: best.end, id: best.id, ..*symbol };
        }
        if let Some(slot) = next.get_mut(left) {
            *slot = after;
        }
        if let Some(slot) = before.get_mut(after) {
            *slot = best.left;
        }
        let previous = before.get(left).copied().unwrap_or(usize::MAX);
        queue.extend(find(symbols, previous, best.left));
        queue.extend(find(symbols, best.left, after));
    }
    symbols.retain(|symbol| symbol.end != 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Both ways give the same, whatever the priorities: here a hash of the two ids.
        #[test]
        fn heap_is_scan(ids in proptest::collection::vec(0u32..6, 2..=SCAN), seed: u32) {
            let start: Vec<Symbol> = ids.iter().zip(0usize..).map(|(&id, i)| Symbol { start: i, end: i + 1, id }).collect();
            let pair = |a: Symbol, b: Symbol| {
                let hash = (a.id.wrapping_mul(31) ^ b.id.wrapping_mul(17) ^ seed).wrapping_mul(0x9E37_79B1) >> 16;
                (!hash.is_multiple_of(3)).then_some((hash % 7, hash % 6))
            };
            let (mut by_scan, mut by_heap) = (start.clone(), start);
            scan(&mut by_scan, pair);
            heap(&mut by_heap, pair);
            let seen = |s: &[Symbol]| s.iter().map(|s| (s.start, s.end, s.id)).collect::<Vec<_>>();
            prop_assert_eq!(seen(&by_scan), seen(&by_heap));
        }
    }
}

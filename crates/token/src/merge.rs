//! The loop that BPE and SentencePiece share: join the best pair of neighbours until no pair can be joined.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use rustc_hash::FxHashMap;

/// Id of a symbol that is no token.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

/// A run of a word that is, or may become, one token. Words are shorter than 4 GiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// Byte offsets into the word.
    pub start: u32,
    pub end: u32,
    pub id: u32,
}

impl Symbol {
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// For each token, whether joining the parts of its own text gives it: found once, when a word first is its text.
/// Most words of most texts are one token, so that joining them again would be most of the work.
#[derive(Debug)]
pub(crate) struct Settled(Box<[AtomicU8]>);

const NOT_KNOWN: u8 = 0;
const SETTLED: u8 = 1;
const OTHERWISE: u8 = 2;

impl Settled {
    pub fn new(tokens: usize) -> Self {
        Self((0..tokens).map(|_| AtomicU8::new(NOT_KNOWN)).collect())
    }

    /// None: not known.
    pub fn is(&self, id: u32) -> Option<bool> {
        match self.0.get(id as usize)?.load(Ordering::Relaxed) {
            NOT_KNOWN => None,
            known => Some(known == SETTLED),
        }
    }

    /// What is set for a token is always the same, so it does not matter which thread is first.
    pub fn set(&self, id: u32, settled: bool) {
        if let Some(slot) = self.0.get(id as usize) {
            slot.store(if settled { SETTLED } else { OTHERWISE }, Ordering::Relaxed);
        }
    }
}

/// Up to this many symbols a scan over all pairs beats a heap: most words are shorter.
const SCAN: usize = 24;
/// Up to this many symbols a heap fits a processor's caches, and beats lists of equals.
const HEAP: usize = 4096;

/// Joins neighbours in `symbols` until `pair` gives None for each. `pair` gives a priority (lowest is joined
/// first, the leftmost among equals) and the id of the joined token.
///
/// Up to `SCAN` symbols this is quadratic in their number, above it n log n at worst.
pub(crate) fn merge(symbols: &mut Vec<Symbol>, pair: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>) {
    match symbols.len() {
        count if count <= SCAN => scan(symbols, pair),
        count if count <= HEAP => heap(symbols, pair),
        _ => lists(symbols, pair),
    }
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

/// The symbols as a list that shrinks. One that was joined to its left has `end` 0, and is skipped.
struct Chain<'a> {
    symbols: &'a mut Vec<Symbol>,
    next: Vec<u32>,
    before: Vec<u32>,
}

/// A pair that could be joined when it was found. It still can where the symbol behind `left` ends where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    left: u32,
    end: u32,
    id: u32,
}

impl<'a> Chain<'a> {
    fn new(symbols: &'a mut Vec<Symbol>) -> Self {
        let count = symbols.len() as u32;
        Self { symbols, next: (1..=count).collect(), before: (0..count).map(|i| i.wrapping_sub(1)).collect() }
    }

    fn get(&self, at: u32) -> Option<Symbol> {
        self.symbols.get(at as usize).copied()
    }

    /// The pair of `left` and the symbol behind it, with its priority.
    fn candidate(
        &self,
        left: u32,
        pair: &impl Fn(Symbol, Symbol) -> Option<(u32, u32)>,
    ) -> Option<(u32, Candidate)> {
        let right = self.get(*self.next.get(left as usize)?)?;
        let (priority, id) = pair(self.get(left)?, right)?;
        Some((priority, Candidate { left, end: right.end, id }))
    }

    /// Joins a pair. Gives the symbol before it, if it could still be joined.
    fn join(&mut self, pair: Candidate) -> Option<u32> {
        let left = pair.left as usize;
        let right = *self.next.get(left)? as usize;
        let (a, b) = (self.symbols.get(left)?, self.symbols.get(right)?);
        if a.end == 0 || b.end != pair.end {
            return None;
        }
        let after = *self.next.get(right)?;
        if let Some(symbol) = self.symbols.get_mut(right) {
            symbol.end = 0;
        }
        if let Some(symbol) = self.symbols.get_mut(left) {
            *symbol = Symbol { end: pair.end, id: pair.id, ..*symbol };
        }
        if let Some(slot) = self.next.get_mut(left) {
            *slot = after;
        }
        if let Some(slot) = self.before.get_mut(after as usize) {
            *slot = pair.left;
        }
        self.before.get(left).copied()
    }

    fn finish(self) {
        self.symbols.retain(|symbol| symbol.end != 0);
    }
}

fn heap(symbols: &mut Vec<Symbol>, pair: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>) {
    let count = symbols.len() as u32;
    let mut chain = Chain::new(symbols);
    let mut queue = BinaryHeap::with_capacity(count as usize);
    queue.extend((0..count).filter_map(|left| chain.candidate(left, &pair).map(Reverse)));
    while let Some(Reverse((_, best))) = queue.pop() {
        if let Some(before) = chain.join(best) {
            let new = [before, best.left].into_iter();
            queue.extend(new.filter_map(|left| chain.candidate(left, &pair).map(Reverse)));
        }
    }
    chain.finish();
}

/// Pairs by priority, and the priorities in order.
#[derive(Default)]
struct Lists {
    lists: FxHashMap<u32, Vec<Candidate>>,
    order: BinaryHeap<Reverse<u32>>,
}

impl Lists {
    fn put(&mut self, (priority, candidate): (u32, Candidate)) {
        let list = self.lists.entry(priority).or_default();
        if list.is_empty() {
            self.order.push(Reverse(priority));
        }
        list.push(candidate);
    }

    fn take(&mut self) -> Option<(u32, Vec<Candidate>)> {
        let Reverse(priority) = self.order.pop()?;
        Some((priority, self.lists.remove(&priority).unwrap_or_default()))
    }
}

/// As [`heap`], with a list for each priority, whose pairs are joined in one pass. What a pass finds belongs to later
/// ones nearly always, since a token is made before it is a part of others; the rest goes through a heap.
fn lists(symbols: &mut Vec<Symbol>, pair: impl Fn(Symbol, Symbol) -> Option<(u32, u32)>) {
    let count = symbols.len() as u32;
    let mut chain = Chain::new(symbols);
    let mut later = Lists::default();
    let mut sooner: BinaryHeap<Reverse<(u32, Candidate)>> = BinaryHeap::new();
    for left in 0..count {
        if let Some(found) = chain.candidate(left, &pair) {
            later.put(found);
        }
    }
    while let Some((now, mut list)) = later.take() {
        // Runs that ascend, one for each pass that found some.
        list.sort();
        let mut list = list.into_iter().peekable();
        loop {
            let is_sooner = match (sooner.peek(), list.peek()) {
                (Some(Reverse(soon)), Some(first)) => *soon < (now, *first),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let best = if is_sooner { sooner.pop().map(|Reverse((_, best))| best) } else { list.next() };
            let Some(best) = best else { break };
            let Some(before) = chain.join(best) else { continue };
            for left in [before, best.left] {
                match chain.candidate(left, &pair) {
                    Some(found) if found.0 <= now => sooner.push(Reverse(found)),
                    Some(found) => later.put(found),
                    None => {}
                }
            }
        }
    }
    chain.finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Joined = Vec<(u32, u32, u32)>;

    fn joined(ids: &[u32], way: impl FnOnce(&mut Vec<Symbol>)) -> Joined {
        let mut symbols: Vec<Symbol> =
            (0u32..).zip(ids).map(|(i, &id)| Symbol { start: i, end: i + 1, id }).collect();
        way(&mut symbols);
        symbols.iter().map(|s| (s.start, s.end, s.id)).collect()
    }

    proptest! {
        /// All ways give the same, whatever the priorities: here a hash of the two ids.
        #[test]
        fn all_ways_are_one(
            short in proptest::collection::vec(0u32..6, 2..=SCAN),
            long in proptest::collection::vec(0u32..6, 2..1000),
            seed: u32,
        ) {
            let pair = |a: Symbol, b: Symbol| {
                let hash = (a.id.wrapping_mul(31) ^ b.id.wrapping_mul(17) ^ seed).wrapping_mul(0x9E37_79B1) >> 16;
                (!hash.is_multiple_of(3)).then_some((hash % 7, hash % 6))
            };
            let by_heap = joined(&short, |symbols| heap(symbols, pair));
            prop_assert_eq!(&joined(&short, |symbols| scan(symbols, pair)), &by_heap);
            prop_assert_eq!(&joined(&short, |symbols| lists(symbols, pair)), &by_heap);
            let by_heap = joined(&long, |symbols| heap(symbols, pair));
            prop_assert_eq!(&joined(&long, |symbols| lists(symbols, pair)), &by_heap);
        }
    }
}

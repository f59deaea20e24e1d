//! Expressions that cut text, run in time that is linear in the text.
//!
//! An expression is made into an automaton whose states are found as texts need them. It reads the text byte by
//! byte from where a match may begin and stops where no alternative can go on, so nothing is read twice but what
//! a longer alternative tried in vain. That is little for every expression in use. An expression from a file may be
//! built to make it much: then [`Error::Slow`] ends it.
//!
//! Automata have no look-ahead. The one that tokenizers use, "blanks but for the last one before a word", is
//! [`Blanks`]: the rest of the expression is the automaton's first pattern and `\s+` its second, so that it is known
//! which of them matched, and a run of blanks is shortened behind the match.

use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

use super::expression::{Blanks, Expression};
use crate::Error;

/// Bytes that may be read for each byte of a text, and for a text at all.
const READS: usize = 32;
const READS_FREE: usize = 4096;
/// Bytes that an automaton may take before its states are known: the expressions in use take under a tenth.
const SIZE: usize = 16 << 20;
/// Runs of blanks that Jais 2 keeps together, longest first; then two, then one.
const POWERS: [usize; 8] = [512, 256, 128, 64, 32, 16, 8, 4];

type NewCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// An expression ready to run. Any number of threads can use it.
pub(crate) struct Pattern {
    dfa: DFA,
    start: start::Config,
    /// What each thread has found of the automaton.
    caches: Pool<Cache, NewCache>,
    /// Bytes that a match can begin with.
    begins: [bool; 256],
    blanks: Blanks,
    source: String,
}

/// A match: where it ends, and whether it is blanks by the last alternative.
struct Match {
    end: usize,
    blank: bool,
}

impl Pattern {
    /// Takes about a millisecond for each class of characters.
    ///
    /// # Errors
    /// [`Error::Expression`] where the automaton would be too large, or would match nothing at all somewhere.
    pub fn new(expression: &Expression) -> Result<Self, Error> {
        let fault = |what: &dyn fmt::Display| Error::Expression {
            expression: expression.source.clone(),
            what: what.to_string(),
        };
        let mut patterns = vec![expression.automaton.as_str()];
        if expression.blanks != Blanks::Plain {
            patterns.push(r"\s+");
        }
        let dfa = DFA::builder()
            .configure(DFA::config().match_kind(MatchKind::LeftmostFirst).skip_cache_capacity_check(true))
            .thompson(thompson::Config::new().nfa_size_limit(Some(SIZE)))
            .build_many(&patterns)
            .map_err(|e| fault(&e))?;
        let start = start::Config::new().anchored(Anchored::Yes);
        let mut cache = dfa.create_cache();
        let mut begins = [false; 256];
        for (byte, begins) in (0..=255u8).zip(&mut begins) {
            let state = dfa.start_state(&mut cache, &start).map_err(|e| fault(&e))?;
            *begins = !dfa.next_state(&mut cache, state, byte).map_err(|e| fault(&e))?.is_dead();
        }
        let state = dfa.start_state(&mut cache, &start).map_err(|e| fault(&e))?;
        if dfa.next_eoi_state(&mut cache, state).map_err(|e| fault(&e))?.is_match() {
            return Err(fault(&"it matches between two characters"));
        }
        let for_caches = dfa.clone();
        let new_cache: NewCache = Box::new(move || for_caches.create_cache());
        let (blanks, source) = (expression.blanks, expression.source.clone());
        Ok(Self { dfa, start, caches: Pool::new(new_cache), begins, blanks, source })
    }

    /// Gives the matches in `text` and, with `false`, what lies between them: ranges that follow each other.
    pub fn each(
        &self,
        text: &str,
        each: &mut dyn FnMut(Range<usize>, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let bytes = text.as_bytes();
        let mut cache = self.caches.get();
        let mut reads = bytes.len().saturating_mul(READS).saturating_add(READS_FREE);
        let (mut done, mut at) = (0, 0);
        while let Some(&byte) = bytes.get(at) {
            // Behind the first byte of a character, nothing begins.
            if !self.begins[usize::from(byte)] {
                at += 1;
                continue;
            }
            let Some(found) = self.at(&mut cache, bytes, at, &mut reads)? else {
                at += 1;
                continue;
            };
            if done < at {
                each(done..at, false)?;
            }
            at = if found.blank {
                self.blanks(text, at..found.end, each)?
            } else {
                each(at..found.end, true)?;
                found.end
            };
            done = at;
        }
        if done < bytes.len() { each(done..bytes.len(), false) } else { Ok(()) }
    }

    /// Whether a match begins where `text` does.
    pub fn begins(&self, text: &str) -> Result<bool, Error> {
        let mut reads = READS_FREE.saturating_add(text.len());
        Ok(self.at(&mut self.caches.get(), text.as_bytes(), 0, &mut reads)?.is_some())
    }

    /// The match that begins at byte `at`.
    fn at(
        &self,
        cache: &mut Cache,
        text: &[u8],
        at: usize,
        reads: &mut usize,
    ) -> Result<Option<Match>, Error> {
        let fault =
            |e: &dyn fmt::Display| Error::Expression { expression: self.source.clone(), what: e.to_string() };
        let blank = |pattern: regex_automata::PatternID| pattern.as_usize() == 1;
        let mut state = self.dfa.start_state(cache, &self.start).map_err(|e| fault(&e))?;
        let mut found = None;
        for (end, &byte) in text.iter().enumerate().skip(at) {
            state = self.dfa.next_state(cache, state, byte).map_err(|e| fault(&e))?;
            if state.is_tagged() {
                if state.is_dead() {
                    return self.paid(end - at, reads).map(|()| found);
                }
                // The automaton says of a match one byte later than it ends.
                if state.is_match() {
                    found = Some(Match { end, blank: blank(self.dfa.match_pattern(cache, state, 0)) });
                }
            }
        }
        let state = self.dfa.next_eoi_state(cache, state).map_err(|e| fault(&e))?;
        if state.is_match() {
            let pattern = self.dfa.match_pattern(cache, state, 0);
            found = Some(Match { end: text.len(), blank: blank(pattern) });
        }
        self.paid(text.len() - at, reads).map(|()| found)
    }

    fn paid(&self, bytes: usize, reads: &mut usize) -> Result<(), Error> {
        *reads = reads.checked_sub(bytes).ok_or_else(|| Error::Slow { expression: self.source.clone() })?;
        Ok(())
    }

    /// Cuts a run of blanks that the last alternatives matched. Gives where the text goes on.
    fn blanks(
        &self,
        text: &str,
        run: Range<usize>,
        each: &mut dyn FnMut(Range<usize>, bool) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let at_end = run.end == text.len();
        let mut chars = text.get(run.clone()).unwrap_or_default().chars();
        let mut left = chars.clone().count();
        let mut at = run.start;
        loop {
            // The last blank before a word may begin a longer match.
            let free = if at_end { left } else { left - 1 };
            let take = match self.blanks {
                _ if free == 0 => 1,
                Blanks::Powers => POWERS.into_iter().find(|&power| power <= free).unwrap_or(free.min(2)),
                Blanks::Plain | Blanks::LeaveLast => free,
            };
            let end = at + chars.by_ref().take(take).map(char::len_utf8).sum::<usize>();
            each(at..end, true)?;
            (at, left) = (end, left - take);
            if left == 0 || (left == 1 && !at_end) {
                return Ok(at);
            }
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.source).finish()
    }
}

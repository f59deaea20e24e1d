//! Our own side: cases as real steps of the engine, over a cache that is really that deep.

use std::ops::ControlFlow;
use std::time::Instant;

use cera::{Engine, Part, Sequence, Want};

use super::case::{Case, Kind};
use crate::failure::Failure;
use crate::interrupt::Answering;

/// Sequences of one depth, which are brought back to it after each measurement.
pub struct Bench<'a> {
    engine: &'a mut Engine,
    answering: &'a Answering,
    depth: usize,
    sequences: Vec<Sequence>,
    random: Random,
}

impl<'a> Bench<'a> {
    /// Puts `depth` random tokens of each of `sequences` through the model.
    pub fn new(
        engine: &'a mut Engine,
        answering: &'a Answering,
        depth: usize,
        sequences: usize,
    ) -> Result<Self, Failure> {
        let mut bench =
            Bench { engine, answering, depth, sequences: Vec::new(), random: Random(depth as u64) };
        for _ in 0..sequences {
            let tokens = bench.draw(depth);
            let mut sequence = bench.engine.sequence();
            sequence.append(&tokens)?;
            prefill(bench.engine, &mut sequence, Want::Nothing, answering)?;
            bench.sequences.push(sequence);
        }
        Ok(bench)
    }

    /// Runs a case once to warm up: a prompt in full, of a generation a few tokens.
    pub fn warm_up(&mut self, case: &Case) -> Result<(), Failure> {
        let tokens = match case.kind {
            Kind::Prompt => case.tokens,
            Kind::Generation { .. } => case.tokens.min(4),
        };
        self.seconds(&Case { tokens, ..*case }).map(|_| ())
    }

    /// Seconds that a case takes.
    pub fn seconds(&mut self, case: &Case) -> Result<f64, Failure> {
        let tokens = self.draw(case.all_tokens());
        let used = self.sequences.get_mut(..case.sequences()).unwrap_or_default();
        let start = Instant::now();
        match case.kind {
            Kind::Prompt => {
                for sequence in &mut *used {
                    sequence.append(&tokens)?;
                    prefill(self.engine, sequence, Want::Token, self.answering)?;
                }
            }
            Kind::Generation { sequences } => {
                for next in tokens.chunks(sequences.max(1)) {
                    if self.answering.flow().is_break() {
                        return Err(Failure::Interrupted);
                    }
                    for (sequence, token) in used.iter_mut().zip(next) {
                        sequence.append(&[*token])?;
                    }
                    let part = |sequence| Part { sequence, rows: 1, want: Want::Token };
                    self.engine.step(&mut used.iter_mut().map(part).collect::<Vec<_>>())?;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        for sequence in used {
            sequence.rewind(self.depth);
            // Recurrent states may have gone back further.
            prefill(self.engine, sequence, Want::Nothing, self.answering)?;
        }
        Ok(seconds)
    }

    fn draw(&mut self, count: usize) -> Vec<u32> {
        let vocabulary = self.engine.vocabulary();
        (0..count).map(|_| self.random.below(vocabulary)).collect()
    }
}

fn prefill(
    engine: &mut Engine,
    sequence: &mut Sequence,
    want: Want,
    answering: &Answering,
) -> Result<(), Failure> {
    match engine.prefill(sequence, want, &mut |_, _| answering.flow())? {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Failure::Interrupted),
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): which tokens they are does not matter, that they are the same each
/// time does.
pub struct Random(pub u64);

impl Random {
    /// The next number below `n`, which must fit 32 bits.
    pub fn below(&mut self, n: usize) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper half times n, the upper half of that: as even as 32 bits can be.
        (((z >> 32) * n as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_stay_in_the_vocabulary_and_repeat() {
        let draw = || {
            let mut random = Random(7);
            (0..1000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        let ids = draw();
        assert_eq!(ids, draw());
        for id in 0..10 {
            assert!(ids.iter().filter(|&&i| i == id).count() > 50);
        }
        assert!(ids.iter().all(|&i| i < 10));
    }
}

//! What a step tells the kernels: one array of words, which goes to the device in one piece.

use cera_backend::{Rows, SampleRow};
use cera_plan::{Plan, Rope};

use crate::ops::SPAN;

/// A step's words. Where each part begins depends on the numbers of rows alone, so that a list of launches can be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// All of them.
    pub words: Vec<u32>,
    /// Rows.
    pub rows: usize,
    /// Rows that are wanted.
    pub wanted: usize,
    /// The most spans that a row's sequence has, rounded up to a power of two.
    pub spans: usize,
}

/// A part of the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The token of each row.
    Tokens,
    /// Its position.
    Positions,
    /// How many positions its sequence has behind the step.
    Lengths,
    /// Where its sequence's blocks begin in the table.
    Starts,
    /// The rows that are wanted.
    Wanted,
    /// Cosines and sines of a rope, by its number.
    Turns(usize),
    /// Blocks of the sequences, one after another.
    Table,
}

/// A rope, and its divisors.
#[derive(Clone, PartialEq, Debug)]
pub struct Turning {
    /// The rope.
    pub rope: Rope,
    factors: Option<Vec<f32>>,
    /// Radians of each pair for a position of 1.
    steps: Vec<f64>,
}

impl Turning {
    /// A rope with what its divisors hold.
    pub fn new(rope: Rope, factors: Option<Vec<f32>>) -> Turning {
        let pair = |i: usize| {
            let frequency = f64::from(rope.base).powf(-2.0 * i as f64 / rope.dims as f64);
            let factor = factors.as_ref().and_then(|f| f.get(i)).map_or(1.0, |&f| f64::from(f));
            rope.stretch(i) * frequency / factor
        };
        Turning { rope, steps: (0..rope.dims / 2).map(pair).collect(), factors }
    }
}

/// Where parts begin for a number of rows.
pub struct Parts<'a> {
    /// Rows, and rows that are wanted.
    pub rows: [usize; 2],
    /// All ropes of the plan.
    pub turnings: &'a [Turning],
}

impl Parts<'_> {
    /// The first word of a part.
    pub fn first(&self, part: Part) -> usize {
        let [rows, wanted] = self.rows;
        // Cosines are read in pairs.
        let turns = (4 * rows + wanted).next_multiple_of(4);
        let before = |ropes: usize| -> usize {
            let pairs = self.turnings.iter().take(ropes).map(|t| t.steps.len());
            turns + 2 * rows * pairs.sum::<usize>()
        };
        match part {
            Part::Tokens => 0,
            Part::Positions => rows,
            Part::Lengths => 2 * rows,
            Part::Starts => 3 * rows,
            Part::Wanted => 4 * rows,
            Part::Turns(rope) => before(rope),
            Part::Table => before(self.turnings.len()),
        }
    }
}

impl Words {
    /// The words of a step that was checked.
    pub fn new(rows: &Rows<'_>, sample: &[SampleRow], turnings: &[Turning]) -> Words {
        let n = rows.tokens.len();
        let parts = Parts { rows: [n, sample.len()], turnings };
        let mut words = vec![0; parts.first(Part::Table)];
        words[..n].copy_from_slice(rows.tokens);
        let mut longest = 1;
        for s in rows.seqs {
            let length = s.first_pos + s.rows.len();
            longest = longest.max(length);
            let start = words.len() - parts.first(Part::Table);
            for (row, position) in s.rows.clone().zip(s.first_pos..) {
                words[n + row] = position as u32;
                words[2 * n + row] = length as u32;
                words[3 * n + row] = start as u32;
            }
            let blocks = s.blocks.iter().take(length.div_ceil(cera_backend::BLOCK));
            words.extend(blocks.map(|b| b.0));
        }
        words[4 * n..][..sample.len()].iter_mut().zip(sample).for_each(|(w, s)| *w = s.row as u32);
        let positions = words[n..2 * n].to_vec();
        for (i, turning) in turnings.iter().enumerate() {
            let magnitude = f64::from(turning.rope.magnitude);
            let turns = words[parts.first(Part::Turns(i))..].chunks_exact_mut(2 * turning.steps.len().max(1));
            for (turns, &position) in turns.zip(&positions) {
                for (turn, step) in turns.chunks_exact_mut(2).zip(&turning.steps) {
                    let (sin, cos) = (f64::from(position) * step).sin_cos();
                    turn[0] = ((cos * magnitude) as f32).to_bits();
                    turn[1] = ((sin * magnitude) as f32).to_bits();
                }
            }
        }
        Words { words, rows: n, wanted: sample.len(), spans: longest.div_ceil(SPAN).next_power_of_two() }
    }
}

/// The ropes of a plan's ops, each once; `factors` reads divisors.
pub fn ropes<E>(
    plan: &Plan,
    mut factors: impl FnMut(&Rope) -> Result<Option<Vec<f32>>, E>,
) -> Result<Vec<Turning>, E> {
    let mut turnings: Vec<Turning> = Vec::new();
    for rope in plan.ops.iter().flat_map(ropes_of) {
        if !turnings.iter().any(|t| t.rope == rope) {
            turnings.push(Turning::new(rope, factors(&rope)?));
        }
    }
    Ok(turnings)
}

fn ropes_of(op: &cera_plan::Op) -> Vec<Rope> {
    use cera_plan::{Fused, Op};
    match op {
        Op::Rope { rope, .. } => vec![*rope],
        Op::Fused(Fused::HeadNormRopeKvWrite { q_prep, k_prep, .. }) => {
            [q_prep.rope, k_prep.rope].into_iter().flatten().collect()
        }
        _ => vec![],
    }
}

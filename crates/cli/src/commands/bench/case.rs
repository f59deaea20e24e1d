//! What is measured, and the least time that the machine allows for it.

use cera_backend::KvTypes;
use cera_cpu::Limits;
use cera_plan::{Plan, RowSet, show};
use cera_quant::Type;

/// What goes through the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A prompt, in as few steps as there may be.
    Prompt,
    /// Tokens one by one, of so many sequences side by side.
    Generation { sequences: usize },
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// What goes through the model.
    pub kind: Kind,
    /// Tokens of the prompt, or tokens that each sequence generates.
    pub tokens: usize,
    /// Tokens of each sequence that are in the cache before.
    pub depth: usize,
}

impl Case {
    /// Tokens of all sequences.
    pub fn all_tokens(&self) -> usize {
        self.tokens * self.sequences()
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> usize {
        match self.kind {
            Kind::Prompt => 1,
            Kind::Generation { sequences } => sequences,
        }
    }

    /// llama-bench's name of it, `pp512` or `tg128 @ d4096`; `tg128 x8` are eight sequences.
    pub fn label(&self) -> String {
        let name = match self.kind {
            Kind::Prompt => format!("pp{}", self.tokens),
            Kind::Generation { sequences: 1 } => format!("tg{}", self.tokens),
            Kind::Generation { sequences } => format!("tg{} x{sequences}", self.tokens),
        };
        if self.depth == 0 { name } else { format!("{name} @ d{}", self.depth) }
    }
}

/// Every case at one depth: prompts, then generations, the fewest sequences first as they were given.
pub fn cases(prompts: &[usize], tokens: &[usize], batch: &[usize], depth: usize) -> Vec<Case> {
    let prompts = prompts.iter().map(|&tokens| Case { kind: Kind::Prompt, tokens, depth });
    let generations = tokens.iter().flat_map(|&tokens| {
        batch.iter().map(move |&sequences| Case { kind: Kind::Generation { sequences }, tokens, depth })
    });
    prompts.chain(generations).filter(|c| c.tokens > 0).collect()
}

/// What a model asks of a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Needs {
    /// Bytes of weights that a step reads, however many rows it has.
    weight_bytes: f64,
    /// What the matrices do for every row of a step.
    row: Operations,
    /// The same for rows whose logits are wanted alone.
    wanted: Operations,
    /// For each layer of the cache: bytes of a position, and how many positions are looked back at.
    layers: Vec<(f64, usize)>,
}

/// Multiplications and additions; a multiply-add is two.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Operations {
    /// With quantized weights, in integers.
    int8: f64,
    /// With weights of floats.
    float: f64,
}

impl Operations {
    fn times(self, n: f64) -> Operations {
        Operations { int8: self.int8 * n, float: self.float * n }
    }

    fn and(self, other: Operations) -> Operations {
        Operations { int8: self.int8 + other.int8, float: self.float + other.float }
    }
}

/// The least time of a case, and what bounds it (the roofline of Williams, Waterman and Patterson 2009).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// Seconds.
    pub seconds: f64,
    /// Whether reading takes longer than multiplying.
    pub by_memory: bool,
    /// Bytes that have to be read: weights once a step, and the cache.
    pub bytes: f64,
    /// Operations of the matrices; those of attention are not among them.
    pub operations: f64,
}

impl Bound {
    /// What bounds it, in a word.
    pub fn name(&self) -> &'static str {
        if self.by_memory { "memory" } else { "arithmetic" }
    }
}

impl Needs {
    /// Counts a plan whose cache keeps its numbers so.
    pub fn new(plan: &Plan, cache: KvTypes) -> Needs {
        let (mut row, mut wanted) = (Operations::default(), Operations::default());
        for op in &plan.ops {
            let rows = op.writes().first().map(|v| plan.values[v.index()].rows);
            let sum = if rows == Some(RowSet::Wanted) { &mut wanted } else { &mut row };
            for (w, rows) in show::products(plan, op) {
                let weight = &plan.weights[w.index()];
                let operations = 2.0 * rows as f64 * weight.cols as f64;
                *match weight.ty {
                    Type::F32 | Type::F16 | Type::BF16 => &mut sum.float,
                    _ => &mut sum.int8,
                } += operations;
            }
        }
        Needs {
            weight_bytes: show::Cost::new(plan).read_bytes as f64,
            row,
            wanted,
            layers: plan
                .kv
                .iter()
                .map(|kv| (cache.bytes(kv) as f64, kv.window.unwrap_or(usize::MAX)))
                .collect(),
        }
    }

    /// The least time of a case on a machine with these limits, with steps of at most `chunk` rows.
    pub fn bound(&self, case: &Case, chunk: usize, limits: &Limits) -> Bound {
        let (steps, operations, cache) = match case.kind {
            Kind::Prompt => {
                let steps = case.tokens.div_ceil(chunk.max(1));
                let ends = (1..=steps).map(|i| case.depth + (i * chunk).min(case.tokens));
                let operations = self.row.times(case.tokens as f64).and(self.wanted);
                (steps, operations, ends.map(|end| self.cache_bytes(end)).sum::<f64>())
            }
            Kind::Generation { sequences } => {
                let n = sequences as f64;
                let operations = self.row.and(self.wanted).times(case.tokens as f64 * n);
                let cache: f64 = (1..=case.tokens).map(|i| self.cache_bytes(case.depth + i)).sum();
                (case.tokens, operations, cache * n)
            }
        };
        let bytes = self.weight_bytes * steps as f64 + cache;
        let memory = bytes / (limits.read_gb_per_second.all.best * 1e9);
        let arithmetic = operations.int8 / (limits.int8_tops.all.best * 1e12)
            + operations.float / (limits.f32_tflops.all.best * 1e12);
        Bound {
            seconds: memory.max(arithmetic),
            by_memory: memory >= arithmetic,
            bytes,
            operations: operations.int8 + operations.float,
        }
    }

    /// Bytes of the cache that a row at the end of `positions` looks back at.
    fn cache_bytes(&self, positions: usize) -> f64 {
        self.layers.iter().map(|&(bytes, window)| bytes * positions.min(window) as f64).sum()
    }
}

#[cfg(test)]
mod tests {
    use cera_cpu::{Measured, Rates, Tier};

    use super::*;

    fn case(kind: Kind, tokens: usize, depth: usize) -> Case {
        Case { kind, tokens, depth }
    }

    #[test]
    fn cases_are_called_as_llama_bench_calls_them() {
        assert_eq!(case(Kind::Prompt, 512, 0).label(), "pp512");
        assert_eq!(case(Kind::Generation { sequences: 1 }, 128, 4096).label(), "tg128 @ d4096");
        assert_eq!(case(Kind::Generation { sequences: 8 }, 128, 0).label(), "tg128 x8");
    }

    #[test]
    fn every_prompt_and_every_generation_is_a_case() {
        let labels = |c: Vec<Case>| c.iter().map(Case::label).collect::<Vec<_>>();
        assert_eq!(labels(cases(&[512, 0], &[128], &[1, 8], 0)), ["pp512", "tg128", "tg128 x8"]);
        assert_eq!(labels(cases(&[0], &[0], &[1], 7)), [""; 0]);
    }

    /// A machine with round numbers: 10 GB/s, 1 TOPS, 0.1 TFLOPS.
    fn limits() -> Limits {
        let rates = |x: f64| {
            let m = Measured { best: x, median: x };
            Rates { one: m, all: m }
        };
        let cost = Measured { best: 1.0, median: 1.0 };
        Limits {
            tier: Tier::Scalar,
            threads: 2,
            buffer_bytes: 1,
            read_gb_per_second: rates(10.0),
            int8_tops: rates(1.0),
            f32_tflops: rates(0.1),
            bf16_tflops: None,
            barrier_ns: cost,
            wake_ns: cost,
            wake_asleep_ns: cost,
        }
    }

    #[test]
    fn a_token_is_bound_by_memory_and_a_prompt_by_arithmetic() {
        let needs = Needs {
            weight_bytes: 1e9,
            row: Operations { int8: 1e9, float: 0.0 },
            wanted: Operations { int8: 1e9, float: 1e8 },
            // 100 bytes a position, of which one layer looks back at 50 at most.
            layers: vec![(60.0, usize::MAX), (40.0, 50)],
        };
        let token = needs.bound(&case(Kind::Generation { sequences: 1 }, 1, 99), 512, &limits());
        assert_eq!(token.bytes, 1e9 + 60.0 * 100.0 + 40.0 * 50.0);
        assert!(token.by_memory && token.seconds == token.bytes / 1e10, "{token:?}");
        let two = needs.bound(&case(Kind::Generation { sequences: 2 }, 1, 99), 512, &limits());
        assert_eq!(two.bytes, 1e9 + 2.0 * (60.0 * 100.0 + 40.0 * 50.0));
        assert_eq!(two.operations, 2.0 * 2.1e9);

        let prompt = needs.bound(&case(Kind::Prompt, 1000, 0), 512, &limits());
        assert_eq!(prompt.operations, 1000.0 * 1e9 + 1.1e9);
        // 1001 times 1e9 integers at 1 TOPS, and 1e8 floats at 0.1 TFLOPS.
        assert!(!prompt.by_memory && (prompt.seconds - 1.002).abs() < 1e-9, "{prompt:?}");
        // Two steps: weights twice, the cache up to 512 and up to 1000.
        assert_eq!(prompt.bytes, 2e9 + 60.0 * 1512.0 + 40.0 * 100.0);
    }
}

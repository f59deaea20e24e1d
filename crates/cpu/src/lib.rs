//! The CPU backend: packed panels, one kernel shape for decode and prefill, one wake a step.
//!
//! ARCHITECTURE.md has the numeric contract and the layouts: the bits of every output depend on shapes, the row
//! and the cache alone, not on the instructions, the threads, or what else is in the step.

#[doc(hidden)]
pub mod bench_support;
mod cache;
mod cores;
mod format;
mod kernels;
mod limits;
mod machine;
mod pack;
mod pool;
mod run;
mod shared;
mod simd;
mod stage;
mod tier;
mod turn;

pub use cores::default_threads;
pub use limits::{Limits, Measured, Rates};
pub use machine::{Cache, HugePages, Machine, Memory};
pub use tier::{Tier, UnknownTier};

use cera_backend::{Backend, Error, KvShape, Loaded, Weights};
use cera_plan::{Fused, Plan};

use kernels::Kernels;
use pool::Pool;
use run::Runner;
use stage::{NAME, Stages};

/// How the CPU backend runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Threads; by default [`default_threads`].
    pub threads: Option<usize>,
    /// The instructions to use; by default the best that the processor has.
    pub tier: Option<Tier>,
    /// Whether each worker thread stays on a core of its own.
    pub pin: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { threads: None, tier: None, pin: true }
    }
}

/// The most threads that a pool may have.
const MAX_THREADS: usize = 1024;

/// The CPU backend.
#[derive(Debug)]
pub struct Cpu {
    threads: usize,
    tier: Tier,
    pin: bool,
}

impl Cpu {
    /// Refuses a tier that the processor lacks, and a number of threads that makes no sense.
    pub fn new(options: Options) -> Result<Cpu, Error> {
        let unsupported = |why| Err(Error::Unsupported { backend: NAME, why });
        let tier = options.tier.unwrap_or_else(Tier::best);
        if !tier.runs_here() {
            return unsupported(format!("this processor has no {tier} instructions"));
        }
        let threads = options.threads.unwrap_or_else(default_threads);
        if threads == 0 || threads > MAX_THREADS {
            return unsupported(format!("{threads} threads; 1 to {MAX_THREADS} work"));
        }
        Ok(Cpu { threads, tier, pin: options.pin })
    }

    /// The tier that is used.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The threads of a step.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn takes(&self, op: &Fused) -> bool {
        match op {
            Fused::AddRmsNorm { .. }
            | Fused::NormLinear { .. }
            | Fused::NormGlu { .. }
            | Fused::LinearAdd { .. }
            | Fused::HeadNormRopeKvWrite { .. } => true,
        }
    }

    fn load(&mut self, weights: &dyn Weights, plan: &Plan, kv: &KvShape) -> Result<Box<dyn Loaded>, Error> {
        let Some(kernels) = Kernels::new(self.tier) else {
            let why = format!("this processor has no {} instructions", self.tier);
            return Err(Error::Unsupported { backend: NAME, why });
        };
        let stages = Stages::new(&kernels, weights, plan, kv, self.threads)?;
        let pool = Pool::new(self.threads, self.pin).map_err(|e| Error::Unsupported {
            backend: NAME,
            why: format!("no thread could be started: {e}"),
        })?;
        Ok(Box::new(Runner::new(kernels, pool, plan, stages, kv)?))
    }
}

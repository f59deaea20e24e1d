//! Checkpoints of seeded numbers, in memory.

use std::borrow::Cow;
use std::collections::HashMap;

use cera_backend::{Error, Weights};
use cera_plan::{Plan, TensorShape, Tensors, Wt};
use cera_quant::Type;

/// F32 tensors by name.
#[derive(Default)]
pub struct Checkpoint {
    tensors: HashMap<String, (Vec<usize>, Vec<u8>)>,
}

impl Checkpoint {
    /// Adds a tensor of numbers in -1..1 that follow from its name.
    pub fn add(&mut self, name: &str, dims: &[usize]) {
        let seed = name.bytes().fold(17u64, |s, b| s.wrapping_mul(31).wrapping_add(b.into()));
        let mut state = seed;
        let data: Vec<f32> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .take(dims.iter().product())
        .collect();
        self.set(name, dims, &data);
    }

    /// Adds a tensor of these numbers.
    pub fn set(&mut self, name: &str, dims: &[usize], data: &[f32]) {
        let bytes = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.insert(name.into(), (dims.to_vec(), bytes));
    }

    /// The weights of a plan of this checkpoint.
    pub fn of<'a>(&'a self, plan: &'a Plan) -> PlanWeights<'a> {
        PlanWeights { checkpoint: self, plan }
    }
}

impl Tensors for Checkpoint {
    fn find(&self, name: &str) -> Option<TensorShape> {
        let (dims, _) = self.tensors.get(name)?;
        Some(TensorShape { ty: Type::F32, dims: dims.clone() })
    }
}

/// A checkpoint as a backend reads it.
pub struct PlanWeights<'a> {
    checkpoint: &'a Checkpoint,
    plan: &'a Plan,
}

impl Weights for PlanWeights<'_> {
    fn bytes(&self, w: Wt) -> Result<Cow<'_, [u8]>, Error> {
        Ok(Cow::Borrowed(&self.checkpoint.tensors[&self.plan.weights[w.index()].name].1))
    }
}

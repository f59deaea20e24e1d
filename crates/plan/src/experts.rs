//! Mixtures of experts (Shazeer et al. 2017, arXiv:1701.06538): which experts a row takes, and their matrices.

use crate::{Val, Wt};

/// How scores of experts become comparable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scoring {
    /// `softmax` of a row's scores over all experts.
    Softmax,
    /// `1 / (1 + exp(-score))` of each score by itself (DeepSeek V3, arXiv:2412.19437).
    Sigmoid,
    /// The scores as they are choose; their `softmax` over the chosen ones alone weighs.
    SoftmaxOfChosen,
}

/// How a group of experts is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupScore {
    /// By its best expert (DeepSeek V2, arXiv:2405.04434).
    Best,
    /// By the sum of its two best (DeepSeek V3).
    BestTwo,
}

/// Experts are chosen in two turns: first groups of neighbours, then experts out of these groups alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// How many there are; divides the number of experts.
    pub count: usize,
    /// How many a row takes.
    pub used: usize,
    /// How they are judged.
    pub by: GroupScore,
}

impl Groups {
    /// All experts in one group.
    pub const ONE: Groups = Groups { count: 1, used: 1, by: GroupScore::Best };
}

/// How a row chooses its experts, and what they weigh. Among equals the lowest number is chosen, of groups too.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Routing {
    /// Experts that a row takes.
    pub used: usize,
    /// What a score counts.
    pub scoring: Scoring,
    /// The choice among groups that comes first.
    pub groups: Option<Groups>,
    /// The weights of a row are divided by their sum (by [`LEAST_SUM`] where it is less).
    pub normalised: bool,
    /// Multiplies the weights, last.
    pub scale: f32,
}

/// The least that weights are divided by, so that scores that all vanish weigh nothing.
pub const LEAST_SUM: f32 = 1e-20;

/// What [`Op::Route`](crate::Op::Route) writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Routed {
    /// `[rows, used]`: numbers of experts, whole and without repetition in a row, the best first.
    pub experts: Val,
    /// `[rows, used]`: what each of them weighs.
    pub weights: Val,
}

/// One matrix of every expert, one expert after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpertMatrix {
    /// `[experts * rows of one, columns]`.
    pub w: Wt,
    /// `[experts, rows of one]`, added to the products.
    pub bias: Option<Wt>,
}

/// The matrices of a gated feed-forward of experts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpertMatrices {
    /// How many experts there are.
    pub count: usize,
    /// Elements of a row within an expert.
    pub inner: usize,
    /// `[count * inner, width]`. Where there is no `up`, `[count * 2 * inner, width]`: of each expert the gate's rows,
    /// then those of up.
    pub gate: ExpertMatrix,
    /// `[count * inner, width]`.
    pub up: Option<ExpertMatrix>,
    /// `[count * width, inner]`.
    pub down: ExpertMatrix,
}

impl ExpertMatrices {
    /// Each stack of matrices with the number of matrices in it, each of which is multiplied with by itself.
    pub fn stacks(&self) -> impl Iterator<Item = (ExpertMatrix, usize)> {
        let gates = if self.up.is_none() { 2 * self.count } else { self.count };
        [Some((self.gate, gates)), self.up.map(|up| (up, self.count)), Some((self.down, self.count))]
            .into_iter()
            .flatten()
    }

    /// All weights.
    pub fn weights(&self) -> impl Iterator<Item = Wt> {
        self.stacks().flat_map(|(m, _)| [Some(m.w), m.bias]).flatten()
    }
}

//! The half of a block behind attention: one gated unit, or a mixture of experts.
//!
//! Which of them a block has shows in its tensors. How experts are chosen is in keys, and where a file has no such key, in
//! the family.

use cera_plan::{Act, ExpertNames, Graph, GroupScore, Groups, Layer, Routing, Scoring, Val};

use crate::{Error, config::Config};

/// The names that llama.cpp's files give to the stacks of matrices.
const STACKS: ExpertNames = ExpertNames {
    gate_up: "ffn_gate_up_exps",
    gate: "ffn_gate_exps",
    up: "ffn_up_exps",
    down: "ffn_down_exps",
};

/// What files leave to the family.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    /// What scores count, where `expert_gating_func` does not say it.
    pub scoring: Scoring,
    /// Whether weights are divided by their sum, where `expert_weights_norm` does not say it.
    pub normalised: bool,
    /// How groups are judged, where there are any.
    pub groups_by: GroupScore,
}

/// Softmax over all experts, those chosen weighing one together (Mixtral, arXiv:2401.04088).
pub(crate) const SOFTMAX: Choice =
    Choice { scoring: Scoring::Softmax, normalised: true, groups_by: GroupScore::BestTwo };

/// The experts of a model.
pub(crate) struct Experts {
    /// How many each block has, but for dense ones.
    count: usize,
    routing: Routing,
    /// The first block that has them, and every how many of the others; where the file says it.
    blocks: Option<(usize, usize)>,
}

/// Keys of experts that no op of ours has, and what they are where they change nothing.
const NOT_SUPPORTED: &[(&str, f32)] = &[
    ("expert_group_scale", 0.0),
    ("expert_latent_length", 0.0),
    ("experts_per_group", 0.0),
    ("moe_every_n_layers", 0.0),
];

impl Experts {
    /// Reads the keys of experts; `None` where the file has no experts. Blocks without experts are told by their tensors,
    /// which `leading_dense_block_count` and `interleave_moe_layer_step` have to agree with.
    pub fn read(c: &Config<'_>, choice: &Choice) -> Result<Option<Experts>, Error> {
        ["expert_used_count", "leading_dense_block_count"].into_iter().for_each(|key| c.heed(key));
        let Some(count) = c.count_or_none("expert_count")? else {
            c.refuse(&[("expert_used_count", 0.0)])?;
            return Ok(None);
        };
        c.refuse(NOT_SUPPORTED)?;
        let used = c.count("expert_used_count")?;
        let scoring = match c.count_or_none("expert_gating_func")? {
            None => choice.scoring,
            Some(1) => Scoring::Softmax,
            Some(2) => Scoring::Sigmoid,
            Some(3) => Scoring::SoftmaxOfChosen,
            Some(_) => return Err(c.unsupported("expert_gating_func")),
        };
        let groups = match c.count_or_none("expert_group_count")?.filter(|&n| n > 1) {
            Some(groups) => {
                let used = c.count("expert_group_used_count")?;
                Some(Groups { count: groups, used, by: choice.groups_by })
            }
            None => None,
        };
        let normalised = c.flag("expert_weights_norm")?.unwrap_or(choice.normalised);
        let scale = c.positive_or_none("expert_weights_scale")?.unwrap_or(1.0);
        let routing = Routing { used, scoring, groups, normalised, scale };
        let [first, every] =
            [c.count_or_none("leading_dense_block_count")?, c.count_or_none("interleave_moe_layer_step")?];
        let blocks = (first.is_some() || every.is_some()).then(|| (first.unwrap_or(0), every.unwrap_or(1)));
        Ok(Some(Experts { count, routing, blocks }))
    }

    /// The experts alone, chosen by `scores`; the tensor `factors` multiplies the weights of the chosen.
    pub fn by_scores(&self, l: &Layer<'_>, h: Val, scores: Val, factors: Option<&str>, act: Act) -> Val {
        let routed = l.route_by(scores, "exp_probs_b", factors, self.routing);
        l.experts(h, routed, self.count, &STACKS, act)
    }

    /// The router, the experts that it chooses, and the expert that every row takes, where the block has one: with a
    /// gate of its own (Qwen, arXiv:2407.10671) or without.
    fn of(&self, g: &Graph<'_>, l: &Layer<'_>, h: Val, act: Act) -> Val {
        let mut y = self.by_scores(l, h, l.linear(h, "ffn_gate_inp"), None, act);
        if l.has("ffn_down_shexp") {
            let unit = g.glu(l.linear(h, "ffn_gate_shexp"), l.linear(h, "ffn_up_shexp"), act);
            let mut shared = l.linear(unit, "ffn_down_shexp");
            if l.has("ffn_gate_inp_shexp") {
                shared = g.gate_rows(shared, l.linear(h, "ffn_gate_inp_shexp"));
            }
            y = g.add(y, shared);
        }
        y
    }
}

/// The half of a block behind attention, where it is dense.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Two matrices and the function between them.
    Plain(Act),
    /// A gated unit.
    Gated(Act),
    /// A gated unit that has gate and up, in this order, in one matrix `ffn_up`.
    Joined(Act),
}

/// What a dense unit makes of a block's normalised row.
pub(crate) fn dense(c: &Config<'_>, g: &Graph<'_>, l: &Layer<'_>, h: Val, unit: Unit) -> Result<Val, Error> {
    let h = match unit {
        Unit::Plain(act) => g.act(l.linear(h, "ffn_up"), act),
        Unit::Gated(act) => g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), act),
        Unit::Joined(act) => {
            let inner = c.count("feed_forward_length")?;
            let [gate, up] = l.linear_parts(h, "ffn_up", [inner, inner]);
            g.glu(gate, up, act)
        }
    };
    Ok(l.linear(h, "ffn_down"))
}

/// What block `n` makes of its normalised row.
pub(crate) fn feed_forward(
    g: &Graph<'_>,
    l: &Layer<'_>,
    n: usize,
    h: Val,
    act: Act,
    experts: Option<&Experts>,
) -> Val {
    let has_experts = l.has("ffn_gate_inp");
    if let Some((first, every)) = experts.and_then(|e| e.blocks)
        && has_experts != (n >= first && (n + 1).is_multiple_of(every))
    {
        let why =
            "its tensors and `leading_dense_block_count` or `interleave_moe_layer_step` disagree on experts";
        g.fault(cera_plan::Error::Config(format!("block {n}: {why}")));
    }
    match experts.filter(|_| has_experts) {
        Some(experts) => experts.of(g, l, h, act),
        None => l.linear(g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), act), "ffn_down"),
    }
}

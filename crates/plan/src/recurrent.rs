//! Ops with a state that goes from row to row of a sequence: convolutions, scans, the delta rule.

use crate::{StateLayer, Val, Wt};

/// Some columns of a value, from `first` on: an operand that lies beside others in the same rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns {
    /// The value.
    pub of: Val,
    /// The first column.
    pub first: usize,
}

/// A causal convolution of each column by itself: `out[p] = act(bias + sum_j w[j] * x[p - taps + 1 + j])` at position
/// `p`, `x` being 0 before the sequence begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortConv {
    /// `[width, taps]`: for each column its factors, that of the row itself last.
    pub weight: Wt,
    /// `[width]`.
    pub bias: Option<Wt>,
    /// SiLU behind it.
    pub silu: bool,
    /// The rows before the step's: `taps - 1` of them.
    pub state: StateLayer,
}

/// A selective state space (Mamba: Gu and Dao 2023, arXiv:2312.00752; Mamba-2: Dao and Gu 2024, arXiv:2405.21060).
/// A head has `head_dim` channels, each with a state `h` of `state_dim` numbers. At each position, with
/// `d = softplus(dt)` of the head, for each channel
/// `h[n] = exp(d * a[n]) * h[n] + d * x * b[n]` and `out = skip * x + sum_n c[n] * h[n]`. Head `i` reads group
/// `i / (heads / groups)` of `b` and `c`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectiveScan {
    /// The sizes.
    pub shape: ScanShape,
    /// `[heads, state_dim]`, or `[heads, 1]` where a head has one for all: negative rates of decay.
    pub a: Wt,
    /// One for each head: how much of `x` goes past the state.
    pub skip: Wt,
    /// [`ScanShape::state_len`] numbers.
    pub state: StateLayer,
}

/// The sizes of a [`SelectiveScan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanShape {
    /// Heads; in Mamba each channel is one.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Groups of heads that share `b` and `c`; divides `heads`.
    pub groups: usize,
    /// Numbers of a channel's state.
    pub state_dim: usize,
}

/// The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464). A value head has a state `S` of
/// `key_dim x value_dim` numbers. At each position, with `q` and `k` divided by their lengths
/// (`sqrt(sum of squares + eps)`), `q` by `sqrt(key_dim)` besides, and `g = exp(rate * softplus(decay))`:
/// `S = g * S`; `S += k (sigmoid(beta) * (v - k^T S))^T`; `out = q^T S`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeltaNet {
    /// The sizes.
    pub shape: DeltaShape,
    /// Added to the sum of squares of a query or key.
    pub eps: f32,
    /// One for each value head: negative rates of decay.
    pub rate: Wt,
    /// [`DeltaShape::state_len`] numbers.
    pub state: StateLayer,
}

/// The sizes of a [`DeltaNet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Elements of a head of queries or keys.
    pub key_dim: usize,
    /// Elements of a head of values.
    pub value_dim: usize,
    /// Which key head a value head `h` reads: `h % key_heads`, or `h / (value_heads / key_heads)`.
    pub tiled: bool,
}

impl ShortConv {
    /// Numbers of a sequence's state.
    pub fn state_len(taps: usize, width: usize) -> usize {
        taps.saturating_sub(1).saturating_mul(width)
    }
}

impl ScanShape {
    /// Channels of all heads.
    pub fn channels(&self) -> usize {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Columns of `b`, and of `c`.
    pub fn group_width(&self) -> usize {
        self.groups.saturating_mul(self.state_dim)
    }

    /// Numbers of a sequence's state.
    pub fn state_len(&self) -> usize {
        self.channels().saturating_mul(self.state_dim)
    }
}

impl DeltaShape {
    /// Elements of all queries, and of all keys.
    pub fn key_width(&self) -> usize {
        self.key_heads.saturating_mul(self.key_dim)
    }

    /// Elements of all values.
    pub fn value_width(&self) -> usize {
        self.value_heads.saturating_mul(self.value_dim)
    }

    /// Elements of all queries, keys and values.
    pub fn width(&self) -> usize {
        self.key_width().saturating_mul(2).saturating_add(self.value_width())
    }

    /// Numbers of a sequence's state.
    pub fn state_len(&self) -> usize {
        self.value_width().saturating_mul(self.key_dim)
    }

    /// The key head that a value head reads.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.tiled {
            true => value_head % self.key_heads,
            false => value_head / (self.value_heads / self.key_heads),
        }
    }
}

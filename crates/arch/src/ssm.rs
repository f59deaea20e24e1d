//! Mamba-2's mixer (Dao and Gu 2024, arXiv:2405.21060), as several families have it, and the keys of state spaces.

use cera_plan::{Act, Columns, Graph, Layer, ScanShape, Val};

use crate::{Error, config::Config};

/// The sizes of a state space.
pub(crate) struct Sizes {
    /// Rows that the convolution sees.
    pub taps: usize,
    /// Channels.
    pub inner: usize,
    /// Numbers of a channel's state.
    pub state: usize,
    /// Mamba's rank of the step's matrix; heads in Mamba-2.
    pub rank: usize,
}

impl Sizes {
    /// Reads the keys that all of them have.
    pub fn read(c: &Config<'_>) -> Result<Self, Error> {
        Ok(Sizes {
            taps: c.count("ssm.conv_kernel")?,
            inner: c.count("ssm.inner_size")?,
            state: c.count("ssm.state_size")?,
            rank: c.count("ssm.time_step_rank")?,
        })
    }
}

/// Mamba-2's mixer.
pub(crate) struct Mamba2 {
    taps: usize,
    shape: ScanShape,
}

impl Mamba2 {
    /// Reads and checks its sizes.
    pub fn read(c: &Config<'_>) -> Result<Self, Error> {
        let s = Sizes::read(c)?;
        if !s.inner.is_multiple_of(s.rank) {
            let why = format!("it does not divide {}, the inner size", s.inner);
            return Err(c.value("ssm.time_step_rank", s.rank, why));
        }
        let groups = c.count("ssm.group_count")?;
        if !s.rank.is_multiple_of(groups) {
            return Err(c.value("ssm.group_count", groups, format!("it does not divide {} heads", s.rank)));
        }
        let shape = ScanShape { heads: s.rank, head_dim: s.inner / s.rank, groups, state_dim: s.state };
        Ok(Mamba2 { taps: s.taps, shape })
    }

    /// Records it over normalised rows, up to its output matrix.
    pub fn mix(&self, g: &Graph<'_>, l: &Layer<'_>, h: Val) -> Val {
        let s = &self.shape;
        let (inner, group) = (s.channels(), s.group_width());
        let [z, xbc, dt] = l.linear_parts(h, "ssm_in", [inner, inner + 2 * group, s.heads]);
        let xbc = l.short_conv(xbc, "ssm_conv1d", self.taps, true);
        let from = |first| Columns { of: xbc, first };
        let y = l.selective_scan(from(0), l.bias(dt, "ssm_dt"), from(inner), from(inner + group), *s);
        let y = g.glu(z, y, Act::Silu);
        if l.has("ssm_norm") { l.group_norm(y, "ssm_norm", s.groups) } else { y }
    }
}

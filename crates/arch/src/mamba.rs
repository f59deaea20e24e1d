//! Mamba (Gu and Dao 2023, arXiv:2312.00752) and Mamba-2 (arXiv:2405.21060): no attention, one mixer a block.

use cera_plan::{Act, Columns, Graph, Plan, ScanShape, Tensors};

use crate::ssm::{Mamba2, Sizes};
use crate::{Error, config::Config};

/// Records Mamba.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let s = Sizes::read(c)?;
    // Falcon Mamba's norms of steps and inputs.
    c.refuse(&[("ssm.dt_b_c_rms", 0.0)])?;
    let shape = ScanShape { heads: s.inner, head_dim: 1, groups: 1, state_dim: s.state };
    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let h = l.rms_norm(x, "attn_norm");
        let [u, z] = l.linear_parts(h, "ssm_in", [s.inner, s.inner]);
        let u = l.short_conv(u, "ssm_conv1d", s.taps, true);
        let [step, bc] = l.linear_parts(u, "ssm_x", [s.rank, 2 * s.state]);
        let from = |of, first| Columns { of, first };
        let y = l.selective_scan(from(u, 0), l.linear(step, "ssm_dt"), from(bc, 0), from(bc, s.state), shape);
        let mut y = g.glu(z, y, Act::Silu);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, y) = (g.select_rows(x), g.select_rows(y));
        }
        x = g.add(x, l.linear(y, "ssm_out"));
    }
    head(g, x)
}

/// Records Mamba-2.
pub(crate) fn build2(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let mixer = Mamba2::read(c)?;
    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let mut y = mixer.mix(&g, &l, l.rms_norm(x, "attn_norm"));
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, y) = (g.select_rows(x), g.select_rows(y));
        }
        x = g.add(x, l.linear(y, "ssm_out"));
    }
    head(g, x)
}

fn head(g: Graph<'_>, x: cera_plan::Val) -> Result<Plan, Error> {
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    Ok(g.finish(logits)?)
}

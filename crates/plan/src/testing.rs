//! Checkpoints and plans for this crate's tests.

use std::collections::HashMap;

use cera_quant::Type;

use crate::{Act, Attention, Graph, Plan, Rope, RopeStyle, TensorShape, Tensors};

/// Tensors that have a shape and no numbers.
pub struct Shapes(pub HashMap<String, TensorShape>);

impl Shapes {
    /// F32 tensors of these names and dimensions.
    pub fn new(shapes: &[(&str, &[usize])]) -> Self {
        let tensor = |&(name, dims): &(&str, &[usize])| {
            (name.to_owned(), TensorShape { ty: Type::F32, dims: dims.to_vec() })
        };
        Shapes(shapes.iter().map(tensor).collect())
    }
}

impl Tensors for Shapes {
    fn find(&self, name: &str) -> Option<TensorShape> {
        self.0.get(name).cloned()
    }
}

/// What the blocks of a test plan have.
pub struct Block {
    pub bias: bool,
    pub head_norm: bool,
    pub post_norm: bool,
    pub rope: bool,
    /// Every how many blocks one attends to everything; the others have a window.
    pub global_every: usize,
}

impl Default for Block {
    fn default() -> Self {
        Block { bias: false, head_norm: false, post_norm: false, rope: true, global_every: 1 }
    }
}

/// A decoder of `blocks` blocks, 64 wide, 4 heads over 2 of 16 elements, 100 tokens; Q8_0 matrices.
pub fn plan(blocks: usize, b: &Block) -> Plan {
    let mut shapes = Shapes::new(&[("token_embd.weight", &[64, 100]), ("output_norm.weight", &[64])]);
    let mut tensor = |name: String, ty, dims: &[usize]| {
        shapes.0.insert(name, TensorShape { ty, dims: dims.to_vec() });
    };
    for n in 0..blocks {
        for (name, cols, rows) in [
            ("attn_q", 64, 64),
            ("attn_k", 64, 32),
            ("attn_v", 64, 32),
            ("attn_output", 64, 64),
            ("ffn_gate", 64, 96),
            ("ffn_up", 64, 96),
            ("ffn_down", 96, 64),
        ] {
            tensor(format!("blk.{n}.{name}.weight"), Type::Q8_0, &[cols, rows]);
            if b.bias && matches!(name, "attn_q" | "attn_k" | "attn_v") {
                tensor(format!("blk.{n}.{name}.bias"), Type::F32, &[rows]);
            }
        }
        let post = ["post_attention_norm", "post_ffw_norm"].into_iter().filter(|_| b.post_norm);
        for name in ["attn_norm", "ffn_norm"].into_iter().chain(post) {
            tensor(format!("blk.{n}.{name}.weight"), Type::F32, &[64]);
        }
        for name in ["attn_q_norm", "attn_k_norm"].into_iter().filter(|_| b.head_norm) {
            tensor(format!("blk.{n}.{name}.weight"), Type::F32, &[16]);
        }
    }
    let g = Graph::new(&shapes, 1e-5);
    let mut x = g.embed("token_embd", 64);
    for n in 0..blocks {
        let l = g.layer(n);
        let global = (n + 1) % b.global_every == 0;
        let rope = Rope {
            style: RopeStyle::Halved,
            dims: 16,
            base: 10_000.0,
            scale: 1.0,
            yarn: None,
            magnitude: 1.0,
            factors: None,
        };
        let rope = b.rope.then_some(rope);
        let post = |y, name| if b.post_norm { l.rms_norm(y, name) } else { y };
        let window = (!global).then_some(512);
        let attention = Attention {
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            value_dim: 16,
            scale: 0.25,
            causal: true,
            window,
            softcap: None,
            sinks: None,
            alibi: None,
        };

        let h = l.rms_norm(x, "attn_norm");
        let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
        let q = l.rope(l.head_norm(q, "attn_q_norm", 16), 16, rope);
        let k = l.rope(l.head_norm(k, "attn_k_norm", 16), 16, rope);
        let y = l.linear(l.attend(q, k, v, attention), "attn_output");
        x = g.add(x, post(y, "post_attention_norm"));
        let h = l.rms_norm(x, "ffn_norm");
        let y = g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), Act::Silu);
        x = g.add(x, post(l.linear(y, "ffn_down"), "post_ffw_norm"));
    }
    let x = g.rms_norm(g.select_rows(x), "output_norm");
    let logits = g.linear(x, "token_embd");
    g.finish(logits).unwrap()
}

//! Matrices that some files store joined, and others apart.

use cera_plan::{Attention, Layer, Val};

/// The queries, keys and values of a block's row: `attn_qkv` has them in this order, or each has a matrix.
pub(crate) fn queries_keys_values(l: &Layer<'_>, h: Val, a: &Attention) -> [Val; 3] {
    if !l.has("attn_qkv") {
        return ["attn_q", "attn_k", "attn_v"].map(|name| l.linear(h, name));
    }
    let [queries, keys, values] = [a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim];
    l.linear_parts(h, "attn_qkv", [queries, keys, values])
}

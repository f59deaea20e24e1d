//! A model's file with its matrices encoded anew.

use cera_gguf::{Gguf, TensorInfo, Writer};
use cera_quant::Type;

use crate::Result;

/// The file with tensors in the types that `choose` gives for them; others stay as they are. Tensors that change must be
/// of F32.
///
/// # Errors
/// A tensor's rows are not whole blocks of the type, or the type has no encoder.
pub fn encoded(file: &Gguf, mut choose: impl FnMut(&TensorInfo) -> Option<Type>) -> Result<Gguf> {
    let mut writer = Writer::new(file.metadata().clone())?;
    let mut data = Vec::new();
    for t in file.tensors() {
        let bytes = file.tensor_bytes(t);
        let ty = choose(t).unwrap_or(t.ty);
        writer.tensor(&t.name, ty, &t.dims)?;
        data.push(if ty == t.ty {
            bytes.to_vec()
        } else {
            let mut weights = vec![0.0; bytes.len() / size_of::<f32>()];
            cera_quant::decode(t.ty, bytes, &mut weights)?;
            cera_quant::encode(ty, &weights)?
        });
    }
    let mut body = writer.begin(Vec::new())?;
    for bytes in &data {
        body.write(bytes)?;
    }
    Ok(Gguf::from_bytes(body.finish()?)?)
}

/// Parts of the names of matrices that llama.cpp's quantize leaves as they are.
const KEPT: [&str; 11] = [
    "_norm.",
    "ffn_gate_inp.",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "token_types",
    "conv1d",
    "shortconv.conv",
    "attn_sinks",
    "rope_f",
];

/// Whether llama.cpp's quantize would encode a tensor in a type of blocks as long as `block`.
pub fn is_matrix(tensor: &TensorInfo, block: usize) -> bool {
    let whole = tensor.dims.first().is_some_and(|&cols| cols.is_multiple_of(block as u64));
    let weight = tensor.name.ends_with(".weight") && KEPT.iter().all(|part| !tensor.name.contains(part));
    whole && weight && tensor.dims.len() > 1
}

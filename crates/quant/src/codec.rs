//! The codec of a format, and the checked way to use one.

use crate::{Error, Type};

/// Translates between a format's blocks and weights.
pub trait Codec: Sync {
    /// The type whose blocks this reads and writes.
    fn ty(&self) -> Type;

    /// Decodes whole blocks. `bytes` is `n * block_bytes` bytes and `out` has room for `n * block_len` weights; of
    /// slices that do not match only the blocks present in both are translated ([`decode`] checks).
    fn decode(&self, bytes: &[u8], out: &mut [f32]);

    /// Encodes `x`, whole blocks of weights, and appends the bytes to `out`; a partial block at the end is left out
    /// ([`encode`] checks).
    ///
    /// In the quantized formats NaN counts as 0, and magnitudes beyond what the format's f16 scales reach are
    /// clipped ([`encode`] refuses NaN and infinity instead).
    fn encode(&self, x: &[f32], out: &mut Vec<u8>);
}

/// Decodes `bytes`, whole blocks of `ty`, into `out`, which must have exactly as many places as they hold weights.
///
/// # Errors
/// [`Error::NoCodec`], [`Error::PartialBlock`], [`Error::OutputLength`].
pub fn decode(ty: Type, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    let codec = ty.codec().ok_or(Error::NoCodec(ty))?;
    let block_bytes = ty.block_bytes();
    if !bytes.len().is_multiple_of(block_bytes) {
        return Err(Error::PartialBlock { ty, bytes: bytes.len(), block_bytes });
    }
    let weights = (bytes.len() / block_bytes).saturating_mul(ty.block_len());
    if weights != out.len() {
        return Err(Error::OutputLength { ty, bytes: bytes.len(), weights, room: out.len() });
    }
    codec.decode(bytes, out);
    Ok(())
}

/// Encodes `x`, whole blocks of weights, as `ty`.
///
/// # Errors
/// [`Error::NoCodec`], [`Error::PartialRow`], and for quantized types [`Error::NotFinite`].
pub fn encode(ty: Type, x: &[f32]) -> Result<Vec<u8>, Error> {
    let codec = ty.codec().ok_or(Error::NoCodec(ty))?;
    let partial = Error::PartialRow { ty, weights: x.len(), block_len: ty.block_len() };
    let bytes = ty.row_bytes(x.len()).ok_or(partial)?;
    if ty.block_len() > 1
        && let Some((index, v)) = x.iter().enumerate().find(|(_, v)| !v.is_finite())
    {
        let class = if v.is_nan() { "NaN" } else { "infinite" };
        return Err(Error::NotFinite { ty, index, class });
    }
    let mut out = Vec::with_capacity(bytes);
    codec.encode(x, &mut out);
    Ok(out)
}

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
    ///
    /// `importance` has `x.len()` numbers, how much the squared error of each weight counts; `None` is all alike, as
    /// are blocks beyond its end. Only their ratios within a block matter. Formats that choose nothing by error have
    /// no use for them: the plain numbers, and Q8_0, whose scale is set by the largest weight.
    fn encode(&self, x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>);
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
    encode_rows(ty, x, None)
}

/// Encodes `x`, whole rows of `importance.len()` weights, as `ty`, so that errors in column `i` of a row count
/// `importance[i]` times: the mean square of the activations that meet the column, as an importance matrix has it.
///
/// # Errors
/// Those of [`encode`]; [`Error::Columns`], [`Error::Importance`].
pub fn encode_with_importance(ty: Type, x: &[f32], importance: &[f32]) -> Result<Vec<u8>, Error> {
    let columns = importance.len();
    let whole_blocks = columns > 0 && ty.row_bytes(columns).is_some();
    if !whole_blocks || !x.len().is_multiple_of(columns) {
        return Err(Error::Columns { ty, weights: x.len(), columns, block_len: ty.block_len() });
    }
    if let Some((index, v)) = importance.iter().enumerate().find(|(_, v)| !v.is_finite() || **v < 0.0) {
        let class = if v.is_finite() { "negative" } else { class(*v) };
        return Err(Error::Importance { index, class });
    }
    encode_rows(ty, x, Some(importance))
}

fn encode_rows(ty: Type, x: &[f32], importance: Option<&[f32]>) -> Result<Vec<u8>, Error> {
    let codec = ty.codec().ok_or(Error::NoCodec(ty))?;
    let partial = Error::PartialRow { ty, weights: x.len(), block_len: ty.block_len() };
    let bytes = ty.row_bytes(x.len()).ok_or(partial)?;
    if ty.block_len() > 1
        && let Some((index, v)) = x.iter().enumerate().find(|(_, v)| !v.is_finite())
    {
        return Err(Error::NotFinite { ty, index, class: class(*v) });
    }
    let mut out = Vec::with_capacity(bytes);
    let columns = importance.map_or(x.len(), <[f32]>::len).max(1);
    for row in x.chunks(columns) {
        codec.encode(row, importance, &mut out);
    }
    Ok(out)
}

/// What a number is that is not finite.
fn class(v: f32) -> &'static str {
    if v.is_nan() { "NaN" } else { "infinite" }
}

//! What the formats of blocks share: the walk over a row, block by block, and what a scale is set by.

use crate::importance::relative;

/// Beyond the reach of every scale in f16, and small enough that sums of 256 squares stay finite in f32.
const LIMIT: f32 = 1e9;

/// Declares what each format of blocks has: `BLOCK_LEN`, `BLOCK_BYTES` and the codec, a type of the first name for the
/// [`Type`](crate::Type) of the second. The file itself says what one block means, in `decode_block` and
/// `encode_block`.
macro_rules! block_format {
    ($codec:ident, $ty:ident) => {
        /// Weights per block.
        pub const BLOCK_LEN: usize = crate::Type::$ty.block_len();
        /// Bytes per block.
        pub const BLOCK_BYTES: usize = crate::Type::$ty.block_bytes();

        #[doc = concat!("Codec of [`Type::", stringify!($ty), "`](crate::Type::", stringify!($ty), ").")]
        #[derive(Clone, Copy, Debug)]
        pub struct $codec;

        impl crate::Codec for $codec {
            fn ty(&self) -> crate::Type {
                crate::Type::$ty
            }

            fn decode(&self, bytes: &[u8], out: &mut [f32]) {
                crate::block::decode_blocks(bytes, out, decode_block);
            }

            fn encode(&self, x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
                crate::block::encode_blocks(x, importance, out, encode_block);
            }
        }
    };
}
pub(crate) use block_format;

/// Calls `decode` for each block of `B` bytes and its `N` weights.
#[inline]
pub(crate) fn decode_blocks<const B: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; B], &mut [f32; N]),
) {
    let (blocks, _) = bytes.as_chunks::<B>();
    let (weights, _) = out.as_chunks_mut::<N>();
    for (block, weights) in blocks.iter().zip(weights) {
        decode(block, weights);
    }
}

/// Calls `encode` for each `N` weights of `x` and their importances, and appends its blocks to `out`. The weights it
/// sees are finite: NaN has become 0, and magnitudes are clipped to [`LIMIT`]. The importances it sees are
/// [`relative`].
#[inline]
pub(crate) fn encode_blocks<const B: usize, const N: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    out: &mut Vec<u8>,
    encode: impl Fn(&[f32; N], Option<&[f32; N]>) -> [u8; B],
) {
    let (weights, _) = x.as_chunks::<N>();
    let (importance, _) = importance.unwrap_or_default().as_chunks::<N>();
    out.reserve(weights.len().saturating_mul(B));
    for (b, weights) in weights.iter().enumerate() {
        let finite = weights.map(|v| if v.is_nan() { 0.0 } else { v.clamp(-LIMIT, LIMIT) });
        out.extend_from_slice(&encode(&finite, importance.get(b).map(relative).as_ref()));
    }
}

/// The first of the weights with the largest magnitude (0 for a block of zeros), which sets a symmetric scale.
#[inline]
pub(crate) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |best: f32, &v| if v.abs() > best.abs() { v } else { best })
}

/// The smallest and largest weight, which set an affine scale.
#[inline]
pub(crate) fn range<const N: usize>(x: &[f32; N]) -> (f32, f32) {
    // Comparisons, not `min` and `max`, which may give either of two zeros.
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| {
        (if v < lo { v } else { lo }, if v > hi { v } else { hi })
    })
}

/// That weights which a block holds are encoded without any error, as searches should mostly manage. The block is made
/// of `seed`, but for what `set` sets.
#[cfg(test)]
pub(crate) fn assert_kept<const B: usize, const N: usize>(
    seed: usize,
    set: impl Fn(&mut [u8; B]),
    decode: impl Fn(&[u8; B], &mut [f32; N]),
    encode: impl Fn(&[f32; N], Option<&[f32; N]>) -> [u8; B],
) {
    let mut block = std::array::from_fn(|i| ((i + seed) * (i + 31) * 2_654_435 / 128) as u8);
    set(&mut block);
    let (mut x, mut back) = ([0.0; N], [0.0; N]);
    decode(&block, &mut x);
    decode(&encode(&x, None), &mut back);
    assert_eq!(back, x);
}

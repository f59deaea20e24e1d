//! IQ4_NL: 4-bit codes into a table of uneven levels, with a scale per 32 weights, 18 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scale, f16 |
//! | 2..18 | byte `j`: code `j` in the low nibble, code `j + 16` in the high one |
//!
//! `weight = d * LEVELS[code]`.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::lanes::Lanes;
use crate::nibbles;
use crate::symmetric::{self, Levels};

block_format!(Iq4Nl, IQ4_NL);

/// Offset of the scale `d`, f16.
pub const D: usize = 0;
/// Offset of the codes' nibbles.
pub const QS: usize = 2;

/// What the codes stand for, of IQ4_NL and IQ4_XS alike: closer together where weights are common (ggml's
/// `kvalues_iq4nl`).
pub const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// [`LEVELS`] for the search for a scale.
pub(crate) struct Uneven;

impl Levels for Uneven {
    const ENDS: [f32; 2] = [LEVELS[0] as f32, LEVELS[15] as f32];
    const SPACING: f32 = 24.0;

    #[inline(always)]
    fn nearest(v: Lanes) -> Lanes {
        let mut level = Lanes::of_all(Self::ENDS[0]);
        for neighbours in LEVELS.windows(2) {
            let (below, above) = (f32::from(neighbours[0]), f32::from(neighbours[1]));
            level += v.above((below + above) / 2.0) * (above - below);
        }
        level
    }
}

/// The codes of levels.
pub(crate) fn codes_of<const L: usize>(levels: &[i8; L]) -> [u8; L] {
    levels.map(|level| LEVELS.iter().filter(|&&below| below < level).count() as u8)
}

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    nibbles::unpack(&std::array::from_fn(|j| block[QS + j]))
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, code) in out.iter_mut().zip(codes(block)) {
        *out = d * f32::from(LEVELS[usize::from(code & 15)]);
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let (d, levels) = symmetric::encode_alone::<Uneven, BLOCK_LEN>(x, importance);
    block[D..QS].copy_from_slice(&d);
    block[QS..].copy_from_slice(&nibbles::pack(&codes_of(&levels)));
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0x88; BLOCK_BYTES];
        block[D..QS].copy_from_slice(&[0, 0x40]); // 2
        block[QS + 3] = 0xf0;
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[3], x[19], x[0]), (-254.0, 226.0, 2.0));
    }

    #[test]
    fn levels_have_their_codes() {
        let every: [u8; 16] = std::array::from_fn(|code| code as u8);
        assert_eq!(codes_of(&LEVELS), every);
        for (v, want) in
            [(-1e9, -127.0), (-23.0, -22.0), (6.9, 1.0), (7.1, 13.0), (101.1, 113.0), (1e9, 113.0)]
        {
            assert_eq!(Uneven::nearest(Lanes::of_all(v)).array(), [want; 8]);
        }
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for sign in [1.0, -1.0] {
            let x: [f32; BLOCK_LEN] = std::array::from_fn(|j| sign * f32::from(LEVELS[j * 5 % 16]) / 64.0);
            let mut back = [0.0; BLOCK_LEN];
            decode_block(&encode_block(&x, None), &mut back);
            assert_eq!(back, x);
        }
    }
}

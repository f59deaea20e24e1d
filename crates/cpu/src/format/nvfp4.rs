//! NVFP4 (`scale / 2 * LEVELS[q]`): blocks of 64, 8-bit floats as scales of 16 numbers each.

use cera_quant::Type;
use cera_quant::nvfp4::{LEVELS, QS, SCALES};

use super::{
    ActGroup, Format, NIBBLES, PANEL, biased, get_nibbles, load_byte, load_nibbles, look_up, put_nibbles,
    put_word, scaled, word,
};
use crate::simd::{STEPS, Simd};

/// Panel block: 2 groups of nibbles and 2 x 16 scales.
pub struct Nvfp4;

const GROUP_BYTES: usize = NIBBLES + 2 * PANEL;
const LOW_NIBBLES: u32 = 0x0f0f_0f0f;

/// What the file says is not a number, and ggml takes for 0.
const NAN: u8 = 127;

/// A scale's bits without the sign, which says nothing but that 255 is a number.
fn packed_scale(code: u8) -> u8 {
    if code == NAN { 0 } else { code & 127 }
}

/// A code of that scale.
fn file_scale(packed: u8) -> u8 {
    if packed == NAN { 255 } else { packed }
}

/// Half of the number with these bits: four of exponent, three of mantissa. They are those of a float that is 2^119 times
/// too small, subnormal ones included.
#[inline(always)]
fn half_scale<S: Simd>(s: S, code: S::I) -> S::F {
    s.mul(s.float_of(s.shl_i::<20>(code)), s.splat(const { f32::from_bits((119 + 127) << 23) }))
}

impl Format for Nvfp4 {
    const TYPE: Type = Type::NVFP4;
    type Group<S: Simd> = ([S::B; STEPS], [S::F; 2]);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[GROUP_BYTES * g..];
            // Of the 8 bytes of a half group, the low nibbles are steps 0 and 1, the high ones 2 and 3.
            let steps = std::array::from_fn(|j| {
                word(&block[QS + 16 * g + 8 * (j / 4)..], j % 2) >> (4 * (j / 2 % 2)) & LOW_NIBBLES
            });
            put_nibbles(&steps, row, part);
            for half in 0..2 {
                part[NIBBLES + PANEL * half + row] = packed_scale(block[SCALES + 2 * g + half]);
            }
        }
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[GROUP_BYTES * g..];
            let steps = get_nibbles(part, row);
            for half in 0..2 {
                let steps = &steps[4 * half..];
                for i in 0..2 {
                    put_word(&mut block[QS + 16 * g + 8 * half..], i, steps[i] | steps[i + 2] << 4);
                }
                block[SCALES + 2 * g + half] = file_scale(part[NIBBLES + PANEL * half + row]);
            }
        }
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[GROUP_BYTES * g..GROUP_BYTES * (g + 1)];
        // Levels are -12..=12; with 32 added, as `dots_of_halves` takes them.
        let w = look_up(s, const { &biased(&LEVELS, 32) }, load_nibbles(s, part, first));
        (w, [0, 1].map(|half| half_scale(s, load_byte(s, &part[NIBBLES..], half, first))))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, scales): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        let (low, high) = s.dots_of_halves(w, &a.q, &a.start.halves);
        scaled(s, high, scales[1], a, scaled(s, low, scales[0], a, acc))
    }
}

//! How each quantized format lies in a packed panel.
//!
//! A panel is 16 rows of a weight matrix, interleaved so that one vector holds four columns of each row
//! (a *step*); 8 steps make a group of 32 columns. A panel's *block* is what 16 blocks of the file become, and
//! it has exactly their size. Panels lie one after another, the blocks of a panel along its columns.
//!
//! | part of a group | bytes | holds |
//! |---|---|---|
//! | nibbles | 4 x 64 | low nibbles: step `c`, high nibbles: step `c + 4` of chunk `c` |
//! | single bits | 64 | bit `j` of a byte belongs to step `j` |
//! | pairs of bits | 2 x 64 | bits `2j` and `2j + 1` of chunk `h` belong to step `4h + j` |
//! | bytes | 8 x 64 | step by step |
//! | codes of fours | 2 x 64 | byte `j` of line `h`: step `4h + j` |
//! | codes of eights | 64 | byte `j`: steps `2j` and `2j + 1` |
//! | signs | 64 | as single bits; what `grid.rs` says of the last of each eight |
//!
//! Within 64 bytes, row `r` has bytes `4r..4r + 4`. To add a format: one file here that implements [`Format`],
//! and one line in `by_type`.

mod bits;
mod grid;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod mxfp4;
mod nvfp4;
mod pairs;
mod q2_k;
mod q3_k;
mod q4;
mod q4_k;
mod q5;
mod q5_k;
mod q6_k;
mod q8_0;

pub use bits::{Q1_0, Q2_0, Tq1_0, Tq2_0};
pub use iq1::{Iq1M, Iq1S};
pub use iq2::{Iq2S, Iq2Xs, Iq2Xxs};
pub use iq3::{Iq3S, Iq3Xxs};
pub use iq4::{Iq4Nl, Iq4Xs};
pub use mxfp4::Mxfp4;
pub use nvfp4::Nvfp4;
pub use q2_k::Q2K;
pub use q3_k::Q3K;
pub use q4::{Q4_0, Q4_1};
pub use q4_k::Q4K;
pub use q5::{Q5_0, Q5_1};
pub use q5_k::Q5K;
pub use q6_k::Q6K;
pub use q8_0::Q8_0;

use cera_quant::Type;

use crate::simd::{Bytes32, HalfStarts, STEPS, Simd, unroll};

/// Picks the format of a type for a function that is generic over it: `by_type!(ty, of)` is `of::<F>()`, an `Option`, and
/// `None` where the type is no format of this backend.
macro_rules! by_type {
    ($ty:expr, $of:ident) => {
        match $ty {
            Type::Q4_0 => $of::<$crate::format::Q4_0>(),
            Type::Q4_1 => $of::<$crate::format::Q4_1>(),
            Type::Q5_0 => $of::<$crate::format::Q5_0>(),
            Type::Q5_1 => $of::<$crate::format::Q5_1>(),
            Type::Q8_0 => $of::<$crate::format::Q8_0>(),
            Type::Q2_K => $of::<$crate::format::Q2K>(),
            Type::Q3_K => $of::<$crate::format::Q3K>(),
            Type::Q4_K => $of::<$crate::format::Q4K>(),
            Type::Q5_K => $of::<$crate::format::Q5K>(),
            Type::Q6_K => $of::<$crate::format::Q6K>(),
            Type::IQ4_NL => $of::<$crate::format::Iq4Nl>(),
            Type::IQ4_XS => $of::<$crate::format::Iq4Xs>(),
            Type::MXFP4 => $of::<$crate::format::Mxfp4>(),
            Type::IQ1_S => $of::<$crate::format::Iq1S>(),
            Type::IQ1_M => $of::<$crate::format::Iq1M>(),
            Type::IQ2_XXS => $of::<$crate::format::Iq2Xxs>(),
            Type::IQ2_XS => $of::<$crate::format::Iq2Xs>(),
            Type::IQ2_S => $of::<$crate::format::Iq2S>(),
            Type::IQ3_XXS => $of::<$crate::format::Iq3Xxs>(),
            Type::IQ3_S => $of::<$crate::format::Iq3S>(),
            Type::TQ1_0 => $of::<$crate::format::Tq1_0>(),
            Type::TQ2_0 => $of::<$crate::format::Tq2_0>(),
            Type::NVFP4 => $of::<$crate::format::Nvfp4>(),
            Type::Q1_0 => $of::<$crate::format::Q1_0>(),
            Type::Q2_0 => $of::<$crate::format::Q2_0>(),
            _ => None,
        }
    };
}

pub(crate) use by_type;

/// Rows of a panel.
pub const PANEL: usize = 16;
/// Columns of a group: activations share one scale.
pub const GROUP: usize = 32;

/// Rows whose groups lie between each other, so that a tile of rows is few streams of memory.
pub const QUAD: usize = 4;

/// Bytes of a group's nibbles in a panel.
pub const NIBBLES: usize = 256;
/// Bytes of a group's bit plane in a panel.
pub const PLANE: usize = 64;
/// Bytes of one f16 for each row of a panel.
pub const HALVES: usize = 2 * PANEL;

/// A group of 32 quantized activations: `x` is about `scale * q`.
#[derive(Clone, Copy, Default, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct ActGroup {
    /// The 32 bytes, each within -127..=127.
    pub q: Bytes32,
    /// `max |x| / 127`.
    pub scale: f32,
    /// The sum of the 32 bytes, times the scale.
    pub sum_scaled: f32,
    /// What formats with an offset start their sums from.
    pub start: Starts,
}

/// The sum of a group's 32 bytes times the offsets of formats, ready to be loaded into every lane: the product with
/// `w - 8` is the product with `w` that started at `-8 * sum`.
#[derive(Clone, Copy, Default, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Starts {
    /// `-8 * sum`.
    pub minus8: i32,
    /// `-16 * sum`.
    pub minus16: i32,
    /// `-128 * sum`.
    pub minus128: i32,
    /// The same of each half.
    pub halves: HalfStarts,
}

/// A quantized format on this backend: how it is packed, and how a group is unpacked and dotted.
pub trait Format: 'static {
    /// The file's type.
    const TYPE: Type;
    /// Groups in a block.
    const GROUPS: usize = Self::TYPE.block_len() / GROUP;
    /// Bytes of a panel's block.
    const PANEL_BYTES: usize = PANEL * Self::TYPE.block_bytes();

    /// A group of `LANES` rows in registers.
    type Group<S: Simd>: Copy;

    /// Stores one row's block at `row` of a panel's block.
    fn pack(block: &[u8], row: usize, panel: &mut [u8]);
    /// The inverse: the block of one row.
    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]);

    /// Loads group `g` of rows `first..first + LANES` of a panel's block.
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S>;
    /// Adds the group's dot product with a group of activations to `acc`, as the numeric contract says.
    fn accumulate<S: Simd>(s: S, w: &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F;
}

/// A row's group of 32 numbers of up to 8 bits: one u32 holds the four of a step.
pub type Steps = [u32; STEPS];

const LOW_NIBBLES: u32 = 0x0f0f_0f0f;

/// The little-endian u32 at `4 * i` of `bytes`.
pub fn word(bytes: &[u8], i: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&bytes[4 * i..4 * i + 4]);
    u32::from_le_bytes(b)
}

/// Stores a u32 at `4 * i` of `bytes`.
pub fn put_word(bytes: &mut [u8], i: usize, v: u32) {
    bytes[4 * i..4 * i + 4].copy_from_slice(&v.to_le_bytes());
}

/// Splits 16 bytes, whose low nibbles are numbers 0 to 15 and whose high nibbles are 16 to 31.
pub fn split_halves(bytes: &[u8]) -> Steps {
    std::array::from_fn(|j| (word(bytes, j % 4) >> (4 * (j / 4))) & LOW_NIBBLES)
}

/// The inverse of [`split_halves`].
pub fn join_halves(steps: &Steps, bytes: &mut [u8]) {
    for i in 0..4 {
        put_word(bytes, i, (steps[i] & LOW_NIBBLES) | (steps[i + 4] & LOW_NIBBLES) << 4);
    }
}

/// Stores the low nibbles of a row's group in a panel.
pub fn put_nibbles(steps: &Steps, row: usize, panel: &mut [u8]) {
    for c in 0..4 {
        let v = (steps[c] & LOW_NIBBLES) | (steps[c + 4] & LOW_NIBBLES) << 4;
        put_word(panel, 16 * c + row, v);
    }
}

/// The inverse of [`put_nibbles`].
pub fn get_nibbles(panel: &[u8], row: usize) -> Steps {
    std::array::from_fn(|j| (word(panel, 16 * (j % 4) + row) >> (4 * (j / 4))) & LOW_NIBBLES)
}

/// Stores bit 4 of a row's numbers in a plane of a panel.
pub fn put_bits(steps: &Steps, row: usize, plane: &mut [u8]) {
    let v = (0..STEPS).fold(0, |v, j| v | ((steps[j] >> 4) & 0x0101_0101) << j);
    put_word(plane, row, v);
}

/// The inverse of [`put_bits`]: numbers of 16 or 0.
pub fn get_bits(plane: &[u8], row: usize) -> Steps {
    std::array::from_fn(|j| ((word(plane, row) >> j) & 0x0101_0101) << 4)
}

/// Stores an f16 or another pair of bytes of a row.
pub fn put_half(bytes: &[u8], row: usize, panel: &mut [u8]) {
    panel[2 * row..2 * row + 2].copy_from_slice(&bytes[..2]);
}

/// The inverse of [`put_half`].
pub fn get_half(panel: &[u8], row: usize, bytes: &mut [u8]) {
    bytes[..2].copy_from_slice(&panel[2 * row..2 * row + 2]);
}

/// The f16 of rows `first..`, widened.
#[inline(always)]
pub fn load_halves<S: Simd>(s: S, panel: &[u8], first: usize) -> S::F {
    s.load_f16(bytemuck::cast_slice(&panel[2 * first..2 * (first + S::LANES)]))
}

/// Byte `i` of rows `first..`, where a panel has the bytes of its rows side by side.
#[inline(always)]
pub fn load_byte<S: Simd>(s: S, bytes: &[u8], i: usize, first: usize) -> S::I {
    s.load_u8(&bytes[PANEL * i + first..PANEL * i + first + S::LANES])
}

/// The nibbles of a group, as 8 vectors.
#[inline(always)]
pub fn load_nibbles<S: Simd>(s: S, panel: &[u8], first: usize) -> [S::B; STEPS] {
    let low = s.splat_b(0x0f);
    let mut w = [low; STEPS];
    for c in 0..4 {
        let v = s.load_b(&panel[64 * c + 4 * first..64 * c + 4 * (first + S::LANES)]);
        w[c] = s.and_b(v, low);
        w[c + 4] = s.and_b(s.shr_b::<4>(v), low);
    }
    w
}

/// The levels of a table, each plus `bias` without regard to the sign.
pub const fn biased(levels: &[i8; 16], bias: u8) -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (levels[i] as u8).wrapping_add(bias);
        i += 1;
    }
    table
}

/// What a table has for nibbles.
#[inline(always)]
pub fn look_up<S: Simd>(s: S, table: &[u8; 16], mut w: [S::B; STEPS]) -> [S::B; STEPS] {
    unroll!(i < STEPS of 8 { w[i] = s.lookup(table, w[i]); });
    w
}

/// Bits `2k` and `2k + 1` of each lane's byte as bits 4 and 5.
#[inline(always)]
pub fn high_pair<S: Simd>(s: S, v: S::I, k: usize) -> S::I {
    let v = match k {
        0 => v,
        1 => s.shr_i::<2>(v),
        2 => s.shr_i::<4>(v),
        _ => s.shr_i::<6>(v),
    };
    s.shl_i::<4>(s.and_i(v, s.splat_i(3)))
}

/// Adds the fifth bits to the nibbles.
#[inline(always)]
pub fn add_bits<S: Simd>(s: S, w: &mut [S::B; STEPS], plane: &[u8], first: usize) {
    let v = s.load_b(&plane[4 * first..4 * (first + S::LANES)]);
    let bit = s.splat_b(0x10);
    w[0] = s.or_b(w[0], s.and_b(s.shl_b::<4>(v), bit));
    w[1] = s.or_b(w[1], s.and_b(s.shl_b::<3>(v), bit));
    w[2] = s.or_b(w[2], s.and_b(s.shl_b::<2>(v), bit));
    w[3] = s.or_b(w[3], s.and_b(s.shl_b::<1>(v), bit));
    w[4] = s.or_b(w[4], s.and_b(v, bit));
    w[5] = s.or_b(w[5], s.and_b(s.shr_b::<1>(v), bit));
    w[6] = s.or_b(w[6], s.and_b(s.shr_b::<2>(v), bit));
    w[7] = s.or_b(w[7], s.and_b(s.shr_b::<3>(v), bit));
}

/// A group of numbers with one scale: `acc + isum * (w_scale * x_scale)`.
#[inline(always)]
pub fn scaled<S: Simd>(s: S, isum: S::I, scale: S::F, a: &ActGroup, acc: S::F) -> S::F {
    s.fma(s.to_f(isum), s.mul(scale, s.splat(a.scale)), acc)
}

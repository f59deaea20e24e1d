//! TQ1_0: -1, 0 and 1, five to a byte, with a scale per 256 weights, 54 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | byte `m`: weights `m`, `32 + m`, to `128 + m` |
//! | 32..48 | byte `m`: weights `160 + m`, `176 + m`, to `224 + m` |
//! | 48..52 | byte `m`: weights `240 + m`, `244 + m`, to `252 + m` |
//! | 52..54 | `d`, the scale, f16 |
//!
//! A byte is a fraction, of 256. Written in base 3 its digits are those of its weights, in order. It is rounded up, so
//! that each time it is tripled the next digit comes to stand before the point.
//!
//! `weight = (digit - 1) * d`.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::ternary;

block_format!(Tq1_0, TQ1_0);

/// Offset of the digits, 52 bytes.
pub const QS: usize = 0;
/// Offset of the scale `d`, f16.
pub const D: usize = 52;

/// The three runs of bytes: where each begins, how many they are, which is also how far apart the weights of a byte are,
/// and the first weight.
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 0), (32, 16, 160), (48, 4, 240)];
/// Digits in a byte; the last run has one fewer.
pub const DIGITS: usize = 5;

/// The digits of a byte (0..=2), in order of weights.
#[inline]
pub fn digits(byte: u8) -> [u8; DIGITS] {
    let mut fraction = byte;
    std::array::from_fn(|_| {
        let digit;
        [fraction, digit] = (3 * u16::from(fraction)).to_le_bytes();
        digit
    })
}

/// The byte of digits.
#[inline]
pub fn fraction(digits: [u8; DIGITS]) -> u8 {
    let number = digits.iter().fold(0u16, |number, &digit| 3 * number + u16::from(digit));
    (number * 256).div_ceil(3u16.pow(DIGITS as u32)) as u8
}

/// The digits of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    let mut codes = [0; BLOCK_LEN];
    for (begin, len, first) in RUNS {
        for (m, byte) in block[begin..begin + len].iter().enumerate() {
            for (code, digit) in codes[first + m..].iter_mut().step_by(len).zip(digits(*byte)) {
                *code = digit;
            }
        }
    }
    codes
}

/// The inverse of [`codes`].
pub fn pack(codes: &[u8; BLOCK_LEN]) -> [u8; D] {
    let mut bytes = [0; D];
    for (begin, len, first) in RUNS {
        for (m, byte) in bytes[begin..begin + len].iter_mut().enumerate() {
            let digit = |i: usize| codes.get(first + m + i * len).copied().unwrap_or(0);
            *byte = fraction(std::array::from_fn(digit));
        }
    }
    bytes
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, code) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(code as i8 - 1) * d;
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (d, codes) = ternary::encode(x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[QS..D].copy_from_slice(&pack(&codes));
    block[D..].copy_from_slice(&d);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..].copy_from_slice(&[0, 0x40]); // 2
        block[QS + 7] = 86; // just above a third of 256: the digits 1, 0, 0, 0, 0
        block[QS + 32 + 3] = 10; // just above 9 * 256 / 243: 0, 0, 1, 0, 0
        block[QS + 48 + 1] = 171; // just above two thirds: 2, 0, 0, 0
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[7], x[39], x[6]), (0.0, -2.0, -2.0));
        assert_eq!((x[163], x[195], x[211]), (-2.0, 0.0, -2.0));
        assert_eq!((x[241], x[245], x[253]), (2.0, -2.0, -2.0));
    }

    #[test]
    fn digits_survive_packing() {
        let codes: [u8; BLOCK_LEN] = std::array::from_fn(|i| (i * i / 7 % 3) as u8);
        let mut block = [0; BLOCK_BYTES];
        block[..D].copy_from_slice(&pack(&codes));
        assert_eq!(super::codes(&block), codes);
    }
}

//! The order of two-bit codes in Q2_K, Q3_K and Q6_K: in either half `h` of 128, byte `32 * h + l` has those of weights
//! `32 * p + l` (`p` in 0..4) of the half in bits `2p` and `2p + 1`.

use crate::QK_K;

/// Bytes of 256 pairs of bits.
pub(crate) const PAIRS_BYTES: usize = QK_K / 4;

/// The pairs of bits that begin at byte `at` of a block, in order of weights.
#[inline]
pub(crate) fn unpack<const B: usize>(block: &[u8; B], at: usize) -> [u8; QK_K] {
    let mut q = [0; QK_K];
    for (run, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (h, p) = (run / 4, run % 4);
        for (l, q) in q.iter_mut().enumerate() {
            *q = block[at + 32 * h + l] >> (2 * p) & 3;
        }
    }
    q
}

/// The inverse of [`unpack`], of the low two bits of each code.
#[inline]
pub(crate) fn pack(q: &[u8; QK_K]) -> [u8; PAIRS_BYTES] {
    std::array::from_fn(|byte| {
        let first = byte / 32 * 128 + byte % 32;
        (0..4).fold(0, |bits, p| bits | (q[first + 32 * p] & 3) << (2 * p))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_bit_codes_survive_packing() {
        let codes: [u8; QK_K] = std::array::from_fn(|i| (i * 7 / 3 % 4) as u8);
        assert_eq!(unpack(&pack(&codes), 0), codes);
    }

    #[test]
    fn places_are_as_documented() {
        let mut q = [0; QK_K];
        q[128 + 64 + 5] = 2;
        let bytes = pack(&q);
        assert_eq!(bytes[32 + 5], 2 << 4);
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 1);
    }
}

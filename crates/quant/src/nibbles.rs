//! The order that the formats of 32 share: byte `j` of 16 holds weight `j` in its low nibble and weight `j + 16` in
//! its high one. The 5-bit formats keep bit 4 of weight `j` in bit `j` of a little-endian word beside them.

/// Low nibbles, then high nibbles.
#[inline]
pub(crate) fn unpack(bytes: &[u8; 16]) -> [u8; 32] {
    let mut q = [0; 32];
    for (j, &byte) in bytes.iter().enumerate() {
        q[j] = byte & 15;
        q[j + 16] = byte >> 4;
    }
    q
}

/// The inverse of [`unpack`], of the low four bits of each code.
#[inline]
pub(crate) fn pack(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| q[j] & 15 | q[j + 16] << 4)
}

/// [`unpack`] with bit 4 of weight `j` from bit `j` of `high`.
#[inline]
pub(crate) fn unpack_5(bytes: &[u8; 16], high: u32) -> [u8; 32] {
    let mut q = unpack(bytes);
    for (j, q) in q.iter_mut().enumerate() {
        *q |= if high & 1 << j != 0 { 16 } else { 0 };
    }
    q
}

/// Bit 4 of each code, gathered into a word.
#[inline]
pub(crate) fn pack_bit_4(q: &[u8; 32]) -> u32 {
    q.iter().rev().fold(0, |word, q| word << 1 | u32::from(q >> 4 & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_bit_codes_survive_packing() {
        let codes: [u8; 32] = std::array::from_fn(|j| (j * 7 % 32) as u8);
        assert_eq!(unpack_5(&pack(&codes), pack_bit_4(&codes)), codes);
        assert_eq!(unpack(&pack(&codes)), codes.map(|q| q & 15));
    }

    #[test]
    fn places_are_as_documented() {
        let mut bytes = [0; 16];
        bytes[3] = 0xa5;
        let q = unpack_5(&bytes, 1 << 19 | 1 << 31);
        assert_eq!((q[3], q[19], q[31], q[15]), (5, 0x1a, 16, 0));
    }
}

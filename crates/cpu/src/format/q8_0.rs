//! Q8_0 (`d * q`, signed bytes): blocks of 32.

use cera_quant::Type;

use super::{ActGroup, Format, GROUP, PANEL, get_half, load_halves, put_half, put_word, scaled, word};
use crate::simd::{STEPS, Simd};

/// Where the scales lie in a panel's block.
const SCALES: usize = GROUP * PANEL;

/// Panel block: bytes, then 16 scales.
pub struct Q8_0;

impl Format for Q8_0 {
    const TYPE: Type = Type::Q8_0;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        put_half(block, row, &mut panel[SCALES..]);
        for j in 0..STEPS {
            put_word(panel, PANEL * j + row, word(&block[2..], j));
        }
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        get_half(&panel[SCALES..], row, block);
        for j in 0..STEPS {
            put_word(&mut block[2..], j, word(panel, PANEL * j + row));
        }
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        let mut w = [s.splat_b(0); STEPS];
        for (j, w) in w.iter_mut().enumerate() {
            *w = s.signed(s.load_b(&panel[64 * j + 4 * first..64 * j + 4 * (first + S::LANES)]));
        }
        (w, load_halves(s, &panel[SCALES..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed(w, &a.q, a.start.minus128), *d, a, acc)
    }
}

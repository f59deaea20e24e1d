//! Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3").
//!
//! Why this generator: it is a pure function of (seed, counter), so a draw can be repeated after preemption
//! without replaying a stream, and a device can compute the same number on its own. It needs ten rounds of two
//! 32 x 32 multiplications, has published test vectors, and no crate's release can change its stream.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Added to the key each round: the golden ratio and sqrt(3) - 1, as the paper has them.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// What a number is for. Each use has its own numbers, so that one does not shift those of another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Use {
    /// Which token is drawn.
    Token = 0,
    /// Whether XTC leaves the most likely tokens out.
    Xtc = 1,
}

/// Streams of numbers: `seed` is the key, `choice` the low half of the counter, the use the word above it.
#[derive(Debug, Clone)]
pub(crate) struct Philox {
    seed: u64,
    choice: u64,
}

impl Philox {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, choice: 0 }
    }

    /// This choice's number for a use: uniform on the multiples of 2^-53 in [0, 1).
    pub(crate) fn unit(&self, what: Use) -> f64 {
        let counter = [low(self.choice), high(self.choice), what as u32, 0];
        let [a, b, ..] = block(counter, [low(self.seed), high(self.seed)]);
        let bits = (u64::from(a) << 32 | u64::from(b)) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }

    /// The next choice begins.
    pub(crate) fn advance(&mut self) {
        self.choice = self.choice.wrapping_add(1);
    }
}

fn low(x: u64) -> u32 {
    x as u32
}

fn high(x: u64) -> u32 {
    (x >> 32) as u32
}

/// One block: four words from a 128-bit counter and a 64-bit key.
fn block(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [high(p1) ^ c[1] ^ key[0], low(p1), high(p0) ^ c[3] ^ key[1], low(p0)];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the paper's authors publish with Random123.
    #[test]
    fn known_answers() {
        assert_eq!(block([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(block([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            block([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn unit_is_uniform_enough_and_below_one() {
        let mut rng = Philox::new(7);
        let mut draw = || {
            rng.advance();
            rng.unit(Use::Token)
        };
        let draws: Vec<f64> = (0..100_000).map(|_| draw()).collect();
        assert!(draws.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        // Standard error is 0.2887 / sqrt(1e5) = 0.0009.
        assert!((mean - 0.5).abs() < 0.004, "mean {mean}");
        let mut bins = [0f64; 64];
        draws.iter().for_each(|u| bins[(u * 64.0) as usize] += 1.0);
        let expected = draws.len() as f64 / 64.0;
        let chi2: f64 = bins.iter().map(|n| (n - expected).powi(2) / expected).sum();
        // 63 degrees of freedom: 99.9 % lie under 103.
        assert!(chi2 < 103.0, "chi2 {chi2}");
    }
}

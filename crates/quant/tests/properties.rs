//! What holds for any bytes and any weights.

use cera_quant::{Error, Type, decode, encode, encode_with_importance};
use proptest::collection::vec;
use proptest::prelude::*;

/// The types that can be run.
fn run() -> impl Strategy<Value = Type> {
    let all: Vec<_> = Type::ALL.iter().copied().filter(|ty| ty.codec().is_some()).collect();
    proptest::sample::select(all)
}

fn is_quantized(ty: Type) -> bool {
    ty.block_len() > 1
}

/// The largest error that a sound encoding may leave in a block of `x`.
fn error_bound(ty: Type, x: &[f32]) -> f32 {
    let lo = x.iter().copied().fold(0.0, f32::min);
    let hi = x.iter().copied().fold(0.0, f32::max);
    let (largest, range) = (hi.max(-lo), hi - lo);
    // The f16 rounding of scales and minimums, relative and at the bottom.
    let rounding = largest / 1000.0 + 64.0 * 6e-8;
    rounding
        + match ty {
            Type::F32 => 0.0,
            Type::F16 => largest / 2048.0,
            Type::BF16 => largest / 256.0,
            // One step: the side that the extreme is not on is clipped by one.
            Type::Q4_0 => largest / 8.0,
            Type::Q5_0 => largest / 16.0,
            Type::Q8_0 => largest / 254.0,
            Type::Q4_1 => range / 30.0,
            Type::Q5_1 => range / 62.0,
            // The searches give the extremes up for the sake of the rest: some steps.
            Type::Q4_K => range / 5.0,
            Type::Q5_K => range / 10.0,
            Type::Q6_K => range / 20.0,
            Type::Q3_K => range / 4.0,
            Type::Q2_K => range / 2.5,
            Type::IQ4_NL => largest / 6.0,
            Type::IQ4_XS => largest / 6.0,
            // Up to 8 is clipped to 6, or half a step between 4 and 6.
            Type::MXFP4 => largest / 4.0,
            // The scales are from 2^-9 to 448, the values up to 6.
            Type::NVFP4 => largest / 4.0 + 2f32.powi(-11) + (largest - 6.0 * 448.0).max(0.0),
            Type::IQ3_S => largest / 2.5,
            // A sign may have to be wrong.
            Type::IQ3_XXS => largest,
            Type::IQ2_XXS | Type::IQ2_XS => 1.5 * largest,
            // Not every eight of levels is in the codebook.
            Type::IQ2_S | Type::IQ1_S | Type::IQ1_M => largest,
            Type::TQ1_0 | Type::TQ2_0 | Type::Q1_0 | Type::Q2_0 => largest,
            _ => panic!("{ty} has no codec"),
        }
}

proptest! {
    #[test]
    fn any_bytes_decode(ty in run(), mut bytes in vec(any::<u8>(), 0..2000)) {
        bytes.truncate(bytes.len() / ty.block_bytes() * ty.block_bytes());
        let mut out = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
        prop_assert_eq!(decode(ty, &bytes, &mut out), Ok(()));
    }

    #[test]
    fn slices_that_do_not_match_are_safe(ty in run(), bytes in vec(any::<u8>(), 0..600), len in 0usize..600) {
        let mut out = vec![0.0; len];
        ty.codec().unwrap().decode(&bytes, &mut out);
        let fits = bytes.len() % ty.block_bytes() == 0
            && bytes.len() / ty.block_bytes() * ty.block_len() == len;
        prop_assert_eq!(decode(ty, &bytes, &mut out).is_ok(), fits);
    }

    #[test]
    fn any_weights_encode_to_finite_ones(ty in run(), bits in vec(any::<u32>(), 0..600)) {
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let mut bytes = vec![];
        ty.codec().unwrap().encode(&x, None, &mut bytes);
        prop_assert_eq!(bytes.len(), x.len() / ty.block_len() * ty.block_bytes());
        let mut back = vec![0.0; x.len() / ty.block_len() * ty.block_len()];
        decode(ty, &bytes, &mut back).unwrap();
        prop_assert!(!is_quantized(ty) || back.iter().all(|v| v.is_finite()));
    }

    #[test]
    fn encoded_weights_come_back_near(
        ty in run(),
        scale in -20i32..=12,
        x in vec(-1.0f32..1.0, 512),
        lift in -1.0f32..1.0,
    ) {
        let x: Vec<f32> = x.into_iter().map(|v| (v + lift) * 2f32.powi(scale)).collect();
        let mut back = vec![0.0; x.len()];
        decode(ty, &encode(ty, &x).unwrap(), &mut back).unwrap();
        // Blocks of one weight are judged together.
        let block = ty.block_len().max(32);
        for (x, back) in x.chunks(block).zip(back.chunks(block)) {
            let bound = error_bound(ty, x);
            for (x, b) in x.iter().zip(back) {
                prop_assert!((x - b).abs() <= bound, "{}: {} came back as {}, bound {}", ty, x, b, bound);
            }
        }
    }

    #[test]
    fn what_was_decoded_encodes_no_worse(ty in run(), x in vec(-1.0f32..1.0, 256)) {
        // A second pass starts from weights that the format holds, so it has little to lose.
        let (mut once, mut twice) = (vec![0.0; 256], vec![0.0; 256]);
        decode(ty, &encode(ty, &x).unwrap(), &mut once).unwrap();
        decode(ty, &encode(ty, &once).unwrap(), &mut twice).unwrap();
        let error = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum() };
        prop_assert!(error(&once, &twice) <= error(&x, &once) * 0.5 + 1e-9, "{}", ty);
    }

    #[test]
    fn more_important_weights_lose_less(ty in run(), x in vec(-1.0f32..1.0, 512), which in 0usize..4) {
        // A quarter of the columns matters, the others hardly do.
        let importance: Vec<f32> = (0..256).map(|i| if i % 4 == which { 1e4 } else { 1.0 }).collect();
        let loss = |encoded: Vec<u8>| {
            let mut back = vec![0.0; x.len()];
            decode(ty, &encoded, &mut back).unwrap();
            let errors = x.iter().zip(&back).map(|(x, b)| f64::from(x - b).powi(2));
            errors.zip(importance.iter().cycle()).map(|(e, w)| e * f64::from(*w)).sum::<f64>()
        };
        if is_quantized(ty) {
            let with = encode_with_importance(ty, &x, &importance).unwrap();
            let smaller: Vec<f32> = importance.iter().map(|w| w / 1024.0).collect();
            prop_assert_eq!(&with, &encode_with_importance(ty, &x, &smaller).unwrap());
            prop_assert!(loss(with) <= loss(encode(ty, &x).unwrap()) * 1.01, "{}", ty);
        }
    }

    #[test]
    fn weights_that_spoil_a_block_are_named(ty in run(), index in 0usize..512, pick in 0usize..3) {
        let mut x = [0.5; 512];
        x[index] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][pick];
        let class = if pick == 0 { "NaN" } else { "infinite" };
        match encode(ty, &x) {
            Ok(_) => prop_assert!(!is_quantized(ty)),
            Err(error) => prop_assert_eq!(error, Error::NotFinite { ty, index, class }),
        }
    }
}

#[test]
fn refusals_name_the_numbers() {
    let mut out = [0.0; 64];
    let message = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert_eq!(message(decode(Type::Q8_1, &[], &mut [])), "tensor type Q8_1 is known but not supported");
    assert_eq!(
        message(decode(Type::Q8_0, &[0; 35], &mut out)),
        "35 bytes are not a whole number of Q8_0 blocks of 34 bytes"
    );
    assert_eq!(
        message(decode(Type::Q8_0, &[0; 34], &mut out)),
        "34 bytes of Q8_0 hold 32 weights, but the output has room for 64"
    );
    assert_eq!(
        message(encode(Type::Q4_K, &[0.0; 255]).map(drop)),
        "255 weights are not a whole number of Q4_K blocks of 256 weights"
    );
    assert_eq!(
        message(encode(Type::Q4_0, &[f32::INFINITY; 32]).map(drop)),
        "weight 0 is infinite, which Q4_0 cannot hold"
    );
    let weighed =
        |x: &[f32], importance: &[f32]| message(encode_with_importance(Type::Q4_0, x, importance).map(drop));
    assert_eq!(
        weighed(&[0.0; 96], &[1.0; 64]),
        "96 weights are not whole rows of 64 columns, or those not whole Q4_0 blocks of 32"
    );
    assert_eq!(
        weighed(&[0.0; 96], &[1.0; 48]),
        "96 weights are not whole rows of 48 columns, or those not whole Q4_0 blocks of 32"
    );
    assert_eq!(
        weighed(&[], &[]),
        "0 weights are not whole rows of 0 columns, or those not whole Q4_0 blocks of 32"
    );
    let mut importance = [1.0; 32];
    importance[5] = -1.0;
    assert_eq!(weighed(&[0.0; 32], &importance), "the importance of column 5 is negative");
    importance[5] = f32::NAN;
    assert_eq!(weighed(&[0.0; 32], &importance), "the importance of column 5 is NaN");
}

#[test]
fn zeros_stay_zeros() {
    for codec in Type::ALL.iter().filter_map(|ty| ty.codec()) {
        let mut back = [1.0; 512];
        decode(codec.ty(), &encode(codec.ty(), &[0.0; 512]).unwrap(), &mut back).unwrap();
        assert!(back.iter().all(|&v| v == 0.0), "{}", codec.ty());
    }
}

//! Golden's own decoders against those of the candidate path: written twice from the spec, equal on every code.

use karat_model::{Checkpoint, formats};
use karat_reference::decode;
use karat_tests::tiny_v4_files;

/// Equal as bits; NaN equals NaN whatever its payload.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn every_e4m3_and_e8m0_code() {
    for code in 0..=255u8 {
        let (a, b) = (decode::e4m3(code), formats::e4m3::decode(code));
        assert!(same(a, b), "E4M3 {code:#04x}: {a} and {b}");
        let (a, b) = (decode::e8m0(code), formats::e8m0::decode(code));
        assert!(same(a, b), "E8M0 {code:#04x}: {a} and {b}");
    }
}

#[test]
fn every_bf16_code() {
    for code in 0..=u16::MAX {
        let (a, b) = (decode::bf16(code), formats::bf16::decode(code));
        assert!(same(a, b), "BF16 {code:#06x}: {a} and {b}");
    }
}

#[test]
fn every_fp4_code_under_every_scale() {
    for code in 0..16u8 {
        let (a, b) = (decode::e2m1(code), formats::e2m1::decode(code));
        assert!(same(a, b), "E2M1 {code:#x}: {a} and {b}");
        let bytes = [code | code << 4; 16];
        for scale in 0..=255u8 {
            let mut theirs = [0f32; 32];
            formats::block::mxfp4_row(&bytes, &[scale], &mut theirs);
            let ours = decode::e2m1(code) * decode::e8m0(scale);
            assert!(theirs.iter().all(|&b| same(ours, b)), "MXFP4 {code:#x} under {scale}: {ours} and {}", theirs[0]);
            for global in [1.0, 0.5, 3.0, 0.0123, 1e-20, -7.7e3] {
                let mut theirs = [0f32; 16];
                formats::block::nvfp4_row(&bytes[..8], &[scale], global, &mut theirs);
                let ours = decode::nvfp4_value(code, scale, global);
                let equal = theirs.iter().all(|&b| same(ours, b));
                assert!(equal, "NVFP4 {code:#x} under {scale} and {global}: {ours} and {}", theirs[0]);
            }
        }
    }
}

#[test]
fn every_weight_of_a_checkpoint() {
    let model = Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap();
    let mut weights = 0;
    for expected in model.inventory() {
        let Ok(weight) = model.linear(&expected.name) else { continue };
        let (rows, cols) = (weight.rows, weight.cols);
        let mut theirs = vec![0f32; rows * cols];
        formats::decode_rows(&weight, 0, &mut theirs);
        let decoder = decode::Decoder::new(weight).unwrap();
        let mut ours = vec![0f32; cols];
        for (n, theirs) in theirs.chunks(cols).enumerate() {
            decoder.row(n, &mut ours);
            assert!(ours.iter().zip(theirs).all(|(&a, &b)| same(a, b)), "{} row {n}", expected.name);
        }
        weights += 1;
    }
    assert!(weights > 150, "{weights}");
}

use karat_model::checkpoint::{Dtype, Encoding, RawTensor, Weight};

use super::*;
use crate::backend::{Code, Matrix, Scales, Source, StoredValues};
use crate::linalg::{Isa, LANES, Stored};

#[test]
fn codes_have_the_values_of_the_format() {
    assert_eq!([0x00, 0x01, 0x08, 0x38, 0x7E, 0xB8].map(e4m3), [0.0, 0.001953125, 0.015625, 1.0, 448.0, -1.0]);
    assert!(e4m3(0x7F).is_nan() && e4m3(0xFF).is_nan());
    assert_eq!(e4m3(0x80).to_bits(), (-0f32).to_bits());
    assert_eq!([0, 1, 126, 127, 128, 254].map(e8m0).map(f64::from), [-127, -126, -1, 0, 1, 127].map(|n| 2f64.powi(n)));
    assert!(e8m0(255).is_nan());
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(e2m1), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    assert_eq!([9, 10, 11, 12, 13, 14, 15].map(e2m1), [-0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]);
    assert_eq!(bf16(0x3FC0), 1.5);
}

fn raw(dtype: Dtype, shape: &[usize], bytes: &'static [u8]) -> RawTensor<'static> {
    RawTensor { name: "w".into(), dtype, shape: shape.to_vec(), bytes }
}

fn weight(rows: usize, cols: usize, encoding: Encoding, data: RawTensor<'static>) -> Weight<'static> {
    Weight { name: "w".into(), rows, cols, encoding, data, scale: None, global_scale: None, input_scale: None }
}

fn decode(weight: Weight<'_>) -> Vec<Vec<f32>> {
    let d = Decoder::new(weight).unwrap();
    (0..d.rows())
        .map(|n| {
            let mut row = vec![0f32; d.cols()];
            d.row(n, &mut row);
            row
        })
        .collect()
}

#[test]
fn an_fp8_weight_takes_the_scale_of_its_block() {
    // 3 x 3 codes in blocks of 2 x 2, edge blocks partial; 0x38 is 1, 0x40 is 2.
    let data = raw(Dtype::F8E4M3, &[3, 3], &[0x38, 0x40, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x40]);
    let mut w = weight(3, 3, Encoding::Fp8Block { block: [2, 2] }, data);
    w.scale = Some(raw(Dtype::F8E8M0, &[2, 2], &[127, 128, 129, 130]));
    assert_eq!(decode(w.clone()), [[1.0, 2.0, 2.0], [1.0, 1.0, 2.0], [4.0, 4.0, 16.0]]);
    w.scale = Some(raw(Dtype::Bf16, &[2, 2], &[0x80, 0x3F, 0, 0x40, 0x40, 0x40, 0x80, 0x40]));
    assert_eq!(decode(w.clone()), [[1.0, 2.0, 2.0], [1.0, 1.0, 2.0], [3.0, 3.0, 8.0]]);
    w.scale = Some(raw(Dtype::F8E8M0, &[1, 2], &[127, 128]));
    assert!(Decoder::new(w.clone()).is_err());
    w.scale = None;
    assert!(Decoder::new(w).is_err());
}

#[test]
fn fp4_weights_read_the_low_nibble_first() {
    let mut bytes = [0u8; 32];
    bytes[0] = 0x21; // columns 0 and 1 of row 0: 0.5, 1
    bytes[16] = 0xF7; // columns 0 and 1 of row 1: 6, -6
    bytes[31] = 0x50; // columns 30 and 31 of row 1: 0, 3
    let data = raw(Dtype::Packed4, &[2, 16], Box::leak(Box::new(bytes)));
    let mut w = weight(2, 32, Encoding::Mxfp4, data);
    w.scale = Some(raw(Dtype::F8E8M0, &[2, 1], &[127, 126]));
    let got = decode(w.clone());
    assert_eq!((got[0][0], got[0][1], got[1][0], got[1][1], got[1][31]), (0.5, 1.0, 3.0, -3.0, 1.5));
    w.encoding = Encoding::Nvfp4;
    w.scale = Some(raw(Dtype::F8E4M3, &[2, 2], &[0x38, 0x38, 0x40, 0x48]));
    w.global_scale = Some(raw(Dtype::F32, &[], &[0, 0, 0, 0x3F]));
    let got = decode(w);
    assert_eq!((got[0][0], got[0][1], got[1][0], got[1][1], got[1][31]), (0.25, 0.5, 6.0, -6.0, 6.0));
}

#[test]
fn plain_tensors_are_checked() {
    let good = raw(Dtype::Bf16, &[2], &[0x80, 0x3F, 0, 0x40]);
    assert_eq!(plain_f32(&good, 2).unwrap(), [1.0, 2.0]);
    assert!(plain_f32(&good, 3).is_err());
    assert!(plain_f32(&raw(Dtype::F8E8M0, &[1], &[1]), 1).is_err());
    let table = raw(Dtype::I64, &[1], &[5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(plain_index(&table, 1, 6).unwrap(), [5]);
    assert!(plain_index(&table, 1, 5).is_err());
    assert_eq!(plain_index(&raw(Dtype::I32, &[1], &[5, 0, 0, 0]), 1, 6).unwrap(), [5]);
}

/// Bytes from a seed: every code comes, also the ones that are no number.
fn random_bytes(n: usize, seed: u64) -> &'static [u8] {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let byte = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..n).map(byte).collect::<Vec<u8>>().leak()
}

/// Every way to store a weight of `rows` x `cols`, from a seed; all scales, also those whose products overflow or vanish.
fn stored(rows: usize, cols: usize, seed: u64) -> Vec<Weight<'static>> {
    let scale = |dtype, shape: [usize; 2], width: usize, seed| {
        Some(raw(dtype, &shape, random_bytes(shape[0] * shape[1] * width, seed)))
    };
    let mut all = vec![
        weight(rows, cols, Encoding::Plain, raw(Dtype::Bf16, &[rows, cols], random_bytes(2 * rows * cols, seed))),
        weight(rows, cols, Encoding::Plain, raw(Dtype::F32, &[rows, cols], random_bytes(4 * rows * cols, seed))),
    ];
    for block in [[128, 128], [2, 3], [1, 4], [16, 64]] {
        let codes = raw(Dtype::F8E4M3, &[rows, cols], random_bytes(rows * cols, seed));
        let shape = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
        for (dtype, width) in [(Dtype::F8E8M0, 1), (Dtype::Bf16, 2), (Dtype::F32, 4)] {
            let mut w = weight(rows, cols, Encoding::Fp8Block { block }, codes.clone());
            w.scale = scale(dtype, shape, width, seed ^ 5);
            all.push(w);
        }
    }
    let codes = raw(Dtype::Packed4, &[rows, cols.div_ceil(2)], random_bytes(rows * cols.div_ceil(2), seed));
    let mut w = weight(rows, cols, Encoding::Mxfp4, codes.clone());
    w.scale = scale(Dtype::F8E8M0, [rows, cols.div_ceil(32)], 1, seed ^ 6);
    all.push(w);
    let mut w = weight(rows, cols, Encoding::Nvfp4, codes);
    w.scale = scale(Dtype::F8E4M3, [rows, cols.div_ceil(16)], 1, seed ^ 7);
    w.global_scale = Some(raw(Dtype::F32, &[], &[0x9A, 0x99, 0x19, 0x3E]));
    all.push(w);
    all
}

#[test]
fn panels_have_the_bits_of_rows_on_every_instruction_set() {
    for (rows, cols) in [(16, 256), (7, 1), (16, 31), (33, 160), (5, 130), (64, 600)] {
        for (i, w) in stored(rows, cols, cols as u64).into_iter().enumerate() {
            let decoder = Decoder::new(w).unwrap();
            let mut by_rows = vec![0f32; rows * cols];
            by_rows.chunks_exact_mut(cols).enumerate().for_each(|(n, row)| decoder.row(n, row));
            for (&isa, first, k0) in
                Isa::available().iter().flat_map(|isa| [(isa, 0, 0), (isa, rows / 2, 0), (isa, 0, 128)])
            {
                let (lanes, ks) = (first..rows.min(first + LANES), k0.min(cols)..cols.min(k0 + 300));
                let mut single = vec![[f32::NAN; LANES]; ks.len()];
                let mut wide = vec![[f64::NAN; LANES]; ks.len()];
                decoder.panel(isa, lanes.clone(), ks.clone(), &mut single);
                decoder.panel(isa, lanes.clone(), ks.clone(), &mut wide);
                for (k, (single, wide)) in ks.zip(single.iter().zip(&wide)) {
                    for lane in 0..LANES {
                        let want = if lane < lanes.len() { by_rows[(first + lane) * cols + k] } else { 0.0 };
                        let got = single[lane];
                        let place =
                            format!("storage {i}, {isa:?}, row {} of {rows}, input {k} of {cols}", first + lane);
                        // Weights that are not finite are refused before.
                        if !want.is_finite() {
                            continue;
                        }
                        assert!(got.to_bits() == want.to_bits(), "{place}: {got:e}, {want:e}");
                        assert!(wide[lane].to_bits() == f64::from(want).to_bits(), "{place}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_that_is_not_finite_is_found() {
    for (rows, cols) in [(40, 64), (3, 257), (1, 1)] {
        for (i, w) in (1..9).flat_map(|seed| stored(rows, cols, seed)).enumerate() {
            let decoder = Decoder::new(w).unwrap();
            let mut row = vec![0f32; cols];
            let mut bad = |n: &usize| {
                decoder.row(*n, &mut row);
                row.iter().any(|v| !v.is_finite())
            };
            for first in [0, rows / 2] {
                assert_eq!(decoder.bad_row(first..rows), (first..rows).find(&mut bad), "storage {i}, {rows} x {cols}");
            }
        }
    }
    // Scales and codes that are all right.
    let mut w = weight(2, 32, Encoding::Mxfp4, raw(Dtype::Packed4, &[2, 16], &[0xF7; 32]));
    w.scale = Some(raw(Dtype::F8E8M0, &[2, 1], &[252, 0]));
    assert_eq!(Decoder::new(w.clone()).unwrap().bad_row(0..2), None);
    // 6 * 2^126 is past f32, and 4 * 2^126 would be too: the largest codes decide.
    w.scale = Some(raw(Dtype::F8E8M0, &[2, 1], &[0, 253]));
    assert_eq!(Decoder::new(w.clone()).unwrap().bad_row(0..2), Some(1));
    w.data = raw(Dtype::Packed4, &[2, 16], &[0x22; 32]);
    assert_eq!(Decoder::new(w).unwrap().bad_row(0..2), None);
}

/// What is handed to a backend, read value by value as its documentation says.
fn by_form(it: &StoredValues<'_>, n: usize, k: usize, cols: usize) -> f32 {
    let value = |code: Code, bytes: &[u8], row: usize, at: usize, width: usize| {
        let row = &bytes[row * code.bytes(width)..][..code.bytes(width)];
        match code {
            Code::F32 => f32::from_le_bytes(row[4 * at..][..4].try_into().unwrap()),
            Code::Bf16 => bf16(u16::from_le_bytes([row[2 * at], row[2 * at + 1]])),
            Code::E4m3 => e4m3(row[at]),
            Code::E8m0 => e8m0(row[at]),
            Code::E2m1 => e2m1(row[at / 2] >> (4 * (at % 2))),
        }
    };
    let own = value(it.code, it.codes, n, k, cols);
    let Some(scales) = &it.scales else { return own };
    let [high, wide] = scales.block;
    let scale = value(scales.code, scales.bytes, (scales.above + n) / high, k / wide, cols.div_ceil(wide));
    if scales.code == Code::E4m3 { own * scale * scales.all } else { own * scale }
}

#[test]
fn what_a_backend_is_handed_has_the_values_of_the_rows() {
    let kept = std::sync::OnceLock::new();
    for (rows, cols) in [(16, 256), (7, 1), (33, 160), (5, 131)] {
        for (i, w) in stored(rows, cols, cols as u64 + 3).into_iter().enumerate() {
            let decoder = Decoder::new(w).unwrap();
            for part in [0..rows, rows / 3..rows, 1..rows.div_ceil(2)] {
                let form = decoder.form(part.clone());
                assert!(Matrix::new(part.len(), cols, Source::Stored(form), &kept).fits(), "storage {i}, {part:?}");
                let mut row = vec![0f32; cols];
                for n in part.clone() {
                    decoder.row(n, &mut row);
                    for (k, want) in row.iter().enumerate() {
                        let got = by_form(&form, n - part.start, k, cols);
                        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                        assert!(same, "storage {i}, row {n} of {part:?}, input {k}: {got:e}, {want:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_weight_of_other_sizes_than_it_says_does_not_fit() {
    let kept = std::sync::OnceLock::new();
    let decoders: Vec<_> = stored(33, 160, 1).into_iter().map(|w| Decoder::new(w).unwrap()).collect();
    for decoder in &decoders {
        let form = decoder.form(0..33);
        let fits = |n, k, form| Matrix::new(n, k, Source::Stored(form), &kept).fits();
        assert!(fits(33, 160, form));
        assert!(!fits(34, 160, form) && !fits(33, 162, form));
        if let Some(scales) = form.scales {
            let short = Scales { bytes: &scales.bytes[1..], ..scales };
            let none = Scales { block: [0, 1], ..scales };
            for scales in [short, none] {
                assert!(!fits(33, 160, StoredValues { scales: Some(scales), ..form }));
            }
        }
    }
    let panels = vec![0.0; 3 * 16 * 5];
    assert!(Matrix::new(33, 5, Source::Panels(&panels), &kept).fits());
    assert!(!Matrix::new(32, 5, Source::Panels(&panels), &kept).fits());
}

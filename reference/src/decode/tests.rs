use karat_model::checkpoint::{Dtype, Encoding, RawTensor, Weight};

use super::*;

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

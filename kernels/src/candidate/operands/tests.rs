//! Every code and its value by hand; the kernels' launches are tested on a device.

use super::*;

#[test]
fn every_value_of_e4m3_has_its_code() {
    for code in 0..=255_u8 {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
        let value =
            if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * f32::exp2((exponent - 7) as f32) };
        let value = if code & 0x80 == 0 { value } else { -value };
        if code & 0x7f != 0x7f {
            assert_eq!(e4m3(&[value]).unwrap(), [code], "{value}");
        }
    }
    for wrong in [0.001, 449.0, 17.5, 1.01, f32::INFINITY] {
        assert!(e4m3(&[wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn three_terms_hold_an_f32_and_one_is_its_rounding() {
    let v = [1.0 / 3.0, -7.123_456, 1e-3];
    let all = terms(&v, 3);
    for (i, v) in v.iter().enumerate() {
        let sum: f32 = (0..3).rev().map(|t| values(&all[t * 3 + i..=t * 3 + i])[0]).sum();
        assert_eq!(sum.to_bits(), v.to_bits());
    }
    assert_eq!(terms(&v, 1), bits(&v));
}

#[test]
fn filling_up_and_cutting_are_each_others_inverse() {
    let from: Vec<u8> = (1..=12).collect();
    let wide = fill(&from, (2, 3), (4, 5));
    assert_eq!(wide.len(), 2 * 4 * 5);
    assert_eq!(wide[..10], [1, 2, 3, 0, 0, 4, 5, 6, 0, 0]);
    assert!(wide[10..20].iter().all(|v| *v == 0));
    assert_eq!(cut(&wide, (4, 5), (2, 3)), from);
}

#[test]
fn powers_of_two_keep_their_values_as_e4m3_scales() {
    let scales: Vec<u8> = (110..=127).collect();
    let (codes, global) = scales_in_e4m3(&scales, "w").unwrap();
    assert_eq!(codes.len(), 2 * scales.len());
    for (pair, scale) in codes.chunks_exact(2).zip(&scales) {
        let code = pair[0];
        assert_eq!(pair[1], code);
        let (exponent, mantissa) = (i32::from(code >> 3), f32::from(code & 7));
        let value =
            if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * f32::exp2((exponent - 7) as f32) };
        assert_eq!(value * global, f32::exp2(f32::from(*scale) - 127.0));
    }
    assert!(scales_in_e4m3(&[100, 118], "w").is_err());
    assert!(scales_in_e4m3(&[0, 3], "w").is_err());
}

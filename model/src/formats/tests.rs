//! Every code against the format's formula in f64 and against `float8`; every encoding against a search for the nearest.

use float8::F8E4M3;
use proptest::prelude::*;

use super::*;

/// E4M3 by its definition, in f64.
fn e4m3_formula(code: u8) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let (e, m) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    match (e, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * m * (-9f64).exp2(),
        _ => sign * (1.0 + m / 8.0) * f64::from(e - 7).exp2(),
    }
}

/// E2M1 by its definition, in f64.
fn e2m1_formula(code: u8) -> f64 {
    let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
    let (e, m) = (i32::from(code >> 1 & 3), f64::from(code & 1));
    if e == 0 { sign * m * 0.5 } else { sign * (1.0 + m / 2.0) * f64::from(e - 1).exp2() }
}

/// Nearest of `codes` to `x` by distance in f64, ties to the even code, saturating; `x` is finite and not negative.
fn nearest(x: f64, codes: &[(u8, f64)]) -> u8 {
    // Beyond the largest value f64 could no longer tell the distances apart.
    let x = x.min(codes[codes.len() - 1].1);
    codes
        .iter()
        .copied()
        .reduce(|best, c| {
            let (old, new) = ((best.1 - x).abs(), (c.1 - x).abs());
            if new < old || (new == old && c.0 % 2 == 0) { c } else { best }
        })
        .unwrap()
        .0
}

fn e4m3_codes() -> Vec<(u8, f64)> {
    (0..0x7F).map(|c| (c, e4m3_formula(c))).collect()
}

fn same(a: f32, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || (f64::from(a) == b && a.is_sign_negative() == b.is_sign_negative())
}

#[test]
fn e4m3_decodes_all_codes() {
    for code in 0..=255u8 {
        assert!(same(e4m3::decode(code), e4m3_formula(code)), "{code:#x}");
        assert!(same(e4m3::decode(code), F8E4M3::from_bits(code).to_f64()), "{code:#x} against float8");
    }
}

#[test]
fn e4m3_encodes_every_bf16_to_the_nearest() {
    let codes = e4m3_codes();
    for bits in 0..=u16::MAX {
        let x = bf16::decode(bits);
        let got = e4m3::encode(x);
        assert_eq!(got, F8E4M3::from_f32(x).to_bits(), "{x:e} against float8");
        if x.is_nan() {
            assert_eq!(got & 0x7F, e4m3::NAN);
        } else {
            let want = if x.is_infinite() { 0x7E } else { nearest(f64::from(x).abs(), &codes) };
            assert_eq!(got, want | if x.is_sign_negative() { 0x80 } else { 0 }, "{x:e}");
        }
    }
}

#[test]
fn e4m3_encodes_middles_to_even_and_their_neighbours_away() {
    for code in 0..0x7Eu8 {
        let middle = e4m3_formula(code).midpoint(e4m3_formula(code + 1)) as f32;
        let even = if code % 2 == 0 { code } else { code + 1 };
        assert_eq!(e4m3::encode(middle), even);
        assert_eq!(e4m3::encode(middle.next_down()), code);
        assert_eq!(e4m3::encode(middle.next_up()), code + 1);
        assert_eq!(e4m3::encode(-middle), even | 0x80);
        assert_eq!(e4m3::encode(e4m3_formula(code) as f32), code);
    }
    assert_eq!(e4m3::encode(f32::MAX), 0x7E);
    assert_eq!(e4m3::encode(f32::MIN_POSITIVE), 0);
}

#[test]
fn e8m0_decodes_all_bytes_and_encodes_only_powers_of_two() {
    for byte in 0..255u8 {
        let value = e8m0::decode(byte);
        assert_eq!(f64::from(value), f64::from(i32::from(byte) - 127).exp2(), "{byte}");
        assert_eq!(e8m0::encode(value), Some(byte));
        assert_eq!(e8m0::encode(-value), None);
        assert_eq!(e8m0::encode(value * 1.5), None);
    }
    assert!(e8m0::decode(255).is_nan());
    assert_eq!([0.0, f32::NAN, f32::INFINITY, f32::from_bits(1)].map(e8m0::encode), [None; 4]);
}

#[test]
fn e2m1_decodes_all_codes() {
    for code in 0..16u8 {
        assert!(same(e2m1::decode(code), e2m1_formula(code)), "{code}");
        assert_eq!(e2m1::unpack(e2m1::pack(code, 15 - code)), [code, 15 - code]);
    }
}

#[test]
fn e2m1_encodes_every_bf16_to_the_nearest() {
    let codes: Vec<(u8, f64)> = (0..8).map(|c| (c, e2m1_formula(c))).collect();
    for bits in 0..=u16::MAX {
        let x = bf16::decode(bits);
        let want = if x.is_nan() {
            None
        } else {
            let code = if x.is_infinite() { 7 } else { nearest(f64::from(x).abs(), &codes) };
            Some(code | if x.is_sign_negative() { 8 } else { 0 })
        };
        assert_eq!(e2m1::encode(x), want, "{x:e}");
    }
}

#[test]
fn e2m1_ties_are_those_of_the_spec() {
    // Spec 2.12, as values.
    let ties = [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)];
    for (x, want) in ties {
        assert_eq!(e2m1::decode(e2m1::encode(x).unwrap()), want);
        assert!(e2m1::decode(e2m1::encode(x.next_up()).unwrap()) > x);
        assert!(e2m1::decode(e2m1::encode(x.next_down()).unwrap()) < x);
    }
}

#[test]
fn bf16_decodes_all_codes_and_encodes_middles_to_even() {
    for bits in 0..=u16::MAX {
        let x = bf16::decode(bits);
        assert!(x.to_bits() == u32::from(bits) << 16 || x.is_nan());
        if x.is_nan() {
            assert!(bf16::decode(bf16::encode(x)).is_nan());
            continue;
        }
        assert_eq!(bf16::encode(x), bits);
        // The middle to the next magnitude: the f32 with the same upper half and the lower half 0x8000.
        if x.is_finite() {
            let middle = f32::from_bits(u32::from(bits) << 16 | 0x8000);
            assert_eq!(bf16::encode(middle), bits + bits % 2, "{middle:e}");
            assert_eq!(bf16::encode(f32::from_bits(middle.to_bits() - 1)), bits);
            assert_eq!(bf16::encode(f32::from_bits(middle.to_bits() + 1)), bits + 1);
        }
    }
}

#[test]
fn mxfp4_decodes_low_nibble_first_with_one_scale_for_32_columns() {
    // Columns 0..64 hold codes 0..16 four times; scales 2^0 and 2^-3.
    let codes: Vec<u8> = (0..32u8).map(|i| e2m1::pack(2 * i % 16, (2 * i + 1) % 16)).collect();
    let mut out = vec![0.0; 64];
    block::mxfp4_row(&codes, &[127, 124], &mut out);
    for (k, y) in out.iter().enumerate() {
        let want = e2m1_formula((k % 16) as u8) * if k < 32 { 1.0 } else { 0.125 };
        assert!(same(*y, want), "column {k}");
    }
}

#[test]
fn mxfp4_keeps_subnormal_results() {
    let mut out = vec![0.0; 32];
    block::mxfp4_row(&[0x21; 16], &[0], &mut out);
    assert_eq!(f64::from(out[0]), 0.5 * (-127f64).exp2());
    assert_eq!(f64::from(out[1]), (-127f64).exp2());
}

#[test]
fn nvfp4_multiplies_both_scales() {
    let codes: Vec<u8> = (0..16u8).map(|i| e2m1::pack(i, 15 - i)).collect();
    let mut out = vec![0.0; 32];
    block::nvfp4_row(&codes, &[0x7E, 0x01], 0.25, &mut out);
    for k in 0..32 {
        let code = if k % 2 == 0 { k / 2 } else { 15 - k / 2 } as u8;
        let scale = if k < 16 { 448.0 } else { (-9f64).exp2() };
        assert!(same(out[k], e2m1_formula(code) * scale * 0.25), "column {k}");
    }
}

#[test]
fn nvfp4_rounds_once() {
    // 1/3 isn't a short number: rounding scale * global before the code would show in the last place.
    let global = 1.0 / 3.0;
    for scale in 0..0x7Fu8 {
        for code in 0..16u8 {
            let mut out = vec![0.0; 16];
            block::nvfp4_row(&[e2m1::pack(code, code); 8], &[scale], global, &mut out);
            let want = (e2m1_formula(code) * e4m3_formula(scale) * f64::from(global)) as f32;
            assert_eq!(out[0].to_bits(), want.to_bits(), "code {code}, scale {scale:#x}");
        }
    }
}

proptest! {
    #[test]
    fn e4m3_is_nearest_for_any_f32(bits: u32) {
        let x = f32::from_bits(bits);
        let got = e4m3::encode(x);
        prop_assert_eq!(got, F8E4M3::from_f32(x).to_bits());
        if x.is_finite() {
            prop_assert_eq!(got & 0x7F, nearest(f64::from(x).abs(), &e4m3_codes()));
        }
    }

    #[test]
    fn e4m3_is_nearest_in_its_own_range(x in -500f32..500.0, shift in 0i32..24) {
        let x = x * (-f64::from(shift)).exp2() as f32;
        prop_assert_eq!(e4m3::encode(x) & 0x7F, nearest(f64::from(x).abs(), &e4m3_codes()));
    }

    #[test]
    fn bf16_is_nearest_for_any_finite_f32(x in proptest::num::f32::ANY) {
        prop_assume!(x.is_finite() && x.abs() < 3.3e38);
        let y = f64::from(bf16::round(x));
        let x = f64::from(x);
        let near = f64::from(bf16::decode(bf16::encode(x as f32).wrapping_add(1)));
        let far = f64::from(bf16::decode(bf16::encode(x as f32).wrapping_sub(1)));
        prop_assert!((y - x).abs() <= (near - x).abs() || near.is_nan());
        prop_assert!((y - x).abs() <= (far - x).abs() || far.is_nan());
    }
}

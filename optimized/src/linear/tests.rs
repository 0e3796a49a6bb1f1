use super::decode::{e4m3_value, e8m0_value, packed};

/// The format's definition in f64: 1-4-3, bias 7, no infinity.
#[test]
fn every_e4m3_code_has_its_value() {
    for code in 0..=255u8 {
        let (e, m) = (i32::from((code >> 3) & 15), f64::from(code & 7));
        let sign = if code & 128 == 0 { 1.0 } else { -1.0 };
        let magnitude = if e == 0 { m * 2f64.powi(-9) } else { (1.0 + m / 8.0) * 2f64.powi(e - 7) };
        let want = magnitude * sign;
        let got = f64::from(e4m3_value(code));
        assert!(if code & 0x7f == 0x7f { got.is_nan() } else { got == want && got.is_sign_negative() == (sign < 0.0) });
    }
}

#[test]
fn every_e8m0_scale_has_its_value() {
    for byte in 0..255u8 {
        assert_eq!(f64::from(e8m0_value(byte)), 2f64.powi(i32::from(byte) - 127));
    }
    assert!(e8m0_value(255).is_nan());
}

#[test]
fn packed_codes_come_low_nibble_first() {
    assert_eq!(packed(&[0x21, 0xf7]), [0.5, 1.0, 6.0, -6.0]);
}

use super::*;
use crate::storage::Rounding;
use crate::support::gaussian;

fn round(format: Format, values: &[f64]) -> Vec<f64> {
    let mut row = values.to_vec();
    format.round(&mut row);
    row
}

#[test]
fn values_by_hand() {
    // bf16 has 7 bits after the leading one: 1 + 1/256 lies between two, and goes to the even one.
    assert_eq!(
        round(Format::Bf16, &[1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -0.1]),
        [1.0, 1.0 + 1.0 / 64.0, -0.10009765625]
    );
    assert_eq!(round(Format::E4m3, &[500.0, 17.0, 2f64.powi(-9), 2f64.powi(-11)]), [448.0, 16.0, 2f64.powi(-9), 0.0]);
    // Largest 6: scale 1; codes 0, .5, 1, 1.5, 2, 3, 4, 6.
    assert_eq!(round(Format::Mxfp4(4), &[6.0, 2.4, -5.1, 0.2]), [6.0, 2.0, -6.0, 0.0]);
    // Largest 7 needs scale 2.
    assert_eq!(round(Format::Mxfp4(4), &[7.0, 1.4, 0.0, 0.0]), [8.0, 1.0, 0.0, 0.0]);
    // A block's largest value is exact under its own scale.
    assert_eq!(round(Format::E4m3Scaled(2), &[3.5, 0.0])[0], 3.5);
    assert_eq!(round(Format::E4m3Pow2(2), &[0.0, 0.0]), [0.0, 0.0]);
}

#[test]
fn blocks_are_apart_and_the_last_may_be_short() {
    let row = [100.0, 1.0, 0.01, 0.011, 5.0];
    let whole = round(Format::E4m3Pow2(2), &row);
    assert_eq!(whole[..2], round(Format::E4m3Pow2(2), &row[..2])[..]);
    assert_eq!(whole[4..], round(Format::E4m3Pow2(2), &row[4..])[..]);
}

#[test]
fn half_and_float8_agree() {
    for v in gaussian(3, 4000) {
        assert_eq!(round(Format::Bf16, &[v])[0], half::bf16::from_f64(f64::from(v as f32)).to_f64(), "{v}");
        let code = float8::F8E4M3::from_f32((v * 40.0) as f32).to_f64();
        assert_eq!(round(Format::E4m3, &[f64::from((v * 40.0) as f32)])[0], code, "{v}");
    }
}

#[test]
fn normal_values_cost_what_the_table_says() {
    let x: Vec<f32> = gaussian(5, 64 * 1024).iter().map(|v| *v as f32).collect();
    for (format, table) in [
        (Format::Bf16, Rounding::Bf16.rel_l2()),
        (Format::Tf32, Rounding::Tf32.rel_l2()),
        (Format::E4m3Pow2(128), Rounding::E4m3Pow2Scale.rel_l2()),
        (Format::E4m3Scaled(128), Rounding::E4m3F32Scale.rel_l2()),
        (Format::Nvfp4, Rounding::Nvfp4.rel_l2()),
        (Format::Mxfp4(32), Rounding::Mxfp4.rel_l2()),
    ] {
        let measured = cost(&x, 1024, |row| format.round(row)).unwrap();
        assert!((measured / table - 1.0).abs() < 0.07, "{}: {measured:e} against {table:e}", format.name());
    }
    assert_eq!(cost(&[0.0, f32::NAN], 2, |row| Format::Bf16.round(row)), None);
}

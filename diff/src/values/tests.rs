use super::*;
use crate::{Grid, Storage, measure_views};

fn decoded(code: Code, bytes: &[u8]) -> Vec<f32> {
    let values = Values::Stored(code, bytes);
    let mut out = Vec::new();
    for at in (0..values.len()).step_by(CHUNK) {
        let mut buffer = [0.0; CHUNK];
        out.extend_from_slice(f32::chunk(&values, at..(at + CHUNK).min(values.len()), &mut buffer));
    }
    out
}

/// Equal bits, or both NaN.
#[track_caller]
fn same(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "code {i:#x}: {a} {b}");
    }
}

#[test]
fn every_code_of_every_narrow_type_is_decoded() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    same(&decoded(Code::Bf16, &all), &(0..=u16::MAX).map(|c| half::bf16::from_bits(c).to_f32()).collect::<Vec<_>>());
    same(&decoded(Code::F16, &all), &(0..=u16::MAX).map(|c| half::f16::from_bits(c).to_f32()).collect::<Vec<_>>());
    let bytes: Vec<u8> = (0..=255).collect();
    let e4m3: Vec<f32> = bytes.iter().map(|c| float8::F8E4M3::from_bits(*c).to_f32()).collect();
    same(&decoded(Code::E4m3, &bytes), &e4m3);
    // Exact in f64: 2^(code - 127).
    let e8m0: Vec<f32> =
        bytes.iter().map(|c| if *c == 255 { f32::NAN } else { f64::exp2(f64::from(*c) - 127.0) as f32 }).collect();
    same(&decoded(Code::E8m0, &bytes), &e8m0);
}

#[test]
fn bytes_of_any_alignment_measure_as_their_values_do() {
    let (x, y) = crate::support::pair(4, 9 * 37);
    let shape = [9, 37];
    let grid = Grid::new(9, 37);
    let narrow = |v: &[f64]| v.iter().map(|v| half::bf16::from_f64(*v)).collect::<Vec<_>>();
    let (bx, by) = (narrow(&x), narrow(&y));
    let values = |v: &[half::bf16]| v.iter().map(|v| v.to_f32()).collect::<Vec<f32>>();
    // One byte in front: no element is aligned.
    let bytes = |v: &[half::bf16]| {
        std::iter::once(7u8).chain(v.iter().flat_map(|v| v.to_bits().to_le_bytes())).collect::<Vec<u8>>()
    };
    let (vx, vy, bx, by) = (values(&bx), values(&by), bytes(&bx), bytes(&by));
    let stored = |b| View::stored("t", &shape, Code::Bf16, b).unwrap();
    let held = |v| View { shape: &shape, values: Values::F32(v) };
    let run = |x, y| measure_views("t", x, y, Storage::Bf16, 4, &grid).unwrap();
    let expected = run(held(&vx), held(&vy));
    assert_eq!(run(stored(&bx[1..]), stored(&by[1..])), expected);
    assert_eq!(run(held(&vx), stored(&by[1..])), expected);
    let f32s: Vec<u8> = std::iter::once(7).chain(vx.iter().flat_map(|v| v.to_le_bytes())).collect();
    let f64s: Vec<u8> = vy.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
    let x = View::stored("t", &shape, Code::F32, &f32s[1..]).unwrap();
    let y = View::stored("t", &shape, Code::F64, &f64s).unwrap();
    assert_eq!(run(x, y), expected);
    assert!(View::stored("t", &shape, Code::Bf16, &bx).is_err());
    assert!(View::stored("t", &[usize::MAX, 2], Code::Bf16, &bx).is_err());
}

use super::decode::{e4m3_value, e8m0_value, packed};
use super::*;
use crate::plan::{Coded, Order, Stock, Store};

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

fn weight(rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols).map(|i| ((i * 7919 % 1013) as f32 - 506.0) / 377.0).collect()
}

/// Outputs by f64, and their size.
fn exact(x: &[f32], w: &[f32], k: usize) -> Vec<(f64, f64)> {
    let dot = |x: &[f32], w: &[f32]| {
        let terms = x.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b));
        terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
    };
    x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| dot(x, w))).collect()
}

/// Three bf16 terms hold an f32; fewer leave what they leave. The activations are bf16 values here.
#[test]
fn three_terms_are_the_weight() {
    let (k, rules) = (200, Stock::None.profile().numerics);
    let (w, x): (Vec<f32>, Vec<f32>) = (weight(5, k), weight(3, k).into_iter().map(bf16).collect());
    for (terms, most) in [(1, 4e-3), (2, 2e-5), (3, 1e-6)] {
        let linear = Linear::dense(w.clone(), k, &[Product::Terms(terms)]).unwrap();
        let out = linear.apply(Product::Terms(terms), &rules, &x);
        for (got, (want, size)) in out.iter().zip(exact(&x, &w, k)) {
            assert!((f64::from(*got) - want).abs() <= size * most, "{terms} terms");
        }
    }
}

#[test]
fn parts_are_rounded_as_they_are_added() {
    let (k, rules) = (96, Stock::None.profile().numerics);
    let (w, x) = (weight(4, k), weight(2, k));
    let linear = Linear::dense(w.clone(), k, &[Product::F32]).unwrap();
    let whole = linear.apply(Product::F32, &rules, &x);
    for count in [2, 4, 8] {
        let parts =
            |store| linear.apply_parts(Product::F32, &rules, Parts { count, store, order: Order::Ascending }, &x);
        for ((whole, exact), (f32, low)) in
            whole.iter().zip(exact(&x, &w, k)).zip(parts(Store::F32).iter().zip(parts(Store::Bf16)))
        {
            assert!((whole - f32).abs() <= exact.1 as f32 * 1e-6);
            assert_eq!(low, bf16(low), "the last addition is stored");
            assert!((whole - low).abs() <= exact.1 as f32 * 8e-3);
        }
    }
}

/// The nearest value with `bits` mantissa bits and no exponent under `least`, ties to even: the format's definition.
fn nearest(x: f32, bits: i32, least: i32) -> f32 {
    let x = f64::from(x);
    let step = 2f64.powi((x.abs().log2().floor() as i32).max(least) - bits);
    ((x / step).round_ties_even() * step) as f32
}

fn top(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |a, v| a.max(v.abs()))
}

/// E4M3 values under one scale: a power of two, or max / 448.
fn fp8(x: &[f32], top: f32, power: bool) -> Vec<f32> {
    let s = if power { 2f32.powf((top / 448.0).log2().ceil()) } else { top / 448.0 };
    x.iter().map(|v| nearest(v / s, 3, -6) * s).collect()
}

/// NVFP4 of a row: E2M1 values, an E4M3 scale for 16, one f32 scale for all.
fn nvfp4(row: &[f32]) -> Vec<f32> {
    let global = top(row) / (448.0 * 6.0);
    let block = |b: &[f32]| {
        let s = nearest(top(b) / 6.0 / global, 3, -6) * global;
        b.iter().map(|v| nearest((v / s).clamp(-6.0, 6.0), 1, 0) * s).collect::<Vec<f32>>()
    };
    row.chunks(16).flat_map(block).collect()
}

/// A stored NVFP4 weight by the format's definition, in f64: code * scale without the second scale, and that.
fn stored_nvfp4(weight: &karat_model::checkpoint::Weight<'_>) -> (Vec<f64>, f64) {
    const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let codes = weight.data.bytes.iter().flat_map(|b| [b & 15, b >> 4]);
    let scales = weight.scale.as_ref().unwrap().bytes;
    let scale = |code: u8| match (i32::from(code >> 3 & 15), f64::from(code & 7)) {
        (0, m) => m * 2f64.powi(-9),
        (e, m) => (1.0 + m / 8.0) * 2f64.powi(e - 7),
    };
    let value =
        |(i, c): (usize, u8)| E2M1[usize::from(c & 7)] * scale(scales[i / 16]) * if c & 8 == 0 { 1.0 } else { -1.0 };
    let global = weight.global_scale.as_ref().unwrap().bytes;
    (codes.enumerate().map(value).collect(), f64::from(f32::from_le_bytes(global.try_into().unwrap())))
}

/// The second scale is behind the sum, and nothing of the weight is rounded: what is left is an f32 sum's own error. A weight that
/// holds the second scale, rounded to bf16, is much farther away.
#[test]
fn the_second_scale_of_nvfp4_is_multiplied_in_behind_the_sum() {
    use karat_model::new::{Experts, Geometry, new_model_with};
    let rules = Stock::None.profile().numerics;
    let checkpoint = Checkpoint::from_memory("made", new_model_with(Geometry::Mini, 4, Experts::Nvfp4)).unwrap();
    let fp4 = Product::Coded(Coded { weight: WeightCodes::Stored, act: ActCodes::Nvfp4 });
    for name in ["layers.1.ffn.experts.2.w1", "layers.1.ffn.experts.2.w2"] {
        let weight = checkpoint.linear(name).unwrap();
        let (inside, global) = stored_nvfp4(&weight);
        assert_ne!(global.log2().fract(), 0.0, "a power of two would not tell");
        let k = weight.cols;
        let x: Vec<f32> = self::weight(3, k).into_iter().map(bf16).collect();
        let all = [Product::Bf16, fp4, Product::F32];
        let linear = Linear::load(&checkpoint, name, &all).unwrap();
        let wide = |x: &[f32], w: &[f64]| -> Vec<(f64, f64)> {
            let sum = |x: &[f32], w: &[f64]| {
                let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * w);
                terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
            };
            x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| sum(x, w))).collect()
        };
        let quantised: Vec<f32> = x.chunks(k).flat_map(nvfp4).collect();
        for (product, x_read) in [(Product::Bf16, &x), (fp4, &quantised), (Product::F32, &x)] {
            let right = wide(x_read, &inside);
            let check = |out: &[f32], most: f64| {
                out.iter()
                    .zip(&right)
                    .all(|(o, (sum, size))| (f64::from(*o) - sum * global).abs() <= size * global * most)
            };
            assert!(check(&linear.apply(product, &rules, &x), 1e-6), "{name} {product:?}");
            let parts = Parts { count: 2, store: Store::F32, order: Order::Ascending };
            assert!(check(&linear.apply_parts(product, &rules, parts, &x), 1e-6), "{name} {product:?} in parts");
        }
        // What an earlier contract was: the whole weight in bf16.
        let rounded: Vec<f32> = inside.iter().map(|v| bf16((v * global) as f32)).collect();
        let dense = Linear::dense(rounded, k, &[Product::F32]).unwrap();
        let (old, right) = (dense.apply(Product::F32, &rules, &x), wide(&x, &inside));
        let apart = old.iter().zip(&right).map(|(o, (sum, _))| (f64::from(*o) - sum * global).powi(2)).sum::<f64>();
        let size = right.iter().map(|(sum, _)| (sum * global).powi(2)).sum::<f64>();
        assert!((apart / size).sqrt() > 5e-4, "{:e}", (apart / size).sqrt());
    }
}

/// Every E2M1 code times every E4M3 scale is a bf16 value.
#[test]
fn packed_codes_times_e4m3_scales_are_exact_in_bf16() {
    for code in 0..16u8 {
        for scale in (0..=255u8).filter(|c| c & 0x7f != 0x7f) {
            let v = f64::from(packed(&[code])[0]) * f64::from(e4m3_value(scale));
            assert_eq!(f64::from(bf16(v as f32)), v, "{code} {scale}");
        }
    }
}

/// Codes whose rows are no whole blocks are padded: the result is that of the values quantised here by definition.
#[test]
fn coded_products_are_those_of_the_quantised_values() {
    let (k, rules) = (192, Stock::None.profile().numerics);
    let (w, x) = (weight(5, k), weight(3, k));
    // One scale for all five rows and 128 columns: rows are taken column block by column block.
    let square = |w: &[f32]| -> Vec<f32> {
        let block = |rows: &[f32], from: usize| {
            let to = k.min(from + 128);
            rows.chunks(k).flat_map(|r| r[from..to].to_vec()).collect::<Vec<f32>>()
        };
        let [left, right] = [0, 128].map(|from| {
            let values = block(w, from);
            fp8(&values, top(&values), true)
        });
        left.chunks(128).zip(right.chunks(64)).flat_map(|(l, r)| [l, r].concat()).collect()
    };
    let rows = |x: &[f32], block: usize, power: bool| -> Vec<f32> {
        x.chunks(k).flat_map(|r| r.chunks(block).flat_map(|b| fp8(b, top(b), power)).collect::<Vec<f32>>()).collect()
    };
    for (codes, act, w_quantised, x_quantised) in [
        (WeightCodes::Fp8Blocks, ActCodes::Q8, square(&w), rows(&x, 128, true)),
        (WeightCodes::Fp8Blocks, ActCodes::Mxfp8, square(&w), rows(&x, 32, true)),
        (WeightCodes::Fp8Blocks, ActCodes::Nvfp4, square(&w), x.chunks(k).flat_map(nvfp4).collect()),
        (WeightCodes::Fp8Rows, ActCodes::Fp8Rows, rows(&w, k, false), rows(&x, k, false)),
    ] {
        let product = Product::Coded(Coded { weight: codes, act });
        let linear = Linear::dense(w.clone(), k, &[product]).unwrap();
        let out = linear.apply(product, &rules, &x);
        assert_ne!((&w_quantised, &x_quantised), (&w, &x));
        for (got, (want, size)) in out.iter().zip(exact(&x_quantised, &w_quantised, k)) {
            assert!((f64::from(*got) - want).abs() <= size * 2e-6, "{product:?}: {got} {want}");
        }
    }
}

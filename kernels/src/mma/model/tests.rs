use half::bf16;

use super::super::find::claimed;
use super::*;

/// bf16 operands with these products, each a value times one, and an accumulator: what comes out.
fn sum(model: &MmaModel, c: f32, products: &[f32]) -> f32 {
    let mut a = vec![0; 16];
    for (a, p) in a.iter_mut().zip(products) {
        *a = bf16::from_f32(*p).to_bits();
        assert_eq!(bf16::from_bits(*a).to_f32(), *p, "no bf16");
    }
    f32::from_bits(model.accumulate(c.to_bits(), &a, &[0x3f80; 16]))
}

fn two(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

#[test]
fn what_fits_is_exact() {
    // Whole numbers below 2^24 in all: f64 and f32 have each sum whole, in any order.
    let mut state = 1_u32;
    let mut next = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i64::from((state >> 8) % (2 * n + 1)) - i64::from(n)
    };
    for form in Form::ALL {
        for bits in [23, 24, 25, 60] {
            for steps in [4, 8, form.products()] {
                let steps = (0..form.products()).map(|i| char::from(b'0' + (i / steps) as u8)).collect();
                let model = MmaModel { steps, bits, ..claimed(form) };
                for _ in 0..50 {
                    let values: Vec<(i64, i64)> = (0..form.products()).map(|_| (next(15), next(15))).collect();
                    let c = next(1000);
                    let operand = |v: i64| form.operand(v, 0).unwrap();
                    let a: Vec<u16> = values.iter().map(|v| operand(v.0)).collect();
                    let b: Vec<u16> = values.iter().map(|v| operand(v.1)).collect();
                    let exact = values.iter().map(|v| v.0 as f64 * v.1 as f64).sum::<f64>() + c as f64;
                    let found = f32::from_bits(model.accumulate((c as f32).to_bits(), &a, &b));
                    assert_eq!(f64::from(found), exact, "{form:?} {bits} {}", model.steps);
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_cut_off_addend_by_addend_and_once_more() {
    let model = claimed(Form::Bf16);
    // 15 of 2^-26 are 1.875 of f32's last places behind 1: each alone lies below 2^-25, and all are lost.
    let small = [two(-26); 15];
    assert_eq!(sum(&model, 1.0, &small), 1.0);
    // 15 of 2^-25 are kept, 3.75 last places, and the last three quarters are cut off.
    assert_eq!(sum(&model, 1.0, &[two(-25); 15]), 1.0 + 3.0 * two(-23));
    assert_eq!(sum(&model, -1.0, &[-two(-25); 15]), -1.0 - 3.0 * two(-23));
    assert_eq!(sum(&MmaModel { bits: 26, ..model.clone() }, 1.0, &small), 1.0 + two(-23));
    let nearest = MmaModel { round: Rounding::NearestEven, ..model.clone() };
    assert_eq!(sum(&nearest, 1.0, &[two(-25); 15]), 1.0 + 4.0 * two(-23));
    // 2^-26 below zero is one whole 2^-25 in two's complement, cut off: 15 of them, 3.75 last places, down to four.
    let down = MmaModel { align: Rounding::Down, round: Rounding::Down, ..model.clone() };
    assert_eq!(sum(&down, -1.0, &[-two(-26); 15]), -1.0 - 4.0 * two(-23));
    assert_eq!(sum(&down, 1.0, &small), 1.0);
    // The accumulator takes part: beside 2^20 nothing of it is left below 2^-5.
    assert_eq!(sum(&model, two(-6), &[two(20), -two(20)]), 0.0);
    let last = MmaModel { accumulator_last: true, ..model.clone() };
    assert_eq!(sum(&last, two(-6), &[two(20), -two(20)]), two(-6));
    // Added last it is added as f32s are: 1 + 1.5 last places is rounded to the even one, 2, where a step cuts off to 1.
    assert_eq!(sum(&last, 1.0, &[two(-23), two(-24)]), 1.0 + 2.0 * two(-23));
    assert_eq!(sum(&model, 1.0, &[two(-23), two(-24)]), 1.0 + two(-23));
    // A step of 8: what is small meets an empty accumulator in the second.
    let halves = MmaModel { steps: "0000000011111111".to_string(), ..model };
    let mut products = [0.0; 16];
    (products[0], products[1], products[8]) = (two(40), -two(40), 1.0);
    assert_eq!(sum(&halves, 0.0, &products), 1.0);
    products[7] = 3.0;
    assert_eq!(sum(&halves, 0.0, &products), 1.0);
}

#[test]
fn a_product_of_two_or_more_is_aligned_as_each_hypothesis_says() {
    let one_and_a_half = bf16::from_f32(1.5).to_bits();
    let with = |exponent: Exponent, c: f32| {
        let model = MmaModel { exponent, ..claimed(Form::Bf16) };
        let (mut a, mut b) = ([0; 16], [0; 16]);
        (a[0], b[0], a[1], b[1]) = (one_and_a_half, one_and_a_half, one_and_a_half | 0x8000, one_and_a_half);
        f32::from_bits(model.accumulate(c.to_bits(), &a, &b))
    };
    assert_eq!(with(Exponent::Operands, two(-25)), two(-25));
    assert_eq!(with(Exponent::Product, two(-25)), 0.0);
    assert_eq!(with(Exponent::Product, two(-24)), two(-24));
    // The least bf16 as 2^-133, or as 2^-7 of 2^-126.
    let least = |exponent: Exponent, q: i32| {
        let model = MmaModel { exponent, ..claimed(Form::Bf16) };
        let (mut a, mut b) = ([0; 16], [0; 16]);
        (a[0], b[0], a[1], b[1]) = (1, 0x7f00, 0x8001, 0x7f00);
        f32::from_bits(model.accumulate(two(q).to_bits(), &a, &b))
    };
    assert_eq!(least(Exponent::Operands, -31), two(-31));
    assert_eq!(least(Exponent::Fields, -31), 0.0);
    assert_eq!(least(Exponent::Fields, -24), two(-24));
    // 0 * 2^127 as 2^1.
    let zero = |zero_exponent| {
        let model = MmaModel { zero_exponent, ..claimed(Form::Bf16) };
        let mut b = [0; 16];
        b[0] = 0x7f00;
        f32::from_bits(model.accumulate(two(-25).to_bits(), &[0; 16], &b))
    };
    assert_eq!((zero(None), zero(Some(-126))), (two(-25), 0.0));
}

#[test]
fn small_numbers_signs_and_specials() {
    let model = claimed(Form::Bf16);
    let bits = |model: &MmaModel, c: u32, pairs: &[(u16, u16)]| {
        let (mut a, mut b) = ([0; 16], [0; 16]);
        pairs.iter().enumerate().for_each(|(i, pair)| (a[i], b[i]) = *pair);
        model.accumulate(c, &a, &b)
    };
    // 2^-75 * 2^-74 is the least f32; 2^-75 * 2^-75 half of it.
    let (e75, e74) = (bf16::from_f32(two(-75)).to_bits(), bf16::from_f32(two(-74)).to_bits());
    assert_eq!(bits(&model, 0, &[(e75, e74)]), 1);
    assert_eq!(bits(&model, 0, &[(e75, e75)]), 0);
    assert_eq!(bits(&model, 0, &[(e75, e75), (e75, e75)]), 1);
    assert_eq!(bits(&MmaModel { subnormal_results: false, ..model.clone() }, 0, &[(e75, e74)]), 0);
    assert_eq!(bits(&MmaModel { underflow_sign: true, ..model.clone() }, 0, &[(e75 | 0x8000, e75)]), 0x8000_0000);
    // 2^-149 less 2^-153 is below it; with 2^-126 as the least exponent 2^-152 is already lost.
    let e78 = bf16::from_f32(two(-78)).to_bits();
    let less = [(e75, e74), (e75 | 0x8000, e78)];
    assert_eq!(bits(&model, 0, &less), 0);
    assert_eq!(bits(&MmaModel { floor: Some(-126), ..model.clone() }, 0, &less), 1);
    // A subnormal accumulator, alone and flushed.
    assert_eq!(bits(&model, 5, &[]), 5);
    assert_eq!(bits(&MmaModel { subnormal_accumulators: false, ..model.clone() }, 5, &[]), 0);
    // The least normal comes out with its own field.
    assert_eq!(bits(&model, 0x0080_0000, &[]), 0x0080_0000);
    assert_eq!(bits(&model, 0x007f_ffff, &[(e75, e74)]), 0x0080_0000);
    assert_eq!(bits(&model, 0x8000_0000, &[(0, 0)]), 0);
    let all = [(0x8000_u16, 0x3f80_u16); 16];
    assert_eq!(bits(&MmaModel { negative_zero: true, ..model.clone() }, 0x8000_0000, &all), 0x8000_0000);
    assert_eq!(bits(&model, 0x8000_0000, &all), 0);
    let (inf, one, minus) = (0x7f80, 0x3f80, 0xbf80);
    assert_eq!(bits(&model, 0, &[(inf, one)]), 0x7f80_0000);
    assert_eq!(bits(&model, 0, &[(inf, minus)]), 0xff80_0000);
    for pairs in [&[(inf, one), (inf, minus)][..], &[(inf, 0)], &[(0x7fc0, one)]] {
        assert_eq!(bits(&model, 0, pairs), 0x7fff_ffff);
    }
    assert_eq!(bits(&model, 0x7fc1_2345, &[]), 0x7fff_ffff);
    // The largest f32 and 2^127, and what is larger by itself.
    let large = bf16::from_f32(two(127)).to_bits();
    assert_eq!(bits(&model, f32::MAX.to_bits(), &[(large, one)]), 0x7f80_0000);
    assert_eq!(bits(&model, f32::MAX.to_bits(), &[(large, one), (large, minus)]), f32::MAX.to_bits());
    let largest = MmaModel { overflow_infinite: false, ..model.clone() };
    assert_eq!(bits(&largest, 0, &[(large, 0x4100)]), f32::MAX.to_bits());
    assert_eq!(bits(&model, 0, &[(large, large), (large | 0x8000, large)]), 0);
}

#[test]
fn a_chain_goes_on_with_what_came_out() {
    let model = claimed(Form::Bf16);
    let (a, b) = ([0x3f80; 48], [0x3f80; 48]);
    assert_eq!(f32::from_bits(model.chain(2.5f32.to_bits(), &a, &b)), 50.5);
}

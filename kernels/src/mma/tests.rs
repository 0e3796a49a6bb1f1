//! Models in a device's place: what they do must be found, whatever it is.

use karat_model::Result;

use super::find::claimed;
use super::*;

fn steps(of: usize, products: usize) -> String {
    (0..products).map(|i| char::from(b'0' + (i / of) as u8)).collect()
}

/// Hardware as it was or might be.
fn machines() -> Vec<MmaModel> {
    let of = claimed;
    let bf16 = || of(Form::Bf16);
    vec![
        bf16(),
        of(Form::F16),
        // Two products of f16 instructions.
        MmaModel { steps: steps(16, 32), ..of(Form::E4m3) },
        // Native.
        MmaModel { exponent: Exponent::Fields, bits: 13, ..of(Form::E4m3) },
        // Volta, Ampere.
        MmaModel { bits: 23, steps: steps(4, 16), ..of(Form::F16) },
        MmaModel { bits: 24, steps: steps(8, 16), ..bf16() },
        // The second half first; odd ones behind even ones.
        MmaModel { steps: "1111111100000000".into(), ..bf16() },
        MmaModel { steps: "0101010101010101".into(), ..of(Form::F16) },
        MmaModel { align: Rounding::Down, round: Rounding::Down, ..bf16() },
        MmaModel { round: Rounding::NearestEven, ..of(Form::E4m3) },
        MmaModel { align: Rounding::NearestEven, bits: 27, ..of(Form::F16) },
        MmaModel { exponent: Exponent::Product, ..bf16() },
        MmaModel { exponent: Exponent::Fields, zero_exponent: Some(-126), floor: Some(-126), ..bf16() },
        MmaModel { zero_exponent: Some(-14), ..of(Form::F16) },
        MmaModel { floor: Some(-133), ..bf16() },
        MmaModel { subnormal_accumulator_as_normal: true, ..bf16() },
        MmaModel { subnormal_operands: false, ..of(Form::E4m3) },
        MmaModel { subnormal_results: false, subnormal_accumulators: false, subnormal_operands: false, ..bf16() },
        MmaModel { negative_zero: true, underflow_sign: true, overflow_infinite: false, nan: 0x7fc0_0000, ..bf16() },
    ]
}

#[test]
fn every_model_is_found_by_the_questions() {
    for model in machines() {
        let found = find(&model, model.form).unwrap();
        assert_eq!(found.model, model, "{:#?}", found.unexplained);
        assert_eq!(found.unexplained, Vec::<String>::new(), "{model:?}");
    }
}

#[test]
fn an_accumulator_that_comes_last_is_found_and_what_was_not_asked_is_told() {
    let model = MmaModel { accumulator_last: true, ..claimed(Form::Bf16) };
    let found = find(&model, Form::Bf16).unwrap();
    assert!(found.model.accumulator_last, "{:?}", found.unexplained);
    assert!(found.unexplained.iter().any(|what| what.contains("not asked")), "{:?}", found.unexplained);
}

#[test]
fn e4m3_as_sm_90_was_seen_to_add_it_is_found() {
    // Two steps of every second pair along K, and the accumulator behind them.
    let steps = "0011".repeat(8);
    for exponent in [Exponent::Operands, Exponent::Product] {
        let model = MmaModel { accumulator_last: true, steps: steps.clone(), exponent, ..claimed(Form::E4m3) };
        let found = find(&model, Form::E4m3).unwrap();
        assert_eq!((found.model, found.unexplained), (model, Vec::<String>::new()));
    }
}

/// Sums as no tensor core does: in f64, one rounding.
struct Exact;

impl Machine for Exact {
    fn run(&self, tiles: &Tiles) -> Result<Vec<u32>> {
        let value = |bits: u16| f64::from(half::bf16::from_bits(bits).to_f32());
        let one = |i: usize| {
            let (a, b, c) = tiles.of(i);
            let sum: f64 = a.iter().zip(b).map(|(a, b)| value(*a) * value(*b)).sum();
            ((sum + f64::from(f32::from_bits(c))) as f32).to_bits()
        };
        Ok((0..tiles.c.len()).map(one).collect())
    }
}

#[test]
fn what_no_model_explains_is_told_with_its_answers() {
    let found = find(&Exact, Form::Bf16).unwrap();
    assert!(!found.unexplained.is_empty());
    let raw = &found.raw["bits kept: product beside products"];
    assert!(raw.contains(&"q=40: 2b800000".to_string()), "{raw:?}");
}

#[test]
fn a_comparison_sees_one_bit_of_a_model() {
    for model in machines() {
        let same = compare(&model, &model, 2, 2).unwrap();
        assert_eq!(same.len(), 16);
        assert!(same.iter().all(|class| class.different == 0 && class.first.is_empty()));
        assert_eq!(same.iter().map(|class| class.compared).sum::<u64>(), 8 * (2 + 1) * 128);
    }
    let base = claimed(Form::Bf16);
    let others: [(&str, MmaModel); 9] = [
        ("bits", MmaModel { bits: 24, ..base.clone() }),
        ("steps", MmaModel { steps: steps(8, 16), ..base.clone() }),
        ("align", MmaModel { align: Rounding::Down, ..base.clone() }),
        ("round", MmaModel { round: Rounding::NearestEven, ..base.clone() }),
        ("exponent", MmaModel { exponent: Exponent::Product, ..base.clone() }),
        ("zero", MmaModel { zero_exponent: Some(-126), ..base.clone() }),
        ("subnormal operands", MmaModel { subnormal_operands: false, ..base.clone() }),
        ("fields", MmaModel { exponent: Exponent::Fields, ..base.clone() }),
        ("floor", MmaModel { floor: Some(-126), ..base.clone() }),
    ];
    for (what, other) in others {
        let classes = compare(&other, &base, 10, 2).unwrap();
        let apart: u64 = classes.iter().map(|class| class.different).sum();
        assert!(apart > 0, "{what}");
        let first = classes.iter().find_map(|class| class.first.first()).unwrap();
        assert_ne!(first.device, first.model);
        assert!(first.a.split(' ').count() >= 16 && first.c.len() == 8);
    }
}

#[test]
fn evidence_clears_its_own_chip_and_only_while_it_says_what_is_declared() {
    let here = Declared::of("sm_90a").unwrap();
    let class = Class { name: "any".into(), chain: 1, compared: 1_000_000, different: 0, first: Vec::new() };
    let form = |model: &MmaModel| FormEvidence {
        found: FormFound { model: model.clone(), unexplained: Vec::new(), raw: std::collections::BTreeMap::default() },
        compared: vec![class.clone()],
    };
    let device = crate::evidence::Place { name: "a GPU".into(), arch: "sm_90a".into(), driver: 13_000, processors: 1 };
    let good = MmaEvidence {
        format: 1,
        date: "2026-12-01".into(),
        device,
        images: [(crate::list::PROBE.to_string(), digest().unwrap())].into(),
        seconds: [0.0; 2],
        accumulation: here.models.iter().map(form).collect(),
    };
    assert_eq!(good.faults().unwrap(), Vec::<String>::new());
    assert_eq!(MmaEvidence::parse(&serde_json::to_string(&good).unwrap()).unwrap().accumulation.len(), 3);
    let target = Declared::of("sm_120a").unwrap();
    assert!(good.against(&target).unwrap().iter().any(|fault| fault.contains("clears no other chip")));
    type Break = fn(&mut MmaEvidence);
    let broken: [(Break, &str); 6] = [
        (|it| it.images.clear(), "changed since the run"),
        (|it| it.accumulation[0].found.model.bits = 24, "declares another model"),
        (|it| it.accumulation[1].found.unexplained.push("x".into()), "f16: no model explains x"),
        (|it| it.accumulation[1].compared[0].different = 3, "3 of 1000000 outputs"),
        (|it| it.accumulation[2].compared[0].compared = 9, "9 outputs were compared"),
        (|it| drop(it.accumulation.pop()), "e4m3: was not probed"),
    ];
    for (change, said) in broken {
        let mut it = good.clone();
        change(&mut it);
        let faults = it.faults().unwrap();
        assert!(faults.iter().any(|fault| fault.contains(said)), "{said}: {faults:?}");
    }
}

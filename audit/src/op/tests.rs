use std::sync::Arc;

use karat_diff::Verdict;
use karat_model::{Checkpoint, Geometry, new_model};

use karat_seam::Data;

use super::*;
use crate::repro::pick;

fn job(op: Op, patches: &[&str], phase: Phase) -> OpJob {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    let layer = first_layer(&checkpoint, op).unwrap();
    let patches = patches.iter().map(ToString::to_string).collect();
    OpJob { checkpoint, op, layer, stock: Stock::Official, patches, phase, threads: 2 }
}

fn answer(results: &[(Tap, Tensor)]) -> Answer {
    Answer { results: results.iter().map(|(tap, t)| (*tap, t.clone(), None)).collect() }
}

#[test]
fn rows_that_were_picked_have_the_bits_of_the_whole_run() {
    for op in [Op::Attend, Op::IndexScore, Op::Select, Op::QueryUp, Op::Experts, Op::Route] {
        let job = job(op, &[], Phase::Prefill);
        let whole = Operands::seeded(&job, 70, 1).unwrap();
        let all = Sides::run(&job, &whole).unwrap();
        let rows = [0, 9, 10, 41, 69];
        let part = |(tap, tensor): &(Tap, Tensor)| {
            let keeps = tap.is_per_entry() || (op == Op::Attend && *tap == Tap::AttnKv);
            (*tap, if keeps { tensor.clone() } else { pick(tensor, &rows) })
        };
        let of = |v: &[u32]| rows.iter().map(|i| v[*i]).collect();
        let given = whole.given.iter().map(part).collect();
        let picked = Operands { label: "picked".into(), given, positions: of(&whole.positions), ids: of(&whole.ids) };
        let some = Sides::run(&job, &picked).unwrap();
        for (all, some) in [(&all.golden, &some.golden), (&all.contract, &some.contract)] {
            for ((tap, all), (_, some)) in all.iter().zip(some) {
                assert_eq!(&pick(all, &rows), some, "{} {}", job.op.spec().name, tap.name());
            }
        }
    }
}

#[test]
fn golden_passes_everywhere_and_the_contract_is_its_own() {
    for spec in op_names() {
        let job = job(spec.op, &[], Phase::Prefill);
        let operands = Operands::seeded(&job, 40, 2).unwrap();
        let sides = Sides::run(&job, &operands).unwrap();
        let golden = sides.judge(&job, &answer(&sides.golden)).unwrap();
        assert_ne!(golden.verdict, Some(Verdict::Fail), "{}: {:?}", spec.name, golden.rows);
        let own = sides.judge(&job, &answer(&sides.contract)).unwrap();
        assert_ne!(own.verdict, Some(Verdict::Fail), "{}: {:?}", spec.name, own.rows);
        assert!(own.rows.iter().filter(|r| r.against == Side::Contract).all(|r| r.error == 0.0), "{}", spec.name);
    }
}

#[test]
fn the_contract_of_a_named_patch_is_judged_and_a_kernel_that_rounds_elsewhere_is_told() {
    let job = job(Op::Attend, &["mma-sparse-mla"], Phase::Decode);
    let operands = Operands::seeded(&job, 60, 4).unwrap();
    let sides = Sides::run(&job, &operands).unwrap();
    let own = sides.judge(&job, &answer(&sides.contract)).unwrap();
    let judged = own.rows.iter().find(|r| r.tap == Tap::AttnO && r.against == Side::Contract).unwrap();
    assert_eq!((own.verdict, judged.verdict.map(Verdict::is_pass)), (Some(Verdict::Pass), Some(true)));
    // Golden's own result rounds nowhere: near to golden, far from the contract.
    let golden = sides.judge(&job, &answer(&sides.golden)).unwrap();
    assert_eq!(golden.verdict, Some(Verdict::Fail), "{:?}", golden.rows);
    assert!(golden.notes[0].contains("rounds elsewhere"), "{:?}", golden.notes);
    // Half a percent in one head of one row is far beyond what bf16 costs there.
    let mut bad = sides.contract.clone();
    let Data::F32(values) = &mut bad[0].1.data else { panic!("attention's output is f32") };
    let at = 33 * operands.tensor(Tap::AttnQ).unwrap().width();
    values[at..at + 64].iter_mut().for_each(|v| *v *= 1.5);
    let found = sides.judge(&job, &answer(&bad)).unwrap();
    let row = found.rows.iter().find(|r| r.tap == Tap::AttnO && r.against == Side::Contract).unwrap();
    assert_eq!((row.verdict, row.worst), (Some(Verdict::Fail), Some(33)), "{row:?}");
}

#[test]
fn experts_that_nothing_explains_fail_and_slots_in_another_order_do_not() {
    let job = job(Op::Route, &[], Phase::Prefill);
    let operands = Operands::seeded(&job, 30, 5).unwrap();
    let sides = Sides::run(&job, &operands).unwrap();
    let k = sides.of(Side::Golden, Tap::FfnIdx).unwrap().width();
    let turned = |t: &Tensor| -> Tensor {
        let data = match &t.data {
            Data::F32(v) => Data::F32(v.chunks_exact(k).flat_map(|c| c.iter().rev().copied()).collect()),
            Data::I64(v) => Data::I64(v.chunks_exact(k).flat_map(|c| c.iter().rev().copied()).collect()),
            other => other.clone(),
        };
        Tensor::new(t.shape.clone(), data)
    };
    let turn = |(tap, t): &(Tap, Tensor)| (*tap, if *tap == Tap::FfnRouterLogits { t.clone() } else { turned(t) });
    let same: Vec<(Tap, Tensor)> = sides.golden.iter().map(turn).collect();
    let found = sides.judge(&job, &answer(&same)).unwrap();
    assert_ne!(found.verdict, Some(Verdict::Fail), "{:?}", found.rows);
    let mut wrong = sides.golden.clone();
    let (_, idx) = wrong.iter_mut().find(|(tap, _)| *tap == Tap::FfnIdx).unwrap();
    let Data::I64(values) = &mut idx.data else { panic!("experts are integers") };
    let experts = job.checkpoint.config().n_routed_experts as i64;
    // An expert that row 7 did not choose.
    let own = values[7 * k..8 * k].to_vec();
    values[7 * k] = (0..experts).find(|e| !own.contains(e)).unwrap();
    let found = sides.judge(&job, &answer(&wrong)).unwrap();
    let row = found.rows.iter().find(|r| r.tap == Tap::FfnIdx && r.against == Side::Golden).unwrap();
    assert_eq!((row.flips.map(|f| f.0), row.worst), (Some(1), Some(7)), "{row:?}");
}

//! Invariants I1 and I2 (spec section 3) inside the optimized path, bit for bit: chunking, decoding, threads, lanes,
//! visitors, replayed KV and replayed decisions change nothing. Tiny checkpoint: window 128, ratios 4 and 128, topk 16.

use std::collections::BTreeMap;

use karat_optimized::{History, Optimized, Plan, Stock};
use karat_seam::{
    Choices, Kv, KvPart, KvRows, KvView, Lane, LayerChoices, NoTaps, Op, OpSpec, Path, Phase, Recorder, Requests,
    Result, Routing, RowId, Sequence, Site, Tap, Tensor, TensorMut, Visitor, Want,
};
use proptest::prelude::*;

use crate::optimized_drive::{assert_same, ids, optimized, record, rows_in, run, tiny, turns};

/// Around the window, the ratios and 4 * topk.
const LENGTHS: [usize; 9] = [1, 3, 4, 5, 63, 65, 127, 128, 129];

fn one(sequence: Sequence) -> Requests {
    Requests { seqs: vec![sequence] }
}

#[test]
fn chunking_and_decoding_change_no_bit() {
    for stock in [Stock::None, Stock::Official] {
        for n in LENGTHS {
            let ids = ids(n, 7);
            let cold = record(&optimized(stock, &[], History::Cold, one(Sequence::prompt("a", ids.clone()))));
            for size in [3, 50] {
                let path = optimized(stock, &[], History::Chunked { size }, one(Sequence::prompt("a", ids.clone())));
                assert_same(&format!("{stock}, {n} tokens, chunks of {size}"), &cold, &record(&path));
            }
            let path = optimized(stock, &[], History::Decoded, one(turns("a", ids.clone(), &[0, n])));
            assert_eq!(rows_in(&path, Phase::Decode), n);
            assert_same(&format!("{stock}, {n} tokens, decoded"), &cold, &record(&path));
        }
    }
}

#[test]
fn threads_change_no_bit() {
    let requests =
        Requests { seqs: vec![Sequence::prompt("a", ids(131, 1)), turns("b", ids(70, 2), &[30, 20, 15, 5])] };
    for stock in [Stock::None, Stock::Official] {
        let plan = Plan { stock, patches: vec![], history: History::Decoded };
        let all =
            [1, 2, 4].map(|threads| record(&Optimized::new(tiny(), requests.clone(), plan.clone(), threads).unwrap()));
        assert_same(&format!("{stock}, 2 threads"), &all[0], &all[1]);
        assert_same(&format!("{stock}, 4 threads"), &all[0], &all[2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn any_history_of_the_same_ids_ends_in_the_same_state(
        cuts in proptest::collection::vec(1usize..60, 1..5),
        size in 1usize..70,
        official in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let stock = if official { Stock::Official } else { Stock::None };
        let ids = ids(cuts.iter().sum(), seed);
        let cold = record(&optimized(stock, &[], History::Cold, one(Sequence::prompt("a", ids.clone()))));
        // Another conversation beside it must not show (I6).
        let beside = turns("b", self::ids(9, seed + 1), &[4, 5]);
        for history in [History::Chunked { size }, History::Decoded, History::Cold] {
            let requests = Requests { seqs: vec![turns("a", ids.clone(), &cuts), beside.clone()] };
            let mut recorder = Recorder::all();
            run(&optimized(stock, &[], history, requests), &mut recorder);
            recorder.taps.retain(|(_, seq), _| *seq == 0);
            assert_same(&format!("{stock}, {history}, spans {cuts:?}"), &cold, &recorder);
        }
    }
}

/// Taps of a layer for sequence 0 as operands.
fn operand(cold: &Recorder, l: u16, tap: Tap, input: &Tensor) -> Option<(Tap, Tensor)> {
    if tap == Tap::Out {
        return Some((tap, input.clone()));
    }
    cold.get(Site::layer(l, tap), 0).map(|r| (tap, r.tensor.clone()))
}

/// Streams that enter each layer.
fn inputs(path: &Optimized, cold: &Recorder) -> Vec<Tensor> {
    let first = path.embed(&mut NoTaps).unwrap().data;
    let rest = (1..path.blocks().layers).map(|l| cold.get(Site::layer(l - 1, Tap::Out), 0).unwrap().tensor.clone());
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn ops_composed_by_the_graph_equal_a_run() {
    for stock in [Stock::None, Stock::Official] {
        let path = optimized(stock, &[], History::Cold, one(turns("a", ids(140, 3), &[90, 50])));
        let (whole, rows) = (record(&path), path.requests().rows());
        for (l, input) in (0u16..).zip(inputs(&path, &whole)) {
            let layer = path.layer(l).unwrap();
            for spec in OpSpec::graph().iter().filter(|s| layer.has_op(s.op)) {
                let operands: Vec<_> = spec.reads.iter().filter_map(|t| operand(&whole, l, *t, &input)).collect();
                for (tap, got) in layer.op(spec.op, &operands, &rows).unwrap() {
                    let want = whole.get(Site::layer(l, tap), 0).map(|r| &r.tensor);
                    let empty = got.rows() == 0 && want.is_none();
                    assert!(empty || Some(&got) == want, "{stock}: op {} writes another {}", spec.name, tap.name());
                }
            }
            assert_eq!(layer.has_op(Op::IndexScore), l == 1 || l == 3);
        }
    }
}

/// A run's own KV, layer by layer.
struct OwnKv(BTreeMap<(u16, KvPart), Vec<f32>>);

struct LayerKv<'a>(&'a OwnKv, u16);

impl KvView for LayerKv<'_> {
    fn rows(&self, _: u32, part: KvPart) -> Option<KvRows<'_>> {
        self.0.0.get(&(self.1, part)).map(|values| KvRows { first: 0, values })
    }
}

fn layer_inputs_run(path: &Optimized, cold: &Recorder, mut each: impl FnMut(u16, &karat_seam::Streams)) {
    let mut x = path.embed(&mut NoTaps).unwrap();
    for l in 0..path.blocks().layers {
        each(l, &x);
        x.data = cold.get(Site::layer(l, Tap::Out), 0).unwrap().tensor.clone();
    }
}

#[test]
fn its_own_kv_and_its_own_decisions_given_back_change_no_bit() {
    for stock in [Stock::None, Stock::Official] {
        let path = optimized(stock, &[], History::Cold, one(turns("a", ids(140, 4), &[100, 40])));
        let cold = record(&path);
        let mut kv = OwnKv(BTreeMap::new());
        let mut choices = Choices::default();
        for l in 0..path.blocks().layers {
            let get = |tap| cold.get(Site::layer(l, tap), 0).map(|r| r.tensor.clone());
            for (part, tap) in
                [(KvPart::Window, Tap::AttnKv), (KvPart::Entries, Tap::AttnCkv), (KvPart::IndexKeys, Tap::AttnIndexK)]
            {
                if let Some(t) = get(tap) {
                    kv.0.insert((l, part), t.as_f32("kv").unwrap().to_vec());
                }
            }
            let experts = get(Tap::FfnIdx).unwrap().as_i64("idx").unwrap().iter().map(|e| *e as u32).collect();
            let entries = get(Tap::AttnSelected).map_or(Vec::new(), |t| {
                let width = t.width().max(1);
                let marks = t.as_u8("selected").unwrap().chunks(width);
                marks.map(|m| (0..m.len() as u32).filter(|e| m[*e as usize] == 1).collect()).collect()
            });
            choices.by_layer.insert((l, 0), LayerChoices { experts, entries });
        }
        layer_inputs_run(&path, &cold, |l, x| {
            let view = LayerKv(&kv, l);
            let (mut a, mut b) = (Recorder::all(), Recorder::all());
            let mut lanes = [
                Lane { kv: Kv::Given(&view), ..Lane::new(x, &mut a) },
                Lane { routing: Routing::Forced(&choices), ..Lane::new(x, &mut b) },
            ];
            path.layer(l).unwrap().run(&mut lanes).unwrap();
            let mut own = Recorder::all();
            own.taps = cold
                .taps
                .iter()
                .filter(|((s, _), _)| s.block == karat_seam::Block::Layer(l))
                .map(|(k, v)| (*k, v.clone()))
                .collect();
            assert_same(&format!("{stock}, layer {l}, given kv"), &own, &a);
            assert_same(&format!("{stock}, layer {l}, forced decisions"), &own, &b);
        });
    }
}

#[test]
fn other_kv_and_other_decisions_are_used() {
    let path = optimized(Stock::Official, &[], History::Cold, one(Sequence::prompt("a", ids(40, 5))));
    let cold = record(&path);
    layer_inputs_run(&path, &cold, |l, x| {
        let mut kv = OwnKv(BTreeMap::new());
        let own = cold.get(Site::layer(l, Tap::AttnKv), 0).unwrap().tensor.clone();
        kv.0.insert((l, KvPart::Window), own.as_f32("kv").unwrap().iter().map(|v| -v).collect());
        let view = LayerKv(&kv, l);
        let forced = LayerChoices { experts: [5u32, 1, 0].repeat(40), entries: vec![] };
        let choices = Choices { by_layer: [((l, 0), forced)].into() };
        let (mut a, mut b) = (Recorder::all(), Recorder::all());
        let mut lanes = [
            Lane { kv: Kv::Given(&view), ..Lane::new(x, &mut a) },
            Lane { routing: Routing::Forced(&choices), ..Lane::new(x, &mut b) },
        ];
        path.layer(l).unwrap().run(&mut lanes).unwrap();
        let at = |r: &Recorder, tap| r.get(Site::layer(l, tap), 0).unwrap().tensor.clone();
        assert_eq!(at(&a, Tap::AttnQ), at(&cold, Tap::AttnQ));
        assert_ne!(at(&a, Tap::AttnO), at(&cold, Tap::AttnO), "layer {l}");
        assert_eq!(at(&b, Tap::FfnIdx).as_i64("idx").unwrap(), [5i64, 1, 0].repeat(40));
        assert_eq!(at(&b, Tap::AttnO), at(&cold, Tap::AttnO));
        assert_ne!(at(&b, Tap::FfnRouted), at(&cold, Tap::FfnRouted), "layer {l}");
    });
}

/// Changes the last row of a tap (every row sees itself; the first sees no entries), and records what comes after.
struct Nudge {
    tap: Tap,
    after: Recorder,
}

impl Visitor for Nudge {
    fn want(&self, at: Site) -> Want {
        if at.tap == self.tap { Want::Write } else { Want::Read }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if at.tap == self.tap && !rows.is_empty() {
            match &mut tensor.data {
                karat_seam::DataMut::F32(v) if at.tap == Tap::AttnIndexScore => v.iter_mut().for_each(|s| *s = -*s),
                karat_seam::DataMut::F32([.., last]) => *last += 1.0,
                karat_seam::DataMut::I64([.., last]) => *last = (*last + 1) % 8,
                karat_seam::DataMut::U8(v) => v.fill(0),
                _ => {}
            }
        }
        self.after.visit(at, rows, tensor)
    }
}

#[test]
fn what_a_visitor_writes_is_what_the_path_goes_on_with() {
    let path = optimized(Stock::Official, &[], History::Cold, one(Sequence::prompt("a", ids(80, 6))));
    let cold = record(&path);
    let x = path.embed(&mut NoTaps).unwrap();
    let input = karat_seam::Streams { data: cold.get(Site::layer(0, Tap::Out), 0).unwrap().tensor.clone(), ..x };
    let layer = path.layer(1).unwrap();
    for tap in Tap::ALL {
        let end = matches!(tap, Tap::Out | Tap::AttnLse) || tap.is_state();
        if end || cold.get(Site::layer(1, *tap), 0).is_none() {
            continue;
        }
        let mut see = Nudge { tap: *tap, after: Recorder::all() };
        layer.run(&mut [Lane::new(&input, &mut see)]).unwrap();
        let differs = |t: Tap| {
            see.after.get(Site::layer(1, t), 0).map(|r| &r.tensor) != cold.get(Site::layer(1, t), 0).map(|r| &r.tensor)
        };
        assert!(differs(*tap), "{} was not written", tap.name());
        assert!(Tap::ALL.iter().filter(|t| **t < *tap).all(|t| !differs(*t)), "{} changes earlier taps", tap.name());
        assert!(Tap::ALL.iter().any(|t| *t > *tap && !t.is_state() && differs(*t)), "{} is not used", tap.name());
    }
}

#[test]
fn lanes_do_not_see_each_other() {
    let path = optimized(Stock::Official, &[], History::Cold, one(turns("a", ids(70, 8), &[40, 30])));
    let x = path.embed(&mut NoTaps).unwrap();
    let values = x.data.as_f32("x").unwrap().iter().map(|v| v * 1.5).collect();
    let other = karat_seam::Streams { rows: x.rows.clone(), data: Tensor::f32(x.data.shape.clone(), values) };
    for l in 0..path.blocks().layers {
        let layer = path.layer(l).unwrap();
        let (mut alone, mut beside, mut rest) = (Recorder::all(), Recorder::all(), Recorder::all());
        layer.run(&mut [Lane::new(&x, &mut alone)]).unwrap();
        layer.run(&mut [Lane::new(&other, &mut rest), Lane::new(&x, &mut beside)]).unwrap();
        assert_same(&format!("layer {l}"), &alone, &beside);
    }
}

#[test]
fn a_lane_with_other_rows_is_refused() {
    let path = optimized(Stock::None, &[], History::Cold, one(Sequence::prompt("a", ids(4, 9))));
    let x = path.embed(&mut NoTaps).unwrap();
    let fewer = karat_seam::Streams { rows: x.rows[..3].into(), data: Tensor::f32([3, 4, 128], vec![0.0; 3 * 512]) };
    let mut see = NoTaps;
    let error = path.layer(0).unwrap().run(&mut [Lane::new(&fewer, &mut see)]).unwrap_err();
    assert!(error.to_string().contains("every row of the schedule (4 rows)"), "{error}");
}

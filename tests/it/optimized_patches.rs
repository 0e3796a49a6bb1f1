//! Speed patches as contracts: zero outside their phases and ops, of the predicted size inside, and counted.

use std::collections::{BTreeMap, BTreeSet};

use karat_optimized::{DEFAULT_PATCHES, History, Optimized, Stock, patches};
use karat_seam::{
    Block, Lane, Layer, NoTaps, Op, OpSpec, Path, Phase, Recorder, Requests, Sequence, Site, Streams, Tap, Tensor,
};

use crate::optimized_drive::{ids, optimized, record, row_of, turns};

/// 90 rows of prefill, 50 of decode.
fn requests() -> Requests {
    Requests { seqs: vec![turns("a", ids(140, 11), &[90, 50])] }
}

/// Phase of a row of a tap: the sequence turns to decode at row 90, and an entry belongs to the phase that completed it
/// (layer 2 and 4 have ratio 128, 1 and 3 ratio 4).
fn phase_of(site: Site, row: usize) -> Phase {
    let ratio = if matches!(site.block, Block::Layer(2 | 4)) { 128 } else { 4 };
    let position = if site.tap.is_per_entry() { (row + 1) * ratio - 1 } else { row };
    if position < 90 { Phase::Prefill } else { Phase::Decode }
}

fn inputs(path: &Optimized, whole: &Recorder) -> Vec<Tensor> {
    let first = path.embed(&mut NoTaps).unwrap().data;
    let rest = (1..path.blocks().layers).map(|l| whole.get(Site::layer(l - 1, Tap::Out), 0).unwrap().tensor.clone());
    std::iter::once(first).chain(rest).collect()
}

/// Operands of an op from a recording.
fn operands(spec: &OpSpec, whole: &Recorder, l: u16, input: &Tensor) -> Vec<(Tap, Tensor)> {
    let get = |tap: &Tap| match tap {
        Tap::Out => Some((*tap, input.clone())),
        _ => whole.get(Site::layer(l, *tap), 0).map(|r| (*tap, r.tensor.clone())),
    };
    spec.reads.iter().filter_map(get).collect()
}

/// A patch may be inert under one stock (its rule is there already) and must act under another.
#[test]
fn a_patch_changes_its_ops_in_its_phases_and_nothing_else() {
    let mut active: BTreeMap<&str, BTreeSet<Op>> = BTreeMap::new();
    for stock in [Stock::None, Stock::Official, Stock::Sglang] {
        let base = optimized(stock, &[], History::Cold, requests());
        let (whole, rows) = (record(&base), requests().rows());
        let inputs = inputs(&base, &whole);
        for patch in patches().iter().filter(|p| !p.exact) {
            let patched = optimized(stock, &[patch.name], History::Cold, requests());
            let active = active.entry(patch.name).or_default();
            for (l, input) in (0u16..).zip(&inputs) {
                let (a, b) = (base.layer(l).unwrap(), patched.layer(l).unwrap());
                for spec in OpSpec::graph().iter().filter(|s| a.has_op(s.op)) {
                    let operands = operands(spec, &whole, l, input);
                    let run = |layer: &dyn Layer| layer.op(spec.op, &operands, &rows).unwrap();
                    for ((tap, x), (_, y)) in run(&*a).iter().zip(&run(&*b)) {
                        for row in 0..x.rows() {
                            if row_of(x, row) == row_of(y, row) {
                                continue;
                            }
                            let phase = phase_of(Site::layer(l, *tap), row);
                            let what = format!("{stock}, {}: layer {l} {} row {row}", patch.name, tap.name());
                            assert!(patch.ops.contains(&spec.op), "{what}: outside its ops");
                            assert!(patch.phases.contains(&phase), "{what}: outside its phases");
                            active.insert(spec.op);
                        }
                    }
                }
            }
            if head(&base, &whole) != head(&patched, &whole) {
                assert!(patch.ops.contains(&Op::HeadLogits), "{stock}, {}: the head is outside its ops", patch.name);
                active.insert(Op::HeadLogits);
            }
        }
    }
    for patch in patches().iter().filter(|p| !p.exact) {
        let listed: BTreeSet<Op> = patch.ops.iter().copied().collect();
        assert_eq!(active[patch.name], listed, "{}: an op that it lists keeps every bit", patch.name);
    }
}

/// Logits of the streams that left the last layer of a recording.
fn head(path: &Optimized, whole: &Recorder) -> Tensor {
    let x = path.embed(&mut NoTaps).unwrap();
    let data = whole.get(Site::layer(path.blocks().layers - 1, Tap::Out), 0).unwrap().tensor.clone();
    path.head(&mut [Lane::new(&Streams { data, ..x }, &mut NoTaps)]).unwrap().remove(0)
}

/// A patch that only cuts prompts changes no bit: neither alone nor under patches that carry exact state.
#[test]
fn an_exact_patch_changes_no_bit() {
    let asked = "chunked-prefill:size=7";
    for stock in [Stock::None, Stock::Official] {
        let cold = record(&optimized(stock, &["bf16-mhc"], History::Cold, requests()));
        let path = optimized(stock, &["bf16-mhc", asked], History::Cold, requests());
        assert_eq!(path.coverage().largest_prefill, 7);
        crate::optimized_drive::assert_same(&format!("{stock}, {asked}"), &cold, &record(&path));
    }
    // State carried in bf16 is no exact state: now the pieces show.
    let state = "bf16-compressor-state";
    let cold = record(&optimized(Stock::Official, &[state], History::Cold, requests()));
    let cut = record(&optimized(Stock::Official, &[state, asked], History::Cold, requests()));
    let ckv = |r: &Recorder| r.get(Site::layer(1, Tap::AttnCkv), 0).unwrap().tensor.clone();
    assert_ne!(ckv(&cold), ckv(&cut));
}

#[test]
fn a_decode_patch_changes_no_prefill_bit_of_a_whole_run() {
    let base = record(&optimized(Stock::Official, &[], History::Cold, requests()));
    for patch in patches().iter().filter(|p| p.phases == [Phase::Decode]) {
        let path = optimized(Stock::Official, &[patch.name], History::Cold, requests());
        let patched = record(&path);
        let mut decode_differs = false;
        for ((site, seq), x) in base.taps.iter().filter(|((s, _), _)| !s.tap.is_state()) {
            let y = &patched.taps[&(*site, *seq)];
            for (row, id) in x.rows.iter().enumerate() {
                let differs = row_of(&x.tensor, row) != row_of(&y.tensor, row);
                let prefill = phase_of(*site, row) == Phase::Prefill;
                assert!(site.tap.is_per_entry() || path.phase_of(*id) == phase_of(*site, row));
                assert!(!(prefill && differs), "{}: {site} row {row}", patch.name);
                decode_differs |= differs;
            }
        }
        assert!(decode_differs, "{} is inert", patch.name);
    }
}

fn rel_l2(x: &[f32], y: &[f32]) -> f64 {
    let finite = || x.iter().zip(y).filter(|(a, b)| a.is_finite() && b.is_finite());
    let d: f64 = finite().map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (d / finite().map(|(a, _)| f64::from(*a).powi(2)).sum::<f64>()).sqrt()
}

/// The unquantised control and what it shows.
fn control() -> (Optimized, Recorder) {
    let base = optimized(Stock::None, &[], History::Cold, requests());
    let whole = record(&base);
    (base, whole)
}

/// Decode rows of one op under the control and with a patch, on the control's operands.
fn op_values(control: &(Optimized, Recorder), patch: &str, op: Op, tap: Tap, l: u16) -> (Vec<f32>, Vec<f32>) {
    let (base, whole) = control;
    let input = &inputs(base, whole)[l as usize];
    let patched = optimized(Stock::None, &[patch], History::Cold, requests());
    let get = |path: &Optimized| {
        let rows = requests().rows();
        let out = path.layer(l).unwrap().op(op, &operands(op.spec(), whole, l, input), &rows).unwrap();
        let t = out.into_iter().find(|(t, _)| *t == tap).unwrap().1;
        t.as_f32("op").unwrap()[90 * t.width()..].to_vec()
    };
    (get(base), get(&patched))
}

/// Both operands of the mixing product rounded to bf16: r^2 = c_f^2 + c_fn^2 with c = 1.7e-3 each (a bf16 rounding of
/// spread-out values), seen on the mixes, which the sigmoid of `post` gives back.
#[test]
fn bf16_mhc_costs_two_bf16_roundings_of_the_mixes() {
    let predicted = 1.7e-3 * 2f64.sqrt();
    let control = control();
    let (mut errors, mut sizes) = (0.0, 0.0);
    for l in 0..5 {
        let (x, y) = op_values(&control, "bf16-mhc", Op::HcAttnPre, Tap::HcAttnPost, l);
        let checkpoint = crate::optimized_drive::tiny();
        let raw = checkpoint.tensor(&format!("layers.{l}.hc_attn_base")).unwrap();
        let bias: Vec<f64> =
            raw.bytes.chunks_exact(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect();
        let mix = |v: f32| (f64::from(v) / (2.0 - f64::from(v))).ln();
        for (i, (a, b)) in x.iter().zip(&y).enumerate() {
            errors += (mix(*a) - mix(*b)).powi(2);
            sizes += (mix(*a) - bias[4 + i % 4]).powi(2);
        }
    }
    let measured = (errors / sizes).sqrt();
    println!("bf16-mhc: mixes rel-L2 {measured:.2e}, predicted {predicted:.2e}");
    assert!((0.5..1.5).contains(&(measured / predicted)), "{measured:e} against {predicted:e}");
}

/// Softmax attention of one decode row in f64 with q and keys rounded to bf16 and P rounded to bf16: the size that the
/// contract must have under an unquantised stock. Written from spec 2.9, not from the contract.
#[test]
fn mma_sparse_mla_costs_its_bf16_operands() {
    let control = control();
    let whole = &control.1;
    let checkpoint = crate::optimized_drive::tiny();
    for l in [0u16, 1, 2, 3] {
        let raw = checkpoint.tensor(&format!("layers.{l}.attn.attn_sink")).unwrap();
        let sink: Vec<f64> =
            raw.bytes.chunks_exact(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect();
        let get = |tap| whole.get(Site::layer(l, tap), 0).map(|r| r.tensor.clone());
        let (q, kv) = (get(Tap::AttnQ).unwrap(), get(Tap::AttnKv).unwrap());
        let (q, kv) = (q.as_f32("q").unwrap(), kv.as_f32("kv").unwrap());
        let entries = get(Tap::AttnCkv).map_or(Vec::new(), |t| t.as_f32("ckv").unwrap().to_vec());
        let marks = get(Tap::AttnSelected);
        let (mut errors, mut sizes) = (0.0, 0.0);
        for row in 90..140usize {
            let mut keys: Vec<&[f32]> = (row.saturating_sub(127)..=row).map(|p| &kv[p * 96..(p + 1) * 96]).collect();
            if let Some(t) = &marks {
                let row = &t.as_u8("selected").unwrap()[row * t.width()..(row + 1) * t.width()];
                keys.extend(
                    row.iter().enumerate().filter(|(_, m)| **m == 1).map(|(e, _)| &entries[e * 96..(e + 1) * 96]),
                );
            }
            for (h, sink) in sink.iter().enumerate() {
                let at = (row * 4 + h) * 96;
                let exact = attention(&q[at..at + 96], &keys, *sink, &f64::from, &|p| p);
                let round = |v: f32| f64::from(half::bf16::from_f32(v));
                let rounded = attention(&q[at..at + 96], &keys, *sink, &round, &|p| f64::from(half::bf16::from_f64(p)));
                errors += exact.iter().zip(&rounded).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
                sizes += exact.iter().map(|a| a * a).sum::<f64>();
            }
        }
        let predicted = (errors / sizes).sqrt();
        for options in ["", ":splits=1", ":splits=32:tile=8", ":scale=folded", ":exp=exp"] {
            let (x, y) = op_values(&control, &format!("mma-sparse-mla{options}"), Op::Attend, Tap::AttnO, l);
            let measured = rel_l2(&x, &y);
            println!("mma-sparse-mla{options}: layer {l} attn.o rel-L2 {measured:.2e}, predicted {predicted:.2e}");
            assert!((0.5..1.5).contains(&(measured / predicted)), "{options}: {measured:e} against {predicted:e}");
        }
        let (x, f32_partials) = op_values(&control, "mma-sparse-mla", Op::Attend, Tap::AttnO, l);
        let (_, bf16_partials) = op_values(&control, "mma-sparse-mla:partials=bf16", Op::Attend, Tap::AttnO, l);
        let added = rel_l2(&f32_partials, &bf16_partials);
        println!("mma-sparse-mla:partials=bf16: layer {l} adds {added:.2e} to {:.2e}", rel_l2(&x, &f32_partials));
        assert!(added > 3e-4 && added < 2.0 * 1.7e-3, "bf16 partials add {added:e}");
    }
}

fn attention(q: &[f32], keys: &[&[f32]], sink: f64, operand: &dyn Fn(f32) -> f64, p: &dyn Fn(f64) -> f64) -> Vec<f64> {
    let dot = |k: &[f32]| q.iter().zip(k).map(|(a, b)| operand(*a) * operand(*b)).sum::<f64>();
    let s: Vec<f64> = keys.iter().map(|k| dot(k) / 96f64.sqrt()).collect();
    let max = s.iter().copied().fold(f64::MIN, f64::max);
    let e: Vec<f64> = s.iter().map(|s| (s - max).exp()).collect();
    let den = e.iter().sum::<f64>() + (sink - max).exp();
    let value = |d: usize| e.iter().zip(keys).map(|(e, k)| p(*e) * operand(k[d])).sum::<f64>();
    (0..q.len()).map(|d| value(d) / den).collect()
}

/// FP8 x FP8: 2.6e-2 for each operand; relu and the sum over heads keep the size (spec 2.8: 4.5e-2 on random data). The
/// product rounded to bf16 adds one rounding of 1.7e-3.
#[test]
fn fp8_indexer_costs_two_fp8_roundings() {
    let predicted = 2.6e-2 * 2f64.sqrt();
    let (_, base) = control();
    for l in [1, 3] {
        let scores = |patch: &[&str]| {
            // The whole indexer: keys, queries and scores from the same layer input.
            let path = optimized(Stock::None, patch, History::Cold, requests());
            let x = path.embed(&mut NoTaps).unwrap();
            let data = base.get(Site::layer(l - 1, Tap::Out), 0).unwrap().tensor.clone();
            let x = karat_seam::Streams { data, ..x };
            let mut recorder = Recorder::all();
            path.layer(l).unwrap().run(&mut [karat_seam::Lane::new(&x, &mut recorder)]).unwrap();
            let t = recorder.get(Site::layer(l, Tap::AttnIndexScore), 0).unwrap().tensor.clone();
            t.as_f32("scores").unwrap()[90 * t.width()..].to_vec()
        };
        let (exact, fp8, bf16) = (scores(&[]), scores(&["fp8-indexer"]), scores(&["fp8-indexer:product=bf16"]));
        let (measured, added) = (rel_l2(&exact, &fp8), rel_l2(&fp8, &bf16));
        println!(
            "fp8-indexer: layer {l} scores rel-L2 {measured:.2e}, predicted {predicted:.2e}; bf16 product {added:.2e}"
        );
        assert!((0.5..1.5).contains(&(measured / predicted)), "{measured:e} against {predicted:e}");
        assert!((0.3..1.5).contains(&(added / 1.7e-3)), "bf16 product adds {added:e}");
    }
}

#[test]
fn coverage_counts_what_ran() {
    let requests = Requests { seqs: vec![turns("a", ids(20, 12), &[12, 8]), Sequence::prompt("b", ids(7, 13))] };
    let path = optimized(Stock::Official, &DEFAULT_PATCHES, History::Chunked { size: 5 }, requests);
    assert!(path.coverage().patches.iter().all(|p| (p.prefill, p.decode, p.largest_prefill) == (0, 0, 0)));
    crate::optimized_drive::run(&path, &mut NoTaps);
    let coverage = path.coverage();
    // a: chunks of 5, 5, 2 and 8 decode rows; b: 5, 2. Layers: 5, of which 2 CSA.
    assert_eq!((coverage.prefill_steps, coverage.decode_steps, coverage.largest_prefill), (5, 8, 5));
    let of = |name: &str| {
        let p = coverage.patches.iter().find(|p| p.name == name).unwrap();
        (p.prefill, p.decode, p.largest_prefill)
    };
    assert_eq!(of("bf16-mhc"), (5 * 2 * 5, 8 * 2 * 5, 5));
    assert_eq!(of("mma-sparse-mla"), (0, 8 * 5, 0));
    assert_eq!(of("fp8-indexer"), (0, 8 * 2 * 3, 0));
}

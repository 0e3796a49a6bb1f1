//! Query-sampled audit: from some rows and the KV pages that they read, a corrupted page is told from a bad kernel, at its
//! layer.
//!
//! The engine is golden (claims f32) or the stock path (claims official) on the recorded conversation, with a visitor that
//! changes one tensor on its way and lets the rest follow. Rows that are changed in the cache are none of the sampled ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[path = "sampled_sweep.rs"]
mod sweep;

use karat_audit::{Job, Quiet, TraceJob, audit_trace, requests_of};
use karat_bundle::{Bundle, Verdict};
use karat_diff::Claims;
use karat_model::Checkpoint;
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{DataMut, Lane, Path as Run, Requests, Result, RowId, Sequence, Site, Tap, TensorMut, Visitor, Want};
use karat_tests::{read_safetensors, unpack};
use karat_trace::{Header, ModelId, Order, Sample, TapGlob, TraceWriter};

/// Tokens of the conversation: 128-token entries among them, and more CSA entries than the indexer may choose.
const TOKENS: usize = 400;
/// Sampled positions: runs of different lengths, none of them in a page that is spoilt below.
const SAMPLED: [u32; 13] = [64, 231, 232, 280, 281, 282, 283, 330, 331, 360, 397, 398, 399];

fn model() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap())
}

fn requests() -> Requests {
    let ids = read_safetensors(&unpack("golden/transformers.safetensors"))["ids"].as_i64("ids").unwrap().to_vec();
    Requests { seqs: vec![Sequence::prompt("a", ids[..TOKENS].iter().map(|&v| v as u32).collect::<Vec<_>>())] }
}

/// What happens to rows of a tap.
type How = dyn Fn(&[RowId], &mut [f32], usize) + Sync;

/// Changes rows of one tap.
struct Spoil<'a, 'w> {
    at: Site,
    how: &'a How,
    inner: &'a mut Sample<'w>,
}

impl Visitor for Spoil<'_, '_> {
    fn want(&self, at: Site) -> Want {
        if at == self.at { Want::Write } else { self.inner.want(at) }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if at == self.at {
            let width = tensor.shape[1..].iter().product();
            let DataMut::F32(values) = &mut tensor.data else { panic!("{at}: not f32") };
            (self.how)(rows, values, width);
        }
        if self.inner.want(at) == Want::Skip { Ok(()) } else { self.inner.visit(at, rows, tensor) }
    }
}

/// A sampled trace of a path with one tap spoilt, judged.
fn judged(path: &dyn Run, claims: Claims, at: Site, how: &How) -> Bundle {
    judged_with(path, claims, at, how, (&SAMPLED, true))
}

fn judged_with(path: &dyn Run, claims: Claims, at: Site, how: &How, (sampled, cold): (&[u32], bool)) -> Bundle {
    let (place, checkpoint) = (tempfile::tempdir().unwrap(), model());
    let header =
        Header { model: ModelId::new(checkpoint.config_sha256(), checkpoint.weights_sha256()), ..Header::default() };
    let target = place.path().join("t");
    let mut writer = TraceWriter::create(&target, path.requests(), header, TapGlob::all(), Order::Any).unwrap();
    let mut sample = Sample::at(&mut writer, vec![sampled.to_vec()], checkpoint.config().sliding_window);
    let mut see = Spoil { at, how, inner: &mut sample };
    let mut x = path.embed(&mut see).unwrap();
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut see)];
        path.layer(l).unwrap().run(&mut lanes).unwrap();
        x = lanes[0].out.take().unwrap().streams;
    }
    path.head(&mut [Lane::new(&x, &mut see)]).unwrap();
    audit(&writer.finish().unwrap(), claims, cold)
}

fn audit(dir: &Path, claims: Claims, cold: bool) -> Bundle {
    let (trace, inputs) = requests_of(dir).unwrap();
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(model(), inputs, &Quiet, &stop) };
    audit_trace(&job, &TraceJob { trace, claims, rerun: None, patches: None, expected: None, cold }).unwrap()
}

fn golden() -> Golden {
    Golden::new(model(), requests(), Mode::F32, 2).unwrap()
}

fn stock() -> Optimized {
    let plan = Plan { stock: Stock::Official, patches: Vec::new(), history: History::Cold };
    Optimized::new(model(), requests(), plan, 2).unwrap()
}

/// Rows `range` (by position or entry) become other rows of the same piece: what a page of somebody else's looks like.
fn page(from: u32, to: u32) -> impl Fn(&[RowId], &mut [f32], usize) + Sync {
    move |rows, values, width| {
        let before = values.to_vec();
        for i in (0..rows.len()).filter(|i| (from..to).contains(&rows[*i].pos)) {
            let other = (i + 7) % rows.len();
            values[i * width..(i + 1) * width].copy_from_slice(&before[other * width..(other + 1) * width]);
        }
    }
}

fn nothing(_: &[RowId], _: &mut [f32], _: usize) {}

/// A quarter of every row is 40 % off.
fn head_off(_: &[RowId], values: &mut [f32], width: usize) {
    for row in values.chunks_exact_mut(width) {
        row[width / 2..3 * width / 4].iter_mut().for_each(|v| *v *= 1.4);
    }
}

fn said(bundle: &Bundle) -> &str {
    &bundle.verdict.examination.as_ref().unwrap().summary
}

fn expect(bundle: &Bundle, fault: &str, at: &str) {
    let report = &bundle.verdict;
    assert_eq!((report.verdict, report.exit_code), (Verdict::Fail, 1), "{:?} {:?}", report.reasons, bundle.run.notes);
    let bad = report.first_bad.as_ref().unwrap();
    assert_eq!(format!("{}.{}", bad.layer, bad.tap), at, "{:?}", report.reasons);
    let found = report.examination.as_ref().unwrap();
    assert!(found.summary.starts_with(&format!("{fault}: ")), "{}", found.summary);
    println!("{}", found.summary);
    if let Some(kv) = &found.kv {
        assert_eq!(kv.fault, fault);
    }
}

#[test]
fn a_clean_sampled_trace_passes() {
    let at = Site::layer(0, Tap::AttnO);
    for (path, claims) in [(&golden() as &dyn Run, Claims::F32), (&stock(), Claims::Official)] {
        let bundle = judged(path, claims, at, &nothing);
        let report = &bundle.verdict;
        assert_eq!(report.verdict, Verdict::Pass, "{}: {:?}", path.name(), report.reasons);
        let of = |gate: &str| bundle.taps.iter().filter(|r| r.gate == gate).count();
        // Window rows of 7 layers, entries of 5, index keys of 3.
        assert_eq!(of("unexplained_rows"), 7 + 5 + 3, "{:?}", bundle.run.notes);
        assert!(of("rel_l2") + of("max_over_max") > 200, "{} {}", of("rel_l2"), of("max_over_max"));
        assert!(bundle.taps.iter().any(|r| r.tap == "logits" && r.rows == SAMPLED.len() as u64));
    }
}

#[test]
fn a_corrupted_page_is_the_caches_fault() {
    let golden = golden();
    for (path, claims) in [(&golden as &dyn Run, Claims::F32), (&stock(), Claims::Official)] {
        // Entries 32 to 39: positions 128 to 159 of a CSA layer.
        let bundle = judged(path, claims, Site::layer(2, Tap::AttnCkv), &page(32, 40));
        expect(&bundle, "cache", "2.state.ckv");
        assert!(said(&bundle).contains("entries 32-39"), "{}", said(&bundle));
    }
    // Rows of a sliding layer, one entry of an HCA layer, index keys.
    for (l, tap, from, to, found) in [
        (1, Tap::AttnKv, 304, 320, "1.state.win"),
        (3, Tap::AttnCkv, 1, 2, "3.state.ckv"),
        (4, Tap::AttnIndexK, 16, 32, "4.state.index_k"),
    ] {
        expect(&judged(&golden, Claims::F32, Site::layer(l, tap), &page(from, to)), "cache", found);
    }
}

#[test]
fn without_a_cold_run_pages_are_judged_where_sampled_rows_made_them() {
    let (golden, stock) = (golden(), stock());
    // Entry 98 of a CSA layer is made of positions 388 to 395.
    let run: Vec<u32> = (384..400).collect();
    let zeros = |_: &[RowId], values: &mut [f32], width: usize| values[98 * width..99 * width].fill(0.0);
    let entries = Site::layer(2, Tap::StateCkv);
    for (path, claims) in [(&golden as &dyn Run, Claims::F32), (&stock, Claims::Official)] {
        let bundle = judged_with(path, claims, entries, &nothing, (&run, false));
        let report = &bundle.verdict;
        assert_eq!(report.verdict, Verdict::Pass, "{}: {:?}", path.name(), report.reasons);
        let pages: Vec<_> = bundle.taps.iter().filter(|r| r.gate == "unexplained_rows").collect();
        // The sampled positions of 7 layers; 3 CSA layers' entries and index keys 97 to 99; no entry of 128 positions.
        let rows: Vec<u64> = pages.iter().map(|r| r.rows).collect();
        assert_eq!((pages.len(), rows.iter().sum::<u64>()), (13, 7 * 16 + 6 * 3), "{rows:?}");
        assert!(bundle.run.notes.iter().any(|n| n.contains("the sampled rows alone")), "{:?}", bundle.run.notes);
        expect(&judged_with(path, claims, entries, &zeros, (&run, false)), "cache", "2.state.ckv");
        let attention = Site::layer(3, Tap::AttnO);
        expect(&judged_with(path, claims, attention, &head_off, (&run, false)), "kernel", "3.attn.o");
    }
}

#[test]
fn a_page_that_goes_bad_after_it_was_read_is_the_caches_fault() {
    let bundle = judged(&golden(), Claims::F32, Site::layer(2, Tap::StateCkv), &|_, values, width| {
        values[32 * width..40 * width].fill(0.0);
    });
    expect(&bundle, "cache", "2.state.ckv");
    assert!(said(&bundle).contains("before they went bad"), "{}", said(&bundle));
}

#[test]
fn a_bad_kernel_is_told_from_a_bad_cache() {
    let (golden, stock) = (golden(), stock());
    for (path, claims, l, tap) in [
        (&golden as &dyn Run, Claims::F32, 1, Tap::AttnO),
        (&golden, Claims::F32, 4, Tap::FfnRouted),
        (&stock, Claims::Official, 3, Tap::AttnO),
    ] {
        let bundle = judged(path, claims, Site::layer(l, tap), &head_off);
        expect(&bundle, "kernel", &format!("{l}.{}", tap.name()));
        let caches = bundle.taps.iter().filter(|r| r.gate == "unexplained_rows" && r.verdict == Some(Verdict::Fail));
        assert_eq!(caches.count(), 0, "{l}.{}: pages behind it only inherit", tap.name());
    }
}

//! Another engine's trace as the candidate: clean taps pass, a perturbed tap is named, other ids are unproven.
//!
//! The clean taps are the oracle's, which no code of this project computed. The perturbed ones come from golden with a
//! visitor that changes one tap in one layer and lets the rest of the pass follow from it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Job, Quiet, TraceJob, audit_trace, requests_of};
use karat_bundle::{Bundle, Verdict};
use karat_diff::Claims;
use karat_model::Checkpoint;
use karat_reference::{Golden, Mode};
use karat_seam::{DataMut, Lane, Path as _, Requests, Result, RowId, Site, Tap, TensorMut, Visitor, Want};
use karat_tests::OracleTaps;
use karat_tests::tiny_v4_files;
use karat_trace::{Header, ModelId, Order, TapGlob, TraceWriter};

fn tiny() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap())
}

fn model_id(checkpoint: &Checkpoint) -> ModelId {
    ModelId::new(checkpoint.config_sha256(), checkpoint.weights_sha256())
}

fn audit(dir: &Path, claims: Claims, expected: Option<Requests>) -> Bundle {
    let (trace, inputs) = requests_of(dir).unwrap();
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(tiny(), inputs, &Quiet, &stop) };
    audit_trace(&job, &TraceJob { trace, claims, rerun: None, patches: None, expected, cold: true }).unwrap()
}

/// Adds to a tap of one layer and records everything else as it follows.
struct Perturb<'a> {
    at: Site,
    position: u32,
    writer: &'a mut TraceWriter,
}

impl Visitor for Perturb<'_> {
    fn want(&self, at: Site) -> Want {
        if at == self.at { Want::Write } else { self.writer.want(at) }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if at == self.at {
            assert!(rows.iter().any(|r| r.pos == self.position), "{at}: nothing to perturb at {}", self.position);
            let width = tensor.shape[1..].iter().product::<usize>();
            let DataMut::F32(values) = &mut tensor.data else { panic!("golden is f32") };
            let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
            if let Some(i) = rows.iter().position(|r| r.pos == self.position) {
                values[i * width + width / 2] += 0.02 * largest;
            }
        }
        self.writer.visit(at, rows, tensor)
    }
}

/// A trace of golden with one tap perturbed; returns its folder.
fn perturbed(place: &Path, at: Site, position: u32) -> std::path::PathBuf {
    let checkpoint = tiny();
    let requests = OracleTaps::new("short").requests();
    let golden = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap();
    let header = Header { model: model_id(&checkpoint), ..Header::default() };
    let target = place.join(at.to_string());
    let mut writer = TraceWriter::create(&target, &requests, header, TapGlob::all(), Order::Any).unwrap();
    let mut see = Perturb { at, position, writer: &mut writer };
    let mut x = golden.embed(&mut see).unwrap();
    for l in 0..golden.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut see)];
        golden.layer(l).unwrap().run(&mut lanes).unwrap();
        x = lanes[0].out.take().unwrap().streams;
    }
    golden.head(&mut [Lane::new(&x, &mut see)]).unwrap();
    writer.finish().unwrap()
}

#[test]
fn the_oracles_own_taps_pass_as_f32() {
    let place = tempfile::tempdir().unwrap();
    let dir = OracleTaps::new("short").write(&place.path().join("clean"), model_id(&tiny()));
    let bundle = audit(&dir, Claims::F32, None);
    assert_eq!((bundle.verdict.verdict, bundle.verdict.exit_code), (Verdict::Pass, 0), "{:#?}", bundle.verdict);
    let judged = bundle.taps.iter().filter(|r| r.verdict.is_some()).count();
    assert!(judged > 90, "only {judged} rows were judged");
    let logits = bundle.taps.iter().find(|r| r.tap == "logits").unwrap();
    assert!(logits.floor.unwrap() > 0.0 && logits.tolerance.unwrap() >= 10.0 * logits.floor.unwrap());
}

#[test]
fn the_long_oracle_passes_as_far_as_it_goes() {
    let place = tempfile::tempdir().unwrap();
    let dir = OracleTaps::new("long").write(&place.path().join("clean"), model_id(&tiny()));
    let bundle = audit(&dir, Claims::F32, None);
    assert_eq!(bundle.verdict.verdict, Verdict::Pass, "{:#?}", bundle.verdict);
}

#[test]
fn a_perturbed_tap_is_named_with_its_layer() {
    let place = tempfile::tempdir().unwrap();
    let layers = tiny().config().layers.len() as u16;
    let places = [
        (0, Tap::HcAttnPre),
        (0, Tap::FfnOut),
        (1, Tap::AttnKv),
        (2, Tap::AttnO),
        (2, Tap::AttnQ),
        (2, Tap::FfnRouted),
        (3, Tap::AttnCkv),
        (3, Tap::HcFfnComb),
        (layers - 1, Tap::FfnShared),
        (layers - 1, Tap::Out),
    ];
    for (l, tap) in places {
        let site = Site::layer(l, tap);
        // An entry's index, or the position of a row that later rows attend to.
        let position = if tap.is_per_entry() { 0 } else { 4 };
        let bundle = audit(&perturbed(place.path(), site, position), Claims::F32, None);
        let report = &bundle.verdict;
        assert_eq!((report.verdict, report.exit_code), (Verdict::Fail, 1), "{site}: {:?}", report.reasons);
        let bad = report.first_bad.as_ref().unwrap();
        assert_eq!(
            (bad.layer.as_str(), bad.tap.as_str()),
            (l.to_string().as_str(), tap.name()),
            "{:?}",
            report.reasons
        );
        assert_eq!(bad.position, Some(u64::from(position)), "{site}");
        let later = |r: &&karat_bundle::TapRow| r.layer.parse::<u16>().is_ok_and(|layer| layer > l);
        let injected_later = bundle.taps.iter().filter(later).filter(|r| r.verdict == Some(Verdict::Fail)).count();
        assert_eq!(injected_later, 0, "{site}: later layers only inherit");
    }
}

#[test]
fn other_ids_are_unproven() {
    let place = tempfile::tempdir().unwrap();
    let taps = OracleTaps::new("short");
    let dir = taps.write(&place.path().join("clean"), model_id(&tiny()));
    let mut expected = taps.requests();
    let mut ids = expected.seqs[0].ids.to_vec();
    ids[3] = (ids[3] + 1) % 8;
    expected.seqs[0].ids = ids.into();
    let bundle = audit(&dir, Claims::F32, Some(expected));
    assert_eq!((bundle.verdict.verdict, bundle.verdict.exit_code), (Verdict::Unproven, 4));
    assert!(bundle.verdict.reasons[0].contains("position 3"), "{:?}", bundle.verdict.reasons);
    assert!(bundle.taps.is_empty());
    assert_eq!(audit(&dir, Claims::F32, Some(taps.requests())).verdict.verdict, Verdict::Pass);
}

#[test]
fn another_model_is_unproven() {
    let place = tempfile::tempdir().unwrap();
    let other = ModelId::new([1; 32], [2; 32]);
    let dir = OracleTaps::new("short").write(&place.path().join("other"), other);
    let bundle = audit(&dir, Claims::F32, None);
    assert_eq!(bundle.verdict.verdict, Verdict::Unproven);
    assert!(bundle.verdict.reasons[0].contains("other weights"), "{:?}", bundle.verdict.reasons);
}

#[test]
fn a_trace_without_layer_outputs_says_what_is_not_judged() {
    let place = tempfile::tempdir().unwrap();
    let mut taps = OracleTaps::new("short");
    taps.taps.remove(&Site::layer(1, Tap::Out));
    let bundle = audit(&taps.write(&place.path().join("gap"), model_id(&tiny())), Claims::F32, None);
    assert_eq!(bundle.verdict.verdict, Verdict::Pass, "{:?}", bundle.verdict.reasons);
    assert!(bundle.run.notes.iter().any(|n| n.contains("layers.1.out")), "{:?}", bundle.run.notes);
    let second: Vec<_> = bundle.taps.iter().filter(|r| r.layer == "2").collect();
    assert!(!second.is_empty() && second.iter().all(|r| r.verdict.is_none()), "layer 2 has totals only");
    taps.taps.retain(|site, _| site.tap == Tap::AttnO);
    let bundle = audit(&taps.write(&place.path().join("few"), model_id(&tiny())), Claims::F32, None);
    assert!(bundle.taps.iter().any(|r| r.total.is_some()));
    // Layer 0 is judged: its input is golden's own embedding.
    assert_eq!(bundle.verdict.verdict, Verdict::Pass, "{:?}", bundle.verdict.reasons);
    taps.taps.retain(|site, _| *site != Site::layer(0, Tap::AttnO));
    let bundle = audit(&taps.write(&place.path().join("none"), model_id(&tiny())), Claims::F32, None);
    assert_eq!((bundle.verdict.verdict, bundle.verdict.exit_code), (Verdict::Unproven, 4));
    assert!(bundle.verdict.reasons[0].contains("nothing was compared"), "{:?}", bundle.verdict.reasons);
}

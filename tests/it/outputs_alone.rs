//! A trace that holds nothing but the streams that leave each layer: a right engine passes, and of a wrong one layer and
//! branch are named.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Job, Quiet, TraceJob, audit_trace, requests_of};
use karat_bundle::{Bundle, Verdict};
use karat_diff::Claims;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_seam::{DataMut, Lane, Path as Run, Requests, Result, RowId, Sequence, Site, Tap, TensorMut, Visitor, Want};
use karat_trace::{Header, ModelId, Order, TapGlob, TraceWriter};

const PATCHES: [&str; 2] = ["fp8-indexer", "mma-sparse-mla"];

fn model() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 5)).unwrap())
}

/// Multiplies what one op leaves; the writer sees the streams that leave layers alone.
struct Scaled<'a> {
    at: Site,
    by: f32,
    writer: &'a mut TraceWriter,
}

impl Visitor for Scaled<'_> {
    fn want(&self, at: Site) -> Want {
        if at == self.at { Want::Write } else { self.writer.want(at) }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if at == self.at {
            let DataMut::F32(values) = &mut tensor.data else { panic!("{at}: not f32") };
            values.iter_mut().for_each(|v| *v *= self.by);
        }
        if self.writer.want(at) == Want::Skip { Ok(()) } else { self.writer.visit(at, rows, tensor) }
    }
}

/// The verdict on an engine with an op that is off by a factor, of which only layer outputs were recorded.
fn judged(at: Site, by: f32, patches: Option<&[&str]>) -> Bundle {
    // `layers.*.out` would be attn.out and ffn.out too.
    let names: Vec<String> = (0..4).map(|l| format!("layers.{l}.out")).collect();
    recorded(&names.join(","), (at, by), patches)
}

/// As [`judged`], with the taps of a pattern.
fn recorded(only: &str, (at, by): (Site, f32), patches: Option<&[&str]>) -> Bundle {
    let (place, checkpoint) = (tempfile::tempdir().unwrap(), model());
    let ids: Vec<u32> = (0..180u32).map(|i| (i * 31 + i * i * 7 + 5) % 500).collect();
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids)] };
    let plan = Plan { stock: Stock::Official, patches: PATCHES.map(String::from).to_vec(), history: History::Cold };
    let path = Optimized::new(checkpoint.clone(), requests.clone(), plan, 2).unwrap();
    let header =
        Header { model: ModelId::new(checkpoint.config_sha256(), checkpoint.weights_sha256()), ..Header::default() };
    let only = TapGlob::new(only).unwrap();
    let mut writer = TraceWriter::create(&place.path().join("t"), &requests, header, only, Order::Any).unwrap();
    let mut see = Scaled { at, by, writer: &mut writer };
    let mut x = path.embed(&mut see).unwrap();
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut see)];
        path.layer(l).unwrap().run(&mut lanes).unwrap();
        x = lanes[0].out.take().unwrap().streams;
    }
    audit(&writer.finish().unwrap(), patches.map(|p| p.iter().map(ToString::to_string).collect()))
}

fn audit(dir: &Path, patches: Option<Vec<String>>) -> Bundle {
    let (trace, inputs) = requests_of(dir).unwrap();
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(model(), inputs, &Quiet, &stop) };
    audit_trace(&job, &TraceJob { trace, claims: Claims::Official, rerun: None, patches, expected: None, cold: true })
        .unwrap()
}

#[test]
fn layer_outputs_alone_tell_layer_and_branch() {
    let routed = Site::layer(2, Tap::FfnRouted);
    let right = judged(routed, 1.0, Some(&PATCHES));
    assert!(right.taps.iter().all(|r| r.tap != "ffn.routed"), "nothing but the streams was recorded");
    assert!(
        right.taps.iter().any(|r| r.part == "unmixed.gain"),
        "branches are judged: {:?} {:?}",
        right.verdict.reasons,
        right.taps.iter().map(|r| (&r.layer, &r.tap, &r.part, &r.gate)).collect::<Vec<_>>()
    );
    let first = |bundle: &Bundle| bundle.verdict.first_bad.as_ref().map(|b| (b.layer.clone(), b.tap.clone()));
    assert_eq!(first(&right), None, "{:?}", right.verdict.reasons);
    // A fifth of one part of a branch.
    let bundle = judged(routed, 1.2, Some(&PATCHES));
    assert_eq!(bundle.verdict.verdict, Verdict::Fail, "{:?}", bundle.verdict.reasons);
    assert_eq!(first(&bundle), Some(("2".into(), "ffn.out".into())), "{:?}", bundle.verdict.reasons);
    let bundle = judged(Site::layer(1, Tap::AttnO), 1.25, Some(&PATCHES));
    assert_eq!(first(&bundle), Some(("1".into(), "attn.out".into())), "{:?}", bundle.verdict.reasons);
    // Nobody said which patches ran: four times the profile's own noise passes, and half as much again does not.
    assert_eq!(first(&judged(routed, 1.0, None)), None);
    assert_eq!(first(&judged(routed, 1.5, None)), Some(("2".into(), "ffn.out".into())));
}

#[test]
fn outputs_of_branches_without_decisions_are_judged_where_none_is_open() {
    let pattern = "layers.*.out";
    let right = recorded(pattern, (Site::layer(2, Tap::FfnRouted), 1.0), Some(&PATCHES));
    let of = |bundle: &Bundle, tap: &str| bundle.taps.iter().filter(|r| r.tap == tap && r.part.is_empty()).count();
    assert!(of(&right, "attn.out") > 0 && of(&right, "ffn.out") > 0, "the pattern admits the branches' outputs");
    assert!(right.taps.iter().all(|r| r.tap != "attn.selected" && r.tap != "ffn.idx"), "and no decision");
    assert_eq!(right.verdict.verdict, Verdict::Pass, "{:?}", right.verdict.reasons);
    let right = recorded(pattern, (Site::layer(2, Tap::FfnRouted), 1.0), None);
    assert_eq!(right.verdict.verdict, Verdict::Pass, "{:?}", right.verdict.reasons);
    let wrong = recorded(pattern, (Site::layer(2, Tap::FfnRouted), 1.5), Some(&PATCHES));
    let first = wrong.verdict.first_bad.as_ref().map(|b| (b.layer.as_str(), b.tap.as_str()));
    assert_eq!(first, Some(("2", "ffn.out")), "{:?}", wrong.verdict.reasons);
}

//! Searches with real numbers: faults that visitors put into the optimized path of a mini model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Stock};
use karat_seam::{
    DataMut, Requests, Result, RowId, Sequence, Site, Span, SpanKind, Tap, TensorMut, Turn, Visitor, Want,
};

use super::{Bisect, BisectReport, Criterion, Ended, Metric, Over, bisect};
use crate::{Inputs, Job, Quiet};

/// Eight patches that can all be on at once.
const EIGHT: [&str; 8] =
    ["bf16-mhc", "fused-qkv-a", "fp8-kv", "bf16-gemm", "fp8-indexer", "mma-sparse-mla", "fp8-wo-a", "bf16-router"];

/// Multiplies a tap of a layer, from a position on.
struct Gain {
    site: Site,
    from: u32,
    factor: f32,
}

impl Visitor for Gain {
    fn want(&self, at: Site) -> Want {
        if at == self.site { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, _: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let width: usize = tensor.shape.iter().skip(1).product();
        let DataMut::F32(values) = tensor.data else { panic!("a tap of numbers") };
        for (row, values) in rows.iter().zip(values.chunks_exact_mut(width.max(1))) {
            if row.pos >= self.from {
                values.iter_mut().for_each(|v| *v *= self.factor);
            }
        }
        Ok(())
    }
}

fn gain(layer: u16, tap: Tap, from: u32, factor: f32) -> Box<dyn Visitor> {
    Box::new(Gain { site: Site::layer(layer, tap), from, factor })
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

struct Place {
    checkpoint: Arc<Checkpoint>,
    inputs: Inputs,
    stop: AtomicBool,
}

impl Place {
    fn new() -> Self {
        let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
        let span = |kind, start, end| Span { kind, start, end };
        let ids: Vec<u32> = (0..96u32).map(|i| (i * 37 + i * i * 3 + 11) % 500).collect();
        let mut sequence = Sequence::prompt("made", ids);
        let spans = vec![span(SpanKind::Prompt, 0, 70), span(SpanKind::Generated, 70, 96)];
        sequence.turns = vec![Turn { spans, interrupted: false }];
        let inputs =
            Inputs { requests: Requests { seqs: vec![sequence] }, scenarios: vec!["made".into()], ..Inputs::default() };
        Self { checkpoint, inputs, stop: AtomicBool::new(false) }
    }

    fn job(&self) -> Job<'_> {
        Job {
            random_weights: true,
            threads: 2,
            ..Job::new(self.checkpoint.clone(), self.inputs.clone(), &Quiet, &self.stop)
        }
    }

    fn bisect(&self, ask: &Bisect<'_>) -> BisectReport {
        bisect(&self.job(), ask).unwrap()
    }
}

fn ask(over: Over, patches: &[&str], criterion: Criterion) -> Bisect<'static> {
    Bisect {
        over,
        stock: Stock::Official,
        patches: names(patches),
        history: History::Cold,
        criterion,
        layer: None,
        replay: None,
        change: None,
    }
}

fn value(report: &BisectReport, question: &str) -> f64 {
    let q = report.questions.iter().find(|q| q.question == question).unwrap_or_else(|| panic!("{report:?}"));
    q.value.as_ref().and_then(serde_json::Value::as_f64).unwrap()
}

/// Ten interactions: each of the two harmless alone, an attention output that is wrong where both are on.
#[test]
fn ten_pairs_of_eight_patches_take_twelve_forward_equivalents_on_average() {
    let place = Place::new();
    let clean = place.bisect(&ask(Over::Patches, &EIGHT, Criterion::Over(Metric::Kl, Some(1e9))));
    assert_eq!(clean.stages[0].ended, Ended::Nothing);
    assert_eq!(clean.exit_code(), 0);
    // All eight at once and none: what rounding costs is far from what the fault costs.
    let limit = 3.0 * value(&clean, &format!("patches {}", EIGHT.join(","))).max(value(&clean, "patches none"));
    let pairs = [(0, 1), (0, 7), (1, 2), (1, 6), (2, 5), (3, 4), (3, 7), (4, 6), (5, 7), (6, 7)];
    let mut all = 0.0;
    for (i, j) in pairs {
        let change = |set: &[String]| {
            let both = [EIGHT[i], EIGHT[j]].iter().all(|p| set.iter().any(|s| s == p));
            both.then(|| gain(2, Tap::AttnO, 0, -3.0))
        };
        let report = place.bisect(&Bisect {
            change: Some(&change),
            ..ask(Over::Patches, &EIGHT, Criterion::Over(Metric::Kl, Some(limit)))
        });
        let stage = &report.stages[0];
        assert_eq!(stage.found, names(&[EIGHT[i], EIGHT[j]]), "{report:?}");
        assert_eq!((stage.ended, report.exit_code()), (Ended::Found, 1));
        // Each was asked alone, and is harmless.
        for p in [EIGHT[i], EIGHT[j]] {
            assert!(value(&report, &format!("patches {p}")) <= limit);
        }
        all += report.work.forward_equivalents;
    }
    let mean = all / pairs.len() as f64;
    assert!(mean <= 12.0, "{mean} forward-equivalents");
}

#[test]
fn a_fault_is_found_at_its_layer_op_and_position() {
    let place = Place::new();
    let pair = ["fp8-kv", "bf16-router"];
    let both = |set: &[String]| pair.iter().all(|p| set.iter().any(|s| s == p));
    for (layer, tap, op) in [(2, Tap::AttnO, "attn.attend"), (1, Tap::FfnShared, "ffn.shared_expert")] {
        let change = |set: &[String]| both(set).then(|| gain(layer, tap, 40, -3.0));
        let kl = |limit| Criterion::Over(Metric::Kl, limit);
        let report =
            place.bisect(&Bisect { change: Some(&change), ..ask(Over::Ops, &["fp8-kv", "bf16-router"], kl(None)) });
        let found: Vec<&[String]> = report.stages.iter().map(|s| s.found.as_slice()).collect();
        assert_eq!(found, [names(&[&format!("layer {layer}")]), names(&[op])], "{report:?}");
        // Half of the whole is no verdict.
        assert_eq!(report.exit_code(), 0);
        let report = place.bisect(&Bisect { change: Some(&change), ..ask(Over::Tokens, &pair, kl(None)) });
        let position = report.stages[0].found[0].strip_prefix("made:").unwrap().parse::<u32>().unwrap();
        assert!(position >= 40, "nothing is wrong before: {report:?}");
        assert!(report.stages[0].sentence.contains("tokens alone show it, one less does not"), "{report:?}");
    }
}

#[test]
fn a_replayed_search_is_the_same_and_runs_nothing() {
    let place = Place::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.jsonl");
    let pair = ["fp8-kv", "fp8-wo-a", "bf16-router"];
    let change = |set: &[String]| set.iter().any(|s| s == "fp8-wo-a").then(|| gain(3, Tap::FfnOut, 0, 4.0));
    let replay = Some(file.clone());
    let over = |over| Bisect {
        change: Some(&change),
        replay: replay.clone(),
        ..ask(over, &pair, Criterion::Over(Metric::Kl, Some(0.5)))
    };
    let first = place.bisect(&over(Over::All));
    assert_eq!(first.stages[0].found, names(&["fp8-wo-a"]), "{first:?}");
    assert!(first.work.forward_equivalents > 3.0 && first.work.replayed == 0);
    let again = place.bisect(&over(Over::All));
    assert_eq!(again.stages, first.stages);
    assert_eq!(again.work.forward_equivalents, 0.0);
    assert_eq!((again.work.replayed, again.work.answers), (first.work.answers, first.work.answers));
    assert!((again.work.forward_equivalents_replayed - first.work.forward_equivalents).abs() < 1e-9);
    assert!(again.questions.iter().all(|q| q.replayed));
    // Interrupted after four answers: the same again, for the rest of the work.
    let text = std::fs::read_to_string(&file).unwrap();
    let some: Vec<&str> = text.split_inclusive('\n').take(5).collect();
    std::fs::write(&file, some.concat()).unwrap();
    let rest = place.bisect(&over(Over::All));
    assert_eq!((rest.stages, rest.work.replayed), (first.stages.clone(), 4));
    // Another axis is another search.
    let error = bisect(&place.job(), &over(Over::Layers)).unwrap_err().to_string();
    assert!(error.contains("its axis differs"), "{error}");
}

#[test]
fn a_verdict_can_be_the_criterion() {
    let place = Place::new();
    let report = place.bisect(&ask(Over::Patches, &["bf16-mhc", "bf16-router"], Criterion::Verdict));
    let answers: Vec<&str> = report.questions.iter().map(|q| q.answer).collect();
    // What an audit of each set says is the audit's affair: here it passes with all of them, and a search ends there.
    assert_eq!((report.stages[0].ended, answers), (Ended::Nothing, vec!["good", "good"]), "{report:?}");
    // Without its factor in the layers that route by hash the experts' sum is wrong, whatever else is on.
    let lost = ["bf16-router", "routed-scaling-in-topk:hash=off", "fp8-kv"];
    let report = place.bisect(&ask(Over::Patches, &lost, Criterion::Verdict));
    assert_eq!((report.stages[0].found.as_slice(), report.exit_code()), (&names(&lost[1..2])[..], 1), "{report:?}");
    let bad = report.questions.iter().find(|q| q.answer == "bad").unwrap();
    assert!(bad.note.contains("ffn."), "{bad:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let change = |_: &[String]| None;
    let cases: [(Bisect<'_>, &str); 4] = [
        (ask(Over::Patches, &["bf16-mhc", "tf32-mhc"], Criterion::Verdict), "conflict"),
        (ask(Over::Patches, &["bf16-mhc"], Criterion::Over(Metric::Kl, None)), "needs --limit"),
        (Bisect { layer: Some(9), ..ask(Over::Ops, &[], Criterion::Verdict) }, "no such layer"),
        (Bisect { change: Some(&change), ..ask(Over::All, &[], Criterion::Verdict) }, "changed under way"),
    ];
    for (ask, words) in cases {
        let error = bisect(&place.job(), &ask).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    place.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let stopped = bisect(&place.job(), &ask(Over::Layers, &[], Criterion::Verdict));
    assert!(matches!(stopped, Err(crate::Error::Interrupted)));
}

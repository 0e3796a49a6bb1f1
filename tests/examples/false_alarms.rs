//! How often the gate fails a run that is as it should be: `cargo run --release -p karat-tests --example false_alarms --
//! [RUNS] [FIRST_SEED] [outputs [rows]]` (200 runs by default; `outputs`: of the candidate nothing is seen but what leaves each layer;
//! `rows`: every judged row is printed with its value, its limit and what was derived).
//! Every run has another model, other ids, turns, chunks and patches out of
//! those that the committed table expects to pass, so that what the candidate computes differs from run to run. Prints the
//! runs that fail with their reasons, the count, and the bound on the share that it supports; exits 1 with more than
//! one failure in 200.
#![expect(clippy::print_stdout, reason = "printing is what a tool is for")]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Facts, Inputs, Job, Lockstep, Quiet, Rules, Subject, expected_verdict, specs};
use karat_bundle::judge::recall::{Counts, bounds};
use karat_bundle::{Bundle, Evidence, Policy, Report, Verdict, gate, judge};
use karat_diff::Claims;
use karat_faults::Outputs;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock, patches};
use karat_reference::{Golden, Mode};
use karat_seam::{Phase, Requests, Sequence, Span, SpanKind, Turn};

/// Models that the runs take turns with.
const MODELS: u64 = 8;

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// A conversation of one or two turns, each a prompt and an answer.
fn conversation(random: &mut Random, id: String) -> Sequence {
    let mut at = 0;
    let mut turns = Vec::new();
    for _ in 0..=random.below(2) {
        let (prompt, answer) = (at + 8 + random.below(48) as u32, 4 + random.below(12) as u32);
        let span = |kind, start, end| Span { kind, start, end };
        let spans = vec![span(SpanKind::Prompt, at, prompt), span(SpanKind::Generated, prompt, prompt + answer)];
        at = prompt + answer;
        turns.push(Turn { spans, interrupted: false });
    }
    let ids: Vec<u32> = (0..at).map(|_| random.below(500) as u32).collect();
    Sequence { turns, ..Sequence::prompt(id, ids) }
}

/// One to three accepted patches that go together, and how they are served.
fn subject(random: &mut Random) -> Subject {
    let accepted: Vec<&str> =
        patches().iter().map(|p| p.name).filter(|p| expected_verdict(p, "official") == Some(Verdict::Pass)).collect();
    let history = match random.below(3) {
        0 => History::Cold,
        1 => History::Chunked { size: 3 + random.below(40) as usize },
        _ => History::Decoded,
    };
    let mut chosen: Vec<String> = Vec::new();
    for _ in 0..=random.below(3) {
        let mut more = chosen.clone();
        more.push(accepted[random.below(accepted.len() as u64) as usize].to_string());
        let plan = Plan { stock: Stock::Official, patches: more.clone(), history };
        if !chosen.contains(&more[more.len() - 1]) && plan.check().is_ok() {
            chosen = more;
        }
    }
    Subject { stock: Stock::Official, patches: chosen, history }
}

/// What a run is made of: conversations, and what serves them.
fn made(seed: u64) -> (Requests, Subject) {
    let mut random = Random(seed);
    let seqs: Vec<Sequence> =
        (0..=random.below(3)).map(|i| conversation(&mut random, format!("seed {seed}, {i}"))).collect();
    (Requests { seqs }, subject(&mut random))
}

/// Judges a path by what leaves its layers alone. Gives rows too.
fn by_outputs(seed: u64, checkpoint: &Arc<Checkpoint>) -> (Subject, Report, usize) {
    let (requests, subject) = made(seed);
    let of = |patches: Vec<String>| {
        let plan = Plan { stock: Stock::Official, patches, history: subject.history };
        Optimized::new(checkpoint.clone(), requests.clone(), plan, 2).expect("a path")
    };
    let (stock, path) = (of(Vec::new()), of(subject.patches.clone()));
    let golden = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).expect("golden");
    let shown = Outputs(&path);
    let rules = |path| Some(Rules::of(path, checkpoint));
    let rotates = |path: &Optimized| [Phase::Prefill, Phase::Decode].map(|p| path.numerics(p).index.hadamard);
    let stock_candidate = Candidate {
        rotates: rotates(&stock),
        rules: rules(&stock),
        ..Candidate::new("stock", &stock, Claims::Official)
    };
    let candidate = Candidate {
        rotates: rotates(&path),
        rules: rules(&path),
        patches: specs(&subject.patches),
        ..Candidate::new("patched", &shown, Claims::Official)
    };
    let lockstep = Lockstep {
        golden: &golden,
        floor: None,
        candidates: vec![stock_candidate, candidate],
        scenarios: vec![format!("seed {seed}"); requests.seqs.len()],
        asks: &[],
        facts: Facts::of(checkpoint).expect("facts"),
        taps: &|_| true,
        layers: None,
        cache: None,
        states: None,
    };
    let all = lockstep.run(&Quiet, &AtomicBool::new(false)).expect("a whole run");
    let taps: Vec<_> = all.taps.into_iter().filter(|r| r.patch_set == "patched").collect();
    if std::env::args().any(|a| a == "rows") {
        for r in taps.iter().filter(|r| r.tolerance.is_some()) {
            let number = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.5}"));
            println!(
                "{seed},{},{},{},{},{},{},{},{},{}",
                r.layer,
                r.sequence,
                r.tap,
                r.phase,
                r.part,
                r.rows,
                number(r.value),
                number(r.tolerance),
                number(r.derived)
            );
        }
    }
    let report = judge(&Evidence { taps: &taps, ..Evidence::default() }, &Policy::default());
    (subject, report, taps.iter().filter(|r| r.tolerance.is_some()).count())
}

fn run(seed: u64, checkpoint: &Arc<Checkpoint>) -> (Subject, Bundle) {
    let (requests, subject) = made(seed);
    let scenarios = vec![format!("seed {seed}"); requests.seqs.len()];
    let stop = AtomicBool::new(false);
    let inputs = Inputs { requests, scenarios, ..Inputs::default() };
    let whole = Job::new(checkpoint.clone(), inputs, &Quiet, &stop);
    // No gate reads what a second look finds.
    let job = Job { random_weights: true, second_look: false, threads: 2, producer: "false alarms".into(), ..whole };
    let bundle = karat_audit::audit(&job, &subject).expect("a whole run");
    (subject, bundle)
}

fn main() -> ExitCode {
    let is_poor = std::env::args().any(|a| a == "outputs");
    let mut args =
        std::env::args().skip(1).filter(|a| a != "outputs" && a != "rows").map(|a| a.parse::<u64>().expect("a number"));
    let (runs, first) = (args.next().unwrap_or(200), args.next().unwrap_or(1));
    let models: Vec<Arc<Checkpoint>> = (0..MODELS)
        .map(|seed| Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, seed)).expect("a model")))
        .collect();
    let day = "2026-01-01".parse().expect("a day");
    let mut outputs = BTreeSet::new();
    let mut failed = 0_u64;
    let (mut rows, mut tests, mut unproven) = (0, 0, 0);
    for seed in first..first + runs {
        if is_poor {
            let (subject, report, judged) = by_outputs(seed, &models[(seed % MODELS) as usize]);
            rows += judged;
            if report.verdict == Verdict::Fail {
                failed += 1;
                println!(
                    "seed {seed}, {}, {}: {}",
                    subject.history,
                    subject.patches.join(","),
                    report.reasons.join("; ")
                );
            }
            continue;
        }
        let (subject, mut bundle) = run(seed, &models[(seed % MODELS) as usize]);
        let gated = gate::gate(&mut bundle, &Policy::default(), None, day);
        rows += bundle.taps.iter().filter(|r| r.verdict.is_some()).count();
        tests += gated.limits.tests;
        outputs.insert(bundle.tokens.iter().map(|t| (t.kl.to_bits(), t.delta_logit_rms.to_bits())).collect::<Vec<_>>());
        let verdict = bundle.verdict.verdict;
        // A short run may leave a patch without a step to act in: that is no false alarm, and no evidence either.
        unproven += u64::from(verdict == Verdict::Unproven);
        if verdict.exit_code() == 1 {
            failed += 1;
            let (patches, reasons) = (subject.patches.join(","), bundle.verdict.reasons.join("; "));
            println!("seed {seed}, {}, {patches}: {reasons}", subject.history);
        }
    }
    let each = |i| Counts { answers: 1, lost: u64::from(i < failed), gained: 0 };
    let bound = bounds(&(0..runs).map(each).collect::<Vec<_>>()).upper;
    println!(
        "{failed} of {runs} runs failed: at most {:.2} % of such runs fail (95 % bound); {} different outputs, {rows} rows and \
         {tests} tests judged, {unproven} runs unproven",
        100.0 * bound,
        outputs.len(),
    );
    ExitCode::from(u8::from(failed * 200 > runs.max(200)))
}

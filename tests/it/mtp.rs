//! The optimized path's MTP block. In f32 its logits are the oracle's (an independent port of the model, on the tiny
//! checkpoint) within 2e-5, and every tap is golden's within 1e-5 with the same experts; under a stock profile every tap
//! that is stored in bf16 holds bf16 values. Decode steps and chunks change no bit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Cache, Candidate, Facts, Inputs, Job, Lockstep, Quiet, Rules, Subject};
use karat_bundle::{Bundle, Policy, Verdict, judge};
use karat_diff::Claims;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{
    Block, Blocks, Data, Lane, Layer, NoTaps, Path, Phase, Recorder, Requests, RowId, Sequence, Streams, Tap, Tensor,
    Visitor,
};
use karat_tests::{bits, cold_run, oracle, rel_max};

use crate::optimized_drive::{ids, optimized, prompt_of, tiny, turns};

/// The id after each position; after the last the first.
fn next_of(ids: &[u32]) -> Vec<u32> {
    ids.iter().skip(1).chain(ids.first()).copied().collect()
}

fn block(path: &dyn Path, streams: &Streams, next: &[u32], see: &mut dyn Visitor) -> Tensor {
    path.mtp(0, &mut [Lane::new(streams, see)], next).unwrap().remove(0)
}

#[test]
fn in_f32_it_is_the_oracle_s_and_golden_s() {
    let oracle = oracle("short");
    let requests = prompt_of(&oracle["input_ids"]);
    let next: Vec<u32> = oracle["mtp_next_ids"].as_i64("next").unwrap().iter().map(|&v| v as u32).collect();
    let path = optimized(Stock::None, &[], History::Cold, requests.clone());
    assert_eq!(path.blocks().mtp, 1);
    let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
    let mut seen = Recorder::all();
    let logits = block(&path, &streams, &next, &mut seen);
    let want = oracle["port.mtp_logits"].as_f32("mtp").unwrap();
    let found = rel_max(logits.as_f32("mtp").unwrap(), want);
    assert!(found <= 2e-5, "{found:e}");
    let golden = Golden::new(tiny(), requests, Mode::F32, 2).unwrap();
    let mut wanted = Recorder::all();
    block(&golden, &streams, &next, &mut wanted);
    assert!(wanted.taps.len() > 20);
    for ((site, seq), want) in &wanted.taps {
        assert_eq!(site.block, Block::Mtp(0));
        let got = &seen.get(*site, *seq).unwrap_or_else(|| panic!("{site} is missing")).tensor;
        assert_eq!(got.shape, want.tensor.shape, "{site}");
        match (&got.data, &want.tensor.data) {
            (Data::F32(a), Data::F32(b)) => assert!(rel_max(a, b) <= 1e-5, "{site}: {:e}", rel_max(a, b)),
            (a, b) => assert_eq!(a, b, "{site}"),
        }
    }
}

#[test]
fn a_stock_profile_rounds_it_where_it_rounds_a_layer() {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(70, 9))] };
    let path = optimized(Stock::Official, &[], History::Cold, requests.clone());
    let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
    let (mut seen, next) = (Recorder::all(), next_of(&ids(70, 9)));
    let logits = block(&path, &streams, &next, &mut seen);
    for tap in [Tap::Embed, Tap::In, Tap::AttnIn, Tap::AttnOut, Tap::FfnOut, Tap::Out, Tap::HFinal, Tap::HeadCollapsed]
    {
        let site = karat_seam::Site { block: Block::Mtp(0), tap };
        let values = seen.get(site, 0).unwrap_or_else(|| panic!("{site}")).tensor.as_f32("tap").unwrap();
        assert!(values.iter().all(|v| v.to_bits().trailing_zeros() >= 16), "{site} is stored in bf16");
    }
    let golden = Golden::new(tiny(), requests, Mode::F32, 2).unwrap();
    let exact = block(&golden, &streams, &next, &mut NoTaps);
    let far = rel_max(logits.as_f32("mtp").unwrap(), exact.as_f32("mtp").unwrap());
    assert!(far > 1e-4 && far < 0.5, "quantised, and still the block: {far:e}");
}

#[test]
fn decode_and_chunks_change_no_bit_of_it() {
    let all = ids(90, 4);
    let run = |stock, history, sequence| {
        let path: Optimized = optimized(stock, &[], history, Requests { seqs: vec![sequence] });
        let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
        bits(&block(&path, &streams, &next_of(&all), &mut NoTaps))
    };
    for stock in [Stock::None, Stock::Official] {
        let cold = run(stock, History::Cold, Sequence::prompt("a", all.clone()));
        assert!(cold == run(stock, History::Decoded, turns("a", all.clone(), &[40, 50])), "{stock}");
        assert!(cold == run(stock, History::Chunked { size: 17 }, Sequence::prompt("a", all.clone())), "{stock}");
    }
}

#[test]
fn bad_asks_are_refused() {
    let path = optimized(Stock::None, &[], History::Cold, Requests { seqs: vec![Sequence::prompt("a", ids(5, 1))] });
    let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
    let ask = |i, next: &[u32]| path.mtp(i, &mut [Lane::new(&streams, &mut NoTaps)], next).is_err();
    assert!(ask(1, &[0; 5]) && ask(0, &[0; 4]) && ask(0, &[512; 5]) && !ask(0, &[511; 5]));
}

/// What is other in a path's block.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    /// A known bug (spec 2.14): it gets the collapsed hidden state in the place of the four streams.
    Collapsed,
    /// Nothing, but that its input is not shown, as in a trace without it.
    Hidden,
}

struct Other(Optimized, Change);

impl Path for Other {
    fn name(&self) -> String {
        "other".into()
    }

    fn identity(&self) -> [u8; 32] {
        [0; 32]
    }

    fn requests(&self) -> &Requests {
        self.0.requests()
    }

    fn blocks(&self) -> Blocks {
        self.0.blocks()
    }

    fn phase_of(&self, row: RowId) -> Phase {
        self.0.phase_of(row)
    }

    fn embed(&self, see: &mut dyn Visitor) -> karat_seam::Result<Streams> {
        self.0.embed(see)
    }

    fn layer(&self, l: u16) -> karat_seam::Result<Box<dyn Layer + '_>> {
        self.0.layer(l)
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
        self.0.head(lanes)
    }

    fn mtp_input(&self, i: u16, lanes: &mut [Lane<'_>], next: &[u32]) -> karat_seam::Result<()> {
        if self.1 == Change::Hidden {
            return Ok(());
        }
        let d = lanes[0].x.data.width() / 4;
        let mean =
            |row: &[f32]| -> Vec<f32> { (0..d).map(|i| (0..4).map(|j| row[j * d + i]).sum::<f32>() / 4.0).collect() };
        let x = lanes[0].x.data.as_f32("x")?.chunks(4 * d).flat_map(|row| mean(row).repeat(4)).collect();
        let x = Streams { data: Tensor::f32(lanes[0].x.data.shape.clone(), x), rows: lanes[0].x.rows.clone() };
        let mut inner = [Lane::new(&x, &mut *lanes[0].see)];
        self.0.mtp_input(i, &mut inner, next)?;
        let [inner] = inner;
        lanes[0].out = inner.out;
        Ok(())
    }

    fn mtp_head(&self, i: u16, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
        self.0.mtp_head(i, lanes)
    }
}

fn mini() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap())
}

#[test]
fn the_audit_judges_it_and_names_it() {
    let checkpoint = mini();
    let requests = Requests { seqs: vec![turns("a", ids(60, 9), &[40, 20]), Sequence::prompt("b", ids(30, 10))] };
    let golden = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap();
    let path = || {
        let plan = Plan { stock: Stock::Official, patches: vec![], history: History::Cold };
        Optimized::new(checkpoint.clone(), requests.clone(), plan, 2).unwrap()
    };
    let (stock, wrong, hidden) = (path(), Other(path(), Change::Collapsed), Other(path(), Change::Hidden));
    let rotates = [true; 2];
    let rules = |path| Some(Rules::of(path, &checkpoint));
    let lockstep = Lockstep {
        golden: &golden,
        floor: None,
        candidates: vec![
            Candidate { rotates, rules: rules(&stock), ..Candidate::new("stock", &stock, Claims::Official) },
            Candidate {
                rotates,
                rules: rules(&wrong.0),
                ..Candidate::new("stock+collapsed", &wrong, Claims::Official)
            },
            Candidate { rotates, rules: rules(&hidden.0), ..Candidate::new("stock+hidden", &hidden, Claims::Official) },
        ],
        scenarios: vec!["made".into(); 2],
        asks: &[],
        facts: Facts::of(&checkpoint).unwrap(),
        taps: &|_| true,
        layers: None,
        cache: None,
        states: None,
    };
    let outcome = lockstep.run(&Quiet, &AtomicBool::new(false)).unwrap();
    let of = |set: &str| -> Vec<karat_bundle::TapRow> {
        outcome.taps.iter().filter(|r| r.layer == "mtp.0" && r.patch_set == set).cloned().collect()
    };
    let rows = of("stock");
    // Both phases of the first sequence and the second: inputs, ops, decisions, logits and drafted ids.
    for (tap, part) in [
        ("embed", ""),
        ("in", ""),
        ("attn.in", ""),
        ("attn.o", "op"),
        ("ffn.router_logits", ""),
        ("ffn.idx", ""),
        ("out", ""),
        ("logits", ""),
        ("logits", "argmax-injected"),
    ] {
        let judged = rows.iter().filter(|r| r.tap == tap && r.part == part && r.tolerance.is_some());
        assert_eq!(judged.count(), 3, "{tap} {part}");
    }
    // Tolerances are derived as a layer's are, and what stock errs is what its roundings cost.
    for (tap, op) in [("in", "in"), ("hc_attn.pre", "hc_attn.pre"), ("attn.q", "attn.query_up"), ("out", "hc_ffn.post")]
    {
        let terms = outcome.derivations.iter().filter(|r| r.layer == "mtp.0" && r.tap == tap && r.op == op);
        assert!(terms.count() > 0, "{tap}");
        for row in rows.iter().filter(|r| r.tap == tap && r.part.is_empty()) {
            let (value, derived) = (row.value.unwrap(), row.derived.unwrap());
            assert!(value < 1.5 * derived.max(1e-5), "{tap}, {}: {value:e} of {derived:e}", row.phase);
            // Where few rows carry an error, four roundings may be tighter than what chance may make of a derived one.
            let is_derived = ["derived", "tighter"].contains(&row.basis.as_str());
            assert!(tap == "hc_attn.pre" || (is_derived && value > 0.3 * derived), "{tap}: {value:e} of {derived:e}");
        }
    }
    let head = outcome.taps.iter().find(|r| r.layer == "head").unwrap().order;
    assert!(rows.iter().all(|r| r.order > head + 500), "it comes after the head");
    let mut bundle = Bundle { taps: outcome.taps.clone(), ..Bundle::default() };
    bundle.taps.retain(|r| r.patch_set == "stock");
    assert_eq!(judge(&bundle.evidence(), &Policy::default()).verdict, Verdict::Pass);
    // Golden's input of the same streams stands in for one that is not shown: the rest is judged as ever.
    let unseen = of("stock+hidden");
    assert!(unseen.iter().all(|r| r.tap != "in" && r.tap != "embed"));
    let judged = |rows: &[karat_bundle::TapRow]| rows.iter().filter(|r| r.tolerance.is_some()).count();
    assert_eq!(
        judged(&unseen),
        rows.iter().filter(|r| r.tolerance.is_some() && r.tap != "in" && r.tap != "embed").count()
    );
    let hidden = Bundle { taps: unseen, ..Bundle::default() };
    assert_eq!(judge(&hidden.evidence(), &Policy::default()).verdict, Verdict::Pass);
    // Nothing before the block differs, so the block is named.
    bundle.taps = outcome.taps.clone();
    let bad = judge(&bundle.evidence(), &Policy::default()).first_bad.unwrap();
    assert_eq!((bad.patch_set.as_str(), bad.layer.as_str()), ("stock+collapsed", "mtp.0"), "{bad:?}");
    assert_eq!(bad.tap, "in");
    // What the block makes of a wrong input is right: its layer is compared on the streams that entered it.
    let later = of("stock+collapsed").into_iter().filter(|r| r.tap != "in" && r.part.is_empty());
    let over = |r: &karat_bundle::TapRow| r.value.zip(r.tolerance).is_some_and(|(value, allowed)| value > allowed);
    assert_eq!(later.filter(over).map(|r| r.tap).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_f32_control_passes_in_it_and_a_second_run_comes_from_the_cache() {
    let place = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let run = || {
        let cache = Cache::open(place.path(), 1 << 30).unwrap();
        let requests = Requests { seqs: vec![turns("a", ids(40, 9), &[30, 10])] };
        let inputs = Inputs { requests, scenarios: vec!["made".into()], ..Inputs::default() };
        let job =
            Job { threads: 2, random_weights: true, cache: Some(&cache), ..Job::new(mini(), inputs, &Quiet, &stop) };
        let subject = Subject { stock: Stock::None, patches: vec!["bf16-mhc".into()], history: History::Cold };
        karat_audit::audit(&job, &subject).unwrap()
    };
    let (first, again) = (run(), run());
    let of_block = |bundle: &Bundle, set: &str| {
        let mine = bundle.taps.iter().filter(|r| r.layer == "mtp.0" && r.patch_set == set);
        mine.map(|r| (r.tap.clone(), r.gate.clone(), r.verdict, r.floor)).collect::<Vec<_>>()
    };
    let control = of_block(&first, "stock");
    assert!(control.iter().filter(|(_, gate, ..)| gate == "max_over_max").count() > 40, "{control:?}");
    assert!(control.iter().all(|(.., verdict, _)| *verdict != Some(Verdict::Fail)), "{control:?}");
    assert!(control.iter().any(|(tap, .., floor)| tap == "out" && floor.is_some_and(|f| f > 0.0)), "{control:?}");
    // A patch runs there too, and is counted: four layers and the block, 30 rows at once and 10 alone, twice a layer.
    let calls = &first.patches[0];
    assert_eq!((calls.calls_prefill, calls.calls_decode), (2 * 5, 2 * 5 * 10), "{calls:?}");
    assert!(first.taps == again.taps && first.flips == again.flips);
    assert!(first.verdict.forward_equivalents > 1.0 && again.verdict.forward_equivalents == 0.0);
    assert_eq!(again.run.cache.comparisons, again.run.cache.comparisons_asked);
}

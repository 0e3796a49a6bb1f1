//! Faults put into the stock path through the seam: the second look must name the op, say what the error looks like, and
//! take the harm away by putting golden's op in its place.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Facts, Lockstep, Quiet, Rules};
use karat_bundle::{Bundle, Examination, Policy, judge};
use karat_diff::Claims;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{
    Blocks, DataMut, Lane, Layer, Op, Path, Phase, Requests, Result, RowId, Sequence, Site, Span, SpanKind, Streams,
    Tap, Tensor, TensorMut, Turn, Visitor, Want,
};

/// Changes the values of rows `[n, width]` of one tap.
type Edit = fn(&[RowId], usize, &mut [f32]);

#[derive(Clone, Copy)]
struct Fault {
    site: Site,
    edit: Edit,
}

struct Faulty<'a> {
    inner: &'a Optimized,
    fault: Fault,
}

struct FaultyLayer<'a> {
    fault: Fault,
    inner: Box<dyn Layer + 'a>,
}

struct Edits<'a> {
    fault: Fault,
    inner: &'a mut dyn Visitor,
}

impl Visitor for Edits<'_> {
    fn want(&self, at: Site) -> Want {
        if at == self.fault.site { Want::Write } else { self.inner.want(at) }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let TensorMut { shape, mut data } = tensor;
        if let DataMut::F32(values) = &mut data
            && at == self.fault.site
        {
            (self.fault.edit)(rows, values.len() / rows.len(), values);
        }
        if self.inner.want(at) == Want::Skip { Ok(()) } else { self.inner.visit(at, rows, TensorMut { shape, data }) }
    }
}

impl Layer for FaultyLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        for lane in lanes {
            let mut see = Edits { fault: self.fault, inner: &mut *lane.see };
            let mut own = [Lane { x: lane.x, kv: lane.kv, routing: lane.routing, see: &mut see, out: None }];
            self.inner.run(&mut own)?;
            lane.out = own[0].out.take();
        }
        Ok(())
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

impl Path for Faulty<'_> {
    fn name(&self) -> String {
        "faulty".into()
    }

    fn identity(&self) -> [u8; 32] {
        [0; 32]
    }

    fn requests(&self) -> &Requests {
        self.inner.requests()
    }

    fn blocks(&self) -> Blocks {
        self.inner.blocks()
    }

    fn phase_of(&self, row: RowId) -> Phase {
        self.inner.phase_of(row)
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        self.inner.embed(see)
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        Ok(Box::new(FaultyLayer { fault: self.fault, inner: self.inner.layer(l)? }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        self.inner.head(lanes)
    }
}

/// 100 ids: a prompt of 40, 12 decoded, a second turn of 30, 18 decoded.
fn requests() -> Requests {
    let span = |kind, start, end| Span { kind, start, end };
    let ids: Vec<u32> = (0..100u32).map(|i| (i * 37 + i * i * 3 + 11) % 500).collect();
    let mut sequence = Sequence::prompt("made", ids);
    sequence.turns = vec![
        Turn { spans: vec![span(SpanKind::Prompt, 0, 40), span(SpanKind::Generated, 40, 52)], interrupted: true },
        Turn { spans: vec![span(SpanKind::Prompt, 52, 82), span(SpanKind::Generated, 82, 100)], interrupted: false },
    ];
    Requests { seqs: vec![sequence] }
}

/// An audit of stock with a fault, looked at again; and stock's mean KL without it.
fn examined(l: u16, tap: Tap, edit: Edit) -> (Bundle, f64) {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    let golden = Golden::new(checkpoint.clone(), requests(), Mode::F32, 2).unwrap();
    let plan = Plan { stock: Stock::Official, patches: vec![], history: History::Cold };
    let stock = Optimized::new(checkpoint.clone(), requests(), plan.clone(), 2).unwrap();
    let other = Optimized::new(checkpoint.clone(), requests(), plan, 2).unwrap();
    let faulty = Faulty { inner: &other, fault: Fault { site: Site::layer(l, tap), edit } };
    let rotates = [Phase::Prefill, Phase::Decode].map(|p| stock.numerics(p).index.hadamard);
    let rules = Some(Rules::of(&stock, &checkpoint));
    let lockstep = Lockstep {
        golden: &golden,
        floor: None,
        candidates: vec![
            Candidate { rotates, rules, ..Candidate::new("stock", &stock, Claims::Official) },
            Candidate { rotates, ..Candidate::new("stock+fault", &faulty, Claims::Official) },
        ],
        scenarios: vec!["made".into()],
        asks: &[],
        facts: Facts::of(&checkpoint).unwrap(),
        taps: &|_| true,
        layers: None,
        cache: None,
        states: None,
    };
    let outcome = lockstep.run(&Quiet, &AtomicBool::new(false)).unwrap();
    let kl: Vec<f64> = outcome.tokens.iter().filter(|t| t.patch_set == "stock").map(|t| t.kl).collect();
    let (taps, tokens, flips) = (outcome.taps, outcome.tokens, outcome.flips);
    let mut bundle = Bundle { taps, tokens, flips, derivations: outcome.derivations, ..Bundle::default() };
    bundle.verdict = judge(&bundle.evidence(), &Policy::default());
    lockstep.examine(&mut bundle).unwrap();
    (bundle, kl.iter().sum::<f64>() / kl.len() as f64)
}

fn check(l: u16, tap: Tap, edit: Edit, op: Op, looks: &[&str]) -> Bundle {
    let (bundle, stock) = examined(l, tap, edit);
    let bad = bundle.verdict.first_bad.clone().unwrap();
    assert_eq!((bad.patch_set.as_str(), bad.layer.as_str()), ("stock+fault", l.to_string().as_str()), "{bad:?}");
    let found: &Examination = bundle.verdict.examination.as_ref().unwrap();
    assert_eq!(found.op, op.spec().name, "{found:#?}");
    assert_eq!(found.tap, tap.name(), "{found:#?}");
    let signature = bundle.verdict.signature.clone().unwrap_or_default();
    for words in looks {
        assert!(signature.contains(words), "{words}: {signature}");
        assert!(found.summary.contains(words), "{}", found.summary);
    }
    // The fault's own share of the final KL goes away with golden's op, and with golden's layer.
    let share = found.kl - stock;
    assert!(share > 0.0, "the fault does nothing: {} against {stock}", found.kl);
    assert!(found.kl - found.kl_with_golden_op >= 0.8 * share, "{found:#?}, stock {stock}");
    let effect = &found.effects[0];
    assert_eq!(effect.layer, l.to_string(), "{:?}", found.effects);
    assert!(effect.removed >= 0.8 * share && effect.alone > 0.0, "{effect:?}, share {share}");
    // Parts close as the whole does.
    let parts: Vec<_> = bundle.taps.iter().filter(|r| r.part.starts_with("positions.")).collect();
    assert!(!parts.is_empty());
    for row in bundle.taps.iter().filter(|r| r.sum_cross.is_some()) {
        let (t, h) = (row.sum_total.unwrap(), row.sum_inherited.unwrap());
        let (j, cross) = (row.sum_dd.unwrap(), row.sum_cross.unwrap());
        let most = t.max(h).max(j).max(2.0 * cross.abs());
        assert!((t - (h + j + 2.0 * cross)).abs() <= 1e-12 * most, "{} {} {}", row.layer, row.tap, row.part);
    }
    println!("{}", found.summary);
    bundle
}

#[test]
fn a_factor_that_is_applied_twice_is_named_by_its_constant() {
    let twice: Edit = |_, _, values| values.iter_mut().for_each(|v| *v *= 1.5);
    let bundle = check(2, Tap::FfnRouted, twice, Op::Experts, &["constant gain"]);
    assert!(bundle.verdict.next_step.contains("a factor that is applied"), "{}", bundle.verdict.next_step);
}

#[test]
fn one_head_of_zeros_is_told_by_op_and_head() {
    let zero: Edit = |rows, width, values| {
        let heads = 4;
        let hd = width / heads;
        for row in 0..rows.len() {
            values[row * width + 2 * hd..row * width + 3 * hd].fill(0.0);
        }
    };
    let bundle = check(1, Tap::AttnO, zero, Op::Attend, &["zeros", "only head 2"]);
    // What reads the cache is at fault, not what it holds.
    let kv = bundle.verdict.examination.as_ref().unwrap().kv.clone().unwrap();
    assert!(kv.kernel > 3.0 * kv.cache && kv.kernel > 0.1, "{kv:?}");
    let worst = bundle.taps.iter().filter(|r| r.part.starts_with("head.")).max_by(|a, b| {
        let of = |r: &&karat_bundle::TapRow| r.injected.unwrap_or(0.0);
        of(a).total_cmp(&of(b))
    });
    assert_eq!(worst.unwrap().part, "head.2");
}

#[test]
fn rows_of_another_position_are_told() {
    // Prefill writes each row of a piece one place late.
    let late: Edit = |rows, width, values| values.copy_within(0..(rows.len() - 1) * width, width);
    let bundle = check(1, Tap::AttnKv, late, Op::KeyValue, &["stale, all by 1"]);
    // The cache is at fault, and what reads it does what it must.
    let kv = bundle.verdict.examination.as_ref().unwrap().kv.clone().unwrap();
    assert!(kv.cache > 3.0 * kv.kernel && kv.cache > 0.1 && kv.both > 0.1, "{kv:?}");
}

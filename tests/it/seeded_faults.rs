//! Faults put into the stock path through the seam's writable visitor: each must fail the audit at its own place.
//!
//! Most of them change decisions alone (which experts, which entries, which id): every tensor is then right for the
//! decision that was taken, so that only the gates on changed decisions can see them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Facts, Lockstep, Quiet};
use karat_bundle::TapRow;
use karat_diff::Claims;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{
    Block, Blocks, DataMut, Lane, Layer, Path, Phase, Requests, Result, RowId, Sequence, Site, Span, SpanKind, Streams,
    Tap, Tensor, TensorMut, Turn, Visitor, Want,
};

/// Changes one tap; sees the tensors that went before it in the same piece.
type Edit = fn(&mut BTreeMap<Tap, Vec<f32>>, &[RowId], &[usize], &mut DataMut<'_>);

/// A fault: where, what, and how it shows.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    /// Layer, `None` for the head.
    layer: Option<u16>,
    tap: Tap,
    edit: Edit,
    /// Tap and gate of the row that must fail first.
    expect: (Tap, &'static str),
}

/// A path with a fault in it.
struct Faulty<'a> {
    inner: &'a Optimized,
    fault: Fault,
}

impl Faulty<'_> {
    fn site(&self) -> Site {
        match self.fault.layer {
            Some(l) => Site::layer(l, self.fault.tap),
            None => Site { block: Block::Head, tap: self.fault.tap },
        }
    }

    fn faulty_lanes(
        &self,
        lanes: &mut [Lane<'_>],
        run: impl Fn(&mut [Lane<'_>]) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        let mut out = Vec::new();
        for lane in lanes {
            let mut see = Edits { fault: self.fault, site: self.site(), seen: BTreeMap::new(), inner: &mut *lane.see };
            let mut own = [Lane { x: lane.x, kv: lane.kv, routing: lane.routing, see: &mut see, out: None }];
            out.extend(run(&mut own)?);
            lane.out = own[0].out.take();
        }
        Ok(out)
    }
}

struct Edits<'a> {
    fault: Fault,
    site: Site,
    seen: BTreeMap<Tap, Vec<f32>>,
    inner: &'a mut dyn Visitor,
}

impl Visitor for Edits<'_> {
    fn want(&self, at: Site) -> Want {
        if at == self.site { Want::Write } else { self.inner.want(at) }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], mut tensor: TensorMut<'_>) -> Result<()> {
        if at.block == self.site.block
            && let DataMut::F32(values) = &tensor.data
        {
            self.seen.insert(at.tap, values.to_vec());
        }
        if at == self.site {
            let shape = tensor.shape.to_vec();
            (self.fault.edit)(&mut self.seen, rows, &shape, &mut tensor.data);
        }
        if self.inner.want(at) == Want::Skip { Ok(()) } else { self.inner.visit(at, rows, tensor) }
    }
}

struct FaultyLayer<'a> {
    path: &'a Faulty<'a>,
    inner: Box<dyn Layer + 'a>,
}

impl Layer for FaultyLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        self.path.faulty_lanes(lanes, |lanes| self.inner.run(lanes).map(|()| Vec::new())).map(|_| ())
    }

    fn has_op(&self, op: karat_seam::Op) -> bool {
        self.inner.has_op(op)
    }
}

impl Fault {
    /// Whether the fault changes this row.
    fn hits(&self, position: u64) -> bool {
        match self.name {
            "lost best" => position == 205,
            "shifted entries" => position % 8 == 7,
            "no newest entry" => true,
            _ => position % 16 == 5,
        }
    }
}

impl Path for Faulty<'_> {
    fn name(&self) -> String {
        self.fault.name.to_string()
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
        Ok(Box::new(FaultyLayer { path: self, inner: self.inner.layer(l)? }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        self.faulty_lanes(lanes, |lanes| self.inner.head(lanes))
    }
}

/// Two turns of 300 ids in all, the model's answers decoded.
fn requests() -> Requests {
    let span = |kind, start, end| Span { kind, start, end };
    let ids: Vec<u32> = (0..300u32).map(|i| (i * 37 + i * i * 3 + 11) % 500).collect();
    let mut sequence = Sequence::prompt("made", ids);
    sequence.turns = vec![
        Turn { spans: vec![span(SpanKind::Prompt, 0, 160), span(SpanKind::Generated, 160, 200)], interrupted: true },
        Turn { spans: vec![span(SpanKind::Prompt, 200, 260), span(SpanKind::Generated, 260, 300)], interrupted: false },
    ];
    Requests { seqs: vec![sequence] }
}

/// Judged rows under stock and under stock with the fault.
fn audit(fault: Fault) -> Vec<TapRow> {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    let golden = Golden::new(checkpoint.clone(), requests(), Mode::F32, 2).unwrap();
    let plan = Plan { stock: Stock::Official, patches: vec![], history: History::Cold };
    let stock = Optimized::new(checkpoint.clone(), requests(), plan.clone(), 2).unwrap();
    let other = Optimized::new(checkpoint.clone(), requests(), plan, 2).unwrap();
    let faulty = Faulty { inner: &other, fault };
    let rotates = [Phase::Prefill, Phase::Decode].map(|p| stock.numerics(p).index.hadamard);
    let lockstep = Lockstep {
        golden: &golden,
        floor: None,
        candidates: vec![
            Candidate { rotates, ..Candidate::new("stock", &stock, Claims::Official) },
            Candidate { rotates, ..Candidate::new("stock+fault", &faulty, Claims::Official) },
        ],
        scenarios: vec!["made".into()],
        asks: &[],
        facts: Facts::of(&checkpoint).unwrap(),
        taps: &|_| true,
        layers: None,
        cache: None,
    };
    lockstep.run(&Quiet, &AtomicBool::new(false)).unwrap().taps
}

/// Rows over their tolerance.
fn over<'a>(rows: &'a [TapRow], set: &str) -> Vec<&'a TapRow> {
    let is_over = |r: &&TapRow| match (r.value, r.tolerance) {
        (Some(v), Some(t)) => !(v <= t),
        _ => false,
    };
    rows.iter().filter(|r| r.patch_set == set).filter(is_over).collect()
}

/// The rank of each score, best first, the lower index first among equals.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order
}

/// Every 16th row takes the expert with the lowest score instead of its last one.
fn worst_expert(seen: &mut BTreeMap<Tap, Vec<f32>>, rows: &[RowId], shape: &[usize], data: &mut DataMut<'_>) {
    let DataMut::I64(idx) = data else { panic!("experts are integers") };
    let logits = &seen[&Tap::FfnRouterLogits];
    let (k, e) = (shape[1], logits.len() / rows.len());
    for i in (0..rows.len()).filter(|i| rows[*i].pos % 16 == 5) {
        let order = order(&logits[i * e..(i + 1) * e]);
        let worst = order.iter().rev().find(|e| !idx[i * k..(i + 1) * k].contains(&(**e as i64))).unwrap();
        idx[i * k + k - 1] = *worst as i64;
    }
}

/// Every 16th row attends to the worst visible entry instead of the best.
fn worst_entry(seen: &mut BTreeMap<Tap, Vec<f32>>, rows: &[RowId], shape: &[usize], data: &mut DataMut<'_>) {
    let DataMut::U8(mask) = data else { panic!("entries are a mask") };
    let Some(scores) = seen.get(&Tap::AttnIndexScore) else { return };
    let (width, t) = (shape[1], scores.len() / rows.len());
    for i in (0..rows.len()).filter(|i| rows[*i].pos % 16 == 5) {
        let row = &scores[i * t..(i + 1) * t];
        let order = order(row);
        let mask = &mut mask[i * width..(i + 1) * width];
        let best = order[0];
        let worst = order.iter().rev().find(|e| row[**e].is_finite()).copied();
        if let Some(worst) = worst.filter(|w| mask[*w] == 0) {
            mask[best] = 0;
            mask[worst] = 1;
        }
    }
}

/// Every 8th row attends to the entries after those that it chose: an index that is off by one.
fn shifted_entries(_: &mut BTreeMap<Tap, Vec<f32>>, rows: &[RowId], shape: &[usize], data: &mut DataMut<'_>) {
    let DataMut::U8(mask) = data else { panic!("entries are a mask") };
    for i in (0..rows.len()).filter(|i| rows[*i].pos % 8 == 7) {
        let mask = &mut mask[i * shape[1]..(i + 1) * shape[1]];
        // Visible entries alone, so that nothing of the future is attended to.
        let visible = (rows[i].pos as usize + 1) / 4;
        mask[..visible].rotate_right(1);
    }
}

/// The newest entry is never attended to: the best one left out takes its place.
fn no_newest_entry(seen: &mut BTreeMap<Tap, Vec<f32>>, rows: &[RowId], shape: &[usize], data: &mut DataMut<'_>) {
    let DataMut::U8(mask) = data else { panic!("entries are a mask") };
    let Some(scores) = seen.get(&Tap::AttnIndexScore) else { return };
    let (width, t) = (shape[1], scores.len() / rows.len());
    for i in 0..rows.len() {
        let visible = (rows[i].pos as usize + 1) / 4;
        let mask = &mut mask[i * width..(i + 1) * width];
        if visible == 0 || mask[visible - 1] == 0 {
            continue;
        }
        let next = order(&scores[i * t..(i + 1) * t]).into_iter().find(|e| *e < visible && mask[*e] == 0);
        if let Some(next) = next {
            mask[visible - 1] = 0;
            mask[next] = 1;
        }
    }
}

/// Every 16th row gives its best id the second-best logit, and the other way round.
fn swapped_best(_: &mut BTreeMap<Tap, Vec<f32>>, rows: &[RowId], shape: &[usize], data: &mut DataMut<'_>) {
    let DataMut::F32(logits) = data else { panic!("logits are f32") };
    for i in (0..rows.len()).filter(|i| rows[*i].pos % 16 == 5) {
        let row = &mut logits[i * shape[1]..(i + 1) * shape[1]];
        let order = order(row);
        row.swap(order[0], order[1]);
    }
}

/// One row gives its best id the lowest logit.
fn lost_best(_: &mut BTreeMap<Tap, Vec<f32>>, rows: &[RowId], shape: &[usize], data: &mut DataMut<'_>) {
    let DataMut::F32(logits) = data else { panic!("logits are f32") };
    for i in (0..rows.len()).filter(|i| rows[*i].pos == 205) {
        let row = &mut logits[i * shape[1]..(i + 1) * shape[1]];
        let order = order(row);
        row.swap(order[0], order[shape[1] - 1]);
    }
}

#[test]
fn a_changed_decision_is_found_where_it_was_made() {
    let entry = (Tap::AttnSelected, "unexplained_flips");
    let expert = (Tap::FfnIdx, "unexplained_flips");
    let argmax = (Tap::Logits, "unexplained_flips");
    let fault = |name, layer, tap, edit: Edit, expect| Fault { name, layer, tap, edit, expect };
    let faults = [
        fault("worst expert", Some(3), Tap::FfnIdx, worst_expert, expert),
        fault("worst entry", Some(3), Tap::AttnSelected, worst_entry, entry),
        fault("shifted entries", Some(1), Tap::AttnSelected, shifted_entries, entry),
        fault("no newest entry", Some(1), Tap::AttnSelected, no_newest_entry, entry),
        fault("swapped best", None, Tap::Logits, swapped_best, argmax),
        fault("lost best", None, Tap::Logits, lost_best, argmax),
    ];
    for fault in faults {
        let rows = audit(fault);
        let name = fault.name;
        assert!(over(&rows, "stock").is_empty(), "{name}: stock has no fault: {:?}", over(&rows, "stock"));
        let found = over(&rows, "stock+fault");
        let first = found.iter().map(|r| r.order).min().unwrap_or_else(|| panic!("{name}: not found"));
        let layer = fault.layer.map_or("head".to_string(), |l| l.to_string());
        for row in found.iter().filter(|r| r.order == first) {
            assert_eq!((row.layer.as_str(), row.tap.as_str()), (layer.as_str(), fault.expect.0.name()), "{name}");
        }
        let gate = found.iter().find(|r| r.order == first && r.gate == fault.expect.1);
        let gate = gate.unwrap_or_else(|| panic!("{name}: not found by {}", fault.expect.1));
        let position = gate.max_abs_position.unwrap();
        assert!(fault.hits(position), "{name}: position {position} is none that was changed");
    }
}

//! Golden at sampled rows: on x by a cold run of the whole conversation, on x' by those rows alone and the KV pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karat_diff::Claims;
use karat_reference::Golden;
use karat_seam::{
    Blocks, Error, Kv, KvPart, Lane, Layer, LayerOut, Op, Path, Recorder, Requests, Result, Routing, RowId, Site,
    Streams, Tap, Tensor, TensorMut, Visitor, Want,
};
use karat_trace::Trace;

use super::exact::{self, Exact};
use super::judge::{self, Judged};
use super::pages::{Kept, Pages};
use super::shares;
use crate::align;

/// Pages by sequence.
type All = BTreeMap<u32, Pages>;

/// Golden as the lockstep loop sees it: a path that has the sampled rows and no others.
///
/// A lane with its own KV is R(x): the whole conversation runs, once, and the lane gets its rows; without a cold run they go on
/// alone, on the candidate's pages. A lane with given KV is R(x'): only its rows run, on the candidate's pages.
pub(crate) struct SampledGolden<'a> {
    pub(crate) golden: &'a Golden,
    pub(crate) trace: &'a Trace,
    pub(crate) claims: Claims,
    /// Whether the candidate's index keys are rotated.
    pub(crate) rotated: bool,
    /// Golden runs the whole conversation, too.
    pub(crate) cold: bool,
    pub(crate) rows: Arc<[RowId]>,
    pub(crate) now: Mutex<Now>,
}

/// Where the run is.
#[derive(Default)]
pub(crate) struct Now {
    /// Streams of the whole conversation that enter layer `next`.
    x: Option<Streams>,
    /// The pages that R(x') attended to in the layer that ran last: the candidate's, or mended ones.
    attended: All,
    /// What was found, layer by layer.
    pub(crate) found: Vec<Found>,
}

/// One sequence in one layer.
pub(crate) struct Found {
    pub(crate) l: u16,
    pub(crate) seq: u32,
    pub(crate) judged: Vec<Judged>,
    pub(crate) shares: Option<karat_bundle::KvShares>,
    /// True when rows agree with the pages as they were before the bad rows came into them.
    pub(crate) read_before: bool,
}

/// Runs of consecutive positions of one sequence.
pub(crate) fn runs(rows: &[RowId]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        match out.last_mut() {
            Some(run) if rows[i - 1].seq == row.seq && rows[i - 1].pos + 1 == row.pos => run.end = i + 1,
            _ => out.push(i..i + 1),
        }
    }
    out
}

/// Shows a visitor the rows of a list, of what a run shows whole; entries and state whole.
struct Pick<'a> {
    rows: BTreeSet<(u32, u32)>,
    see: &'a mut dyn Visitor,
    kept: &'a mut Own,
}

/// What R(x) leaves for the judge of the pages.
struct Own {
    /// All KV rows.
    kv: Recorder,
    /// The sampled rows of what the pages are judged by.
    rows: Recorder,
}

impl Own {
    fn new() -> Self {
        let is_kv = |tap| matches!(tap, Tap::AttnKv | Tap::AttnCkv | Tap::AttnIndexK);
        let is_judge =
            |tap| matches!(tap, Tap::AttnKv | Tap::AttnKvp | Tap::AttnIndexKvp) || shares::TAPS.contains(&tap);
        Self { kv: Recorder::new(move |site| is_kv(site.tap)), rows: Recorder::new(move |site| is_judge(site.tap)) }
    }
}

impl Visitor for Pick<'_> {
    fn want(&self, at: Site) -> Want {
        let all = [self.kept.kv.want(at), self.kept.rows.want(at), self.see.want(at)];
        if all.contains(&Want::Read) { Want::Read } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let mut whole = tensor.to_tensor();
        if self.kept.kv.want(at) != Want::Skip {
            self.kept.kv.visit(at, rows, whole.as_mut())?;
        }
        let wants = self.see.want(at) != Want::Skip;
        if at.tap.is_per_entry() || at.tap.is_state() {
            return if wants { self.see.visit(at, rows, whole.as_mut()) } else { Ok(()) };
        }
        let picked: Vec<RowId> = rows.iter().copied().filter(|r| self.rows.contains(&(r.seq, r.pos))).collect();
        let Some(mut own) = align::gather(rows, &whole, &picked).map(std::borrow::Cow::into_owned) else {
            return Ok(());
        };
        if self.kept.rows.want(at) != Want::Skip {
            self.kept.rows.visit(at, &picked, own.as_mut())?;
        }
        if wants && !picked.is_empty() { self.see.visit(at, &picked, own.as_mut()) } else { Ok(()) }
    }
}

impl SampledGolden<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn picked(&self, x: &Streams) -> Result<Streams> {
        let data = align::gather(&x.rows, &x.data, &self.rows);
        let data = data.ok_or_else(|| Error::Request("a sampled row is not of the conversation".into()))?.into_owned();
        Ok(Streams { rows: self.rows.clone(), data })
    }

    fn pick<'v>(&self, see: &'v mut dyn Visitor, kept: &'v mut Own) -> Pick<'v> {
        Pick { rows: self.rows.iter().map(|r| (r.seq, r.pos)).collect(), see, kept }
    }

    /// R(x): the whole conversation through the layer.
    fn whole(&self, layer: &dyn Layer, l: u16, lane: &mut Lane<'_>) -> Result<Own> {
        if !self.cold {
            let kept = Kept::of(self.golden.config(), l);
            let wanted = wanted(lane.see, l);
            let (seen, out) = sampled(layer, (l, kept), lane.x, &self.pages(l)?, lane.routing, &wanted)?;
            show(&seen, lane.see)?;
            lane.out = Some(LayerOut { streams: out });
            return Ok(Own { kv: Recorder::new(|_| false), rows: seen });
        }
        let x = self.lock().x.take().ok_or_else(|| Error::Request(format!("layer {l} ran before what leads to it")))?;
        let mut kept = Own::new();
        let mut see = self.pick(&mut *lane.see, &mut kept);
        let mut all = [Lane::new(&x, &mut see)];
        layer.run(&mut all)?;
        let out = all[0].out.take().ok_or_else(|| Error::Request(format!("layer {l} left no streams")))?.streams;
        lane.out = Some(LayerOut { streams: self.picked(&out)? });
        self.lock().x = Some(out);
        Ok(kept)
    }

    /// The candidate's pages of a layer.
    fn pages(&self, l: u16) -> Result<All> {
        let kept = Kept::of(self.golden.config(), l);
        let mut all = All::new();
        let seqs: BTreeSet<u32> = self.rows.iter().map(|r| r.seq).collect();
        for seq in seqs {
            let pages = Pages::read(self.trace, (l, seq), kept, self.rotated).map_err(Error::source)?;
            all.extend(pages.map(|pages| (seq, pages)));
        }
        Ok(all)
    }

    /// R(x') at the lane's rows, and what the pages are worth. `own`: what R(x) left; `x`: its streams at these rows.
    fn on_pages(&self, layer: &dyn Layer, l: u16, lane: &mut Lane<'_>, own: &Own, x: &Streams) -> Result<()> {
        let config = self.golden.config();
        let kept = Kept::of(config, l);
        let theirs = self.pages(l)?;
        let wanted = wanted(lane.see, l);
        let go = |x: &Streams, pages: &All| sampled(layer, (l, kept), x, pages, lane.routing, &wanted);
        let (mut seen, mut out) = go(lane.x, &theirs)?;
        let mut mended = theirs.clone();
        let mut found = Vec::new();
        for (seq, pages) in &theirs {
            let all = golden_rows(l, *seq, pages, &own.kv).filter(|_| self.cold).unwrap_or_default();
            let mut judged = Vec::new();
            for (part, tap, width, made_of) in kept.parts() {
                let (theirs, ours) = (pages.rows(part), all.rows(part));
                let n = ours.len() / width;
                if self.cold && ours.len() != theirs.len() {
                    return Err(Error::Request(format!("{}: {n} rows expected", Site::layer(l, tap))));
                }
                let names: Vec<u32> = match part {
                    KvPart::Window => all.positions.clone(),
                    _ => (0..n as u32).collect(),
                };
                let exact = Exact::of(&seen, (l, *seq), (part, width), pages);
                let by_made = exact.judge(tap, theirs, judge::limit(self.claims, tap, 0.0));
                let limit = judge::limit(self.claims, tap, judge::inherited(&own.rows, &seen, (l, *seq), made_of));
                let result = exact::both(judge::judge(tap, theirs, ours, &names, limit), by_made);
                if let Some(to) = mended.get_mut(seq).filter(|_| result.limit.is_told) {
                    for (name, _) in &result.bad {
                        let place = match part {
                            KvPart::Window => pages.positions.binary_search(name).ok(),
                            _ => Some(*name as usize),
                        };
                        let Some(at) = place.map(|place| place * width..(place + 1) * width) else { continue };
                        let own = names.binary_search(name).ok().map(|i| &ours[i * width..(i + 1) * width]);
                        if let Some(right) = exact.row(*name).or(own) {
                            to.of(part)[at].copy_from_slice(right);
                        }
                    }
                }
                judged.push(result);
            }
            found.push(Found { l, seq: *seq, judged, shares: None, read_before: false });
        }
        let (on_kv2, _) = go(x, &theirs)?;
        let mut attended = theirs;
        let mut instead = None;
        if mended != attended {
            let (again, after) = go(lane.x, &mended)?;
            instead = Some((again, after));
        }
        for found in &mut found {
            let fixed = instead.as_ref().map_or(&seen, |(again, _)| again);
            let all = shares::Lanes { x: &own.rows, x2: fixed, kv2: &on_kv2, both: &seen };
            let told = shares::of(self.trace, (l, found.seq), &self.rows, &all);
            found.read_before = told.as_ref().is_some_and(|t| t.read_before);
            found.shares = told.map(|t| t.shares);
        }
        // Sequences share a lane: one that read its pages before they went bad speaks for all that did not.
        if found.iter().any(|f| f.read_before)
            && let Some((again, after)) = instead
        {
            (seen, out, attended) = (again, after, mended);
        }
        show(&seen, lane.see)?;
        lane.out = Some(LayerOut { streams: out });
        let mut now = self.lock();
        now.attended = attended;
        now.found.extend(found);
        Ok(())
    }
}

/// Golden's own rows where the candidate's pages have theirs.
fn golden_rows(l: u16, seq: u32, pages: &Pages, golden: &Recorder) -> Option<Pages> {
    let get = |tap| golden.get(Site::layer(l, tap), seq);
    let kv = get(Tap::AttnKv)?;
    let rows: Vec<RowId> = pages.positions.iter().map(|pos| RowId::new(seq, *pos)).collect();
    let values = |tensor: &Tensor| tensor.as_f32("KV rows").map(<[f32]>::to_vec).unwrap_or_default();
    let window = values(align::gather(&kv.rows, &kv.tensor, &rows)?.as_ref());
    let of = |tap| get(tap).map(|r| values(&r.tensor)).unwrap_or_default();
    Some(Pages { positions: pages.positions.clone(), window, entries: of(Tap::AttnCkv), keys: of(Tap::AttnIndexK) })
}

/// The taps of a layer that a visitor wants.
fn wanted(see: &dyn Visitor, l: u16) -> BTreeSet<Tap> {
    let wants = |tap: &Tap| see.want(Site::layer(l, *tap)) != Want::Skip;
    let mut taps: BTreeSet<Tap> = Tap::ALL.iter().copied().filter(wants).collect();
    taps.extend([Tap::AttnKvp, Tap::AttnIndexKvp].into_iter().chain(Exact::TAPS));
    taps.extend(shares::TAPS);
    taps
}

/// Runs some rows through a layer, each run of consecutive positions as a lane that goes on from its pages.
fn sampled(
    layer: &dyn Layer,
    (l, kept): (u16, Kept),
    x: &Streams,
    pages: &All,
    routing: Routing<'_>,
    wanted: &BTreeSet<Tap>,
) -> Result<(Recorder, Streams)> {
    let runs = runs(&x.rows);
    let mut inputs = Vec::new();
    let mut views = Vec::new();
    for run in &runs {
        let rows: Arc<[RowId]> = x.rows[run.clone()].into();
        let (seq, first, end) = (rows[0].seq, rows[0].pos, rows[rows.len() - 1].pos + 1);
        views.push(pages.get(&seq).map(|pages| pages.view(seq, first..end, kept)));
        let data = align::gather(&x.rows, &x.data, &rows).map(std::borrow::Cow::into_owned);
        let data = data.ok_or_else(|| Error::Request(format!("layer {l}: a row is missing")))?;
        inputs.push(Streams { rows, data });
    }
    let see = || {
        let wanted = wanted.clone();
        Recorder::new(move |site| wanted.contains(&site.tap) && !site.tap.is_state())
    };
    let mut seen: Vec<Recorder> = runs.iter().map(|_| see()).collect();
    let mut lanes = Vec::new();
    for ((x, view), see) in inputs.iter().zip(&views).zip(&mut seen) {
        let kv = view.as_ref().map_or(Kv::Own, |view| Kv::Given(view));
        lanes.push(Lane { kv, routing, ..Lane::new(x, see) });
    }
    layer.run(&mut lanes)?;
    let outs: Option<Vec<Streams>> = lanes.into_iter().map(|lane| lane.out.map(|out| out.streams)).collect();
    let outs = outs.ok_or_else(|| Error::Request(format!("layer {l} left no streams")))?;
    let mut all = see();
    for seen in seen {
        show(&seen, &mut all)?;
    }
    let data = join(outs.into_iter().map(|out| out.data).collect());
    Ok((all, Streams { rows: x.rows.clone(), data }))
}

/// Shows a visitor what a recorder has, in op order.
fn show(seen: &Recorder, see: &mut dyn Visitor) -> Result<()> {
    for ((site, _), recorded) in &seen.taps {
        if see.want(*site) != Want::Skip {
            let mut tensor = recorded.tensor.clone();
            see.visit(*site, &recorded.rows, tensor.as_mut())?;
        }
    }
    Ok(())
}

/// Tensors of one element type, joined along axis 0.
fn join(pieces: Vec<Tensor>) -> Tensor {
    let mut all: Option<Tensor> = None;
    for piece in pieces {
        match &mut all {
            None => all = Some(piece),
            Some(all) => {
                all.shape[0] += piece.rows();
                match (&mut all.data, piece.data) {
                    (karat_seam::Data::F32(a), karat_seam::Data::F32(b)) => a.extend(b),
                    (karat_seam::Data::F64(a), karat_seam::Data::F64(b)) => a.extend(b),
                    // One path has one element type.
                    _ => {}
                }
            }
        }
    }
    all.unwrap_or_else(|| Tensor::f32(vec![0], Vec::new()))
}

impl Path for SampledGolden<'_> {
    fn name(&self) -> String {
        format!("{} at sampled rows", self.golden.name())
    }

    fn identity(&self) -> [u8; 32] {
        self.golden.identity()
    }

    fn floor(&self) -> f64 {
        self.golden.floor()
    }

    fn requests(&self) -> &Requests {
        self.golden.requests()
    }

    /// MTP blocks draft from whole conversations: none here.
    fn blocks(&self) -> Blocks {
        Blocks { mtp: 0, ..self.golden.blocks() }
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        if !self.cold {
            return self.golden.embed_at(&self.rows, see);
        }
        let mut none = Own::new();
        let x = self.golden.embed(&mut self.pick(see, &mut none))?;
        let picked = self.picked(&x)?;
        self.lock().x = Some(x);
        Ok(picked)
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        Ok(Box::new(SampledLayer { path: self, inner: self.golden.layer(l)?, l }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        head(self.golden, lanes)
    }
}

/// The head of any rows: they don't meet in it.
fn head(golden: &Golden, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
    let mut all = Vec::new();
    for lane in lanes {
        let mut pieces = Vec::new();
        for run in runs(&lane.x.rows) {
            let rows: Arc<[RowId]> = lane.x.rows[run].into();
            let data = align::gather(&lane.x.rows, &lane.x.data, &rows).map(std::borrow::Cow::into_owned);
            let x = Streams { rows, data: data.ok_or_else(|| Error::Request("a row of the head is missing".into()))? };
            pieces.extend(golden.head(&mut [Lane::new(&x, &mut *lane.see)])?);
        }
        all.push(join(pieces));
    }
    Ok(all)
}

/// A resident layer of [`SampledGolden`].
struct SampledLayer<'a> {
    path: &'a SampledGolden<'a>,
    inner: Box<dyn Layer + 'a>,
    l: u16,
}

impl Layer for SampledLayer<'_> {
    /// The first lane is R(x); those with given KV are R(x').
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let Some((first, rest)) = lanes.split_first_mut() else { return Ok(()) };
        let l = self.l;
        let own = self.path.whole(&*self.inner, l, first)?;
        if rest.is_empty() {
            return Ok(());
        }
        let x = first.x;
        for lane in rest {
            self.path.on_pages(&*self.inner, l, lane, &own, x)?;
        }
        Ok(())
    }

    /// Ops that read entries or windows need a whole cold run: unsupported.
    fn op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        match op {
            Op::Attend | Op::IndexScore | Op::CompressPool | Op::IndexPool => {
                Err(Error::Unsupported { what: format!("op {}", op.spec().name), by: self.path.name() })
            }
            _ => self.inner.op(op, operands, rows),
        }
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

/// Golden in f64 on the pages that R(x') attended to: its floor.
pub(crate) struct SampledFloor<'a> {
    pub(crate) golden: &'a Golden,
    pub(crate) beside: &'a SampledGolden<'a>,
}

impl Path for SampledFloor<'_> {
    fn name(&self) -> String {
        format!("{} at sampled rows", self.golden.name())
    }

    fn identity(&self) -> [u8; 32] {
        self.golden.identity()
    }

    fn requests(&self) -> &Requests {
        self.golden.requests()
    }

    /// MTP blocks draft from whole conversations: none here.
    fn blocks(&self) -> Blocks {
        Blocks { mtp: 0, ..self.golden.blocks() }
    }

    fn embed(&self, _: &mut dyn Visitor) -> Result<Streams> {
        Err(Error::Unsupported { what: "embed".into(), by: self.name() })
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        Ok(Box::new(FloorLayer { path: self, inner: self.golden.layer(l)?, l }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        head(self.golden, lanes)
    }
}

struct FloorLayer<'a> {
    path: &'a SampledFloor<'a>,
    inner: Box<dyn Layer + 'a>,
    l: u16,
}

impl Layer for FloorLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let kept = Kept::of(self.path.golden.config(), self.l);
        let pages = self.path.beside.lock().attended.clone();
        for lane in lanes {
            let taps = wanted(lane.see, self.l);
            let (seen, out) = sampled(&*self.inner, (self.l, kept), lane.x, &pages, lane.routing, &taps)?;
            show(&seen, lane.see)?;
            lane.out = Some(LayerOut { streams: out });
        }
        Ok(())
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

//! The routed experts of a layer: its rows and the sums over experts stay on the device while one expert after the other passes.
//! On the exact-split tier their products run as all others do there ([`super::split`]).

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use karat_model::{Error, Result};
use karat_reference::backend::{Act, Experts, Kept, Matrix, Up};
use karat_seam::Later;

use super::ops::{fit, floats, indices, one, product, rows, step, values};
use super::run::{Desk, Found, Piece, Runner, Step, Values};
use super::sketch::{Lent, Lies, want};
use super::split;

/// Most bytes of rows and sums; beyond that the experts go op by op.
const MOST: usize = 8 << 30;
/// Most bytes of activations that are kept for their sketches, of which those of two layers are there at a time.
const MOST_KEPT: usize = 4 << 30;

/// Rows `[rows, D]` and sums `[sums, D]`, f64; activations that are kept.
#[derive(Debug)]
pub(super) struct Rows<R: Runner> {
    desk: Desk<R>,
    d: usize,
    x: Option<(R::Memory, usize)>,
    sums: Option<(R::Memory, usize)>,
    acts: Option<Acts<R::Memory>>,
}

/// Activations `[acts, I]`.
#[derive(Debug)]
struct Acts<M> {
    memory: Arc<Lent<M>>,
    count: usize,
    inner: usize,
}

/// What an op is put together from.
struct Plan<'a, R: Runner> {
    pieces: Vec<Piece<'a>>,
    steps: Vec<Step>,
    /// Weights in bf16 that its products on the tensor cores read.
    narrow: Vec<Arc<R::Memory>>,
}

/// A weight that is held, with the address of its panels.
type Held = (Kept, u64);

impl<'a, R: Runner> Plan<'a, R> {
    fn new() -> Self {
        Self { pieces: Vec::new(), steps: Vec::new(), narrow: Vec::new() }
    }

    /// Adds a piece and gives its place.
    fn piece(&mut self, piece: Piece<'a>) -> usize {
        self.pieces.push(piece);
        self.pieces.len() - 1
    }

    /// Adds `x w^T` of sizes s, n, k between the pieces at x and y.
    fn multiply(&mut self, desk: &Desk<R>, [x, y]: [usize; 2], w: &Held, size: [usize; 3]) -> Result<()> {
        let [s, n, k] = size;
        let panels = self.piece(Piece::Held(w.1));
        let Some(narrow) = desk.split_weight((s, n, k), (&w.0, w.1))? else {
            self.steps.push(product([x, panels, y], size));
            return Ok(());
        };
        let terms = self.piece(Piece::Room(6 * s * k));
        let weight = self.piece(Piece::Held(desk.runner.at(&narrow)));
        let [marks, redone] = [Piece::Room(4 * s), Piece::U32(s)].map(|piece| self.piece(piece));
        self.steps.extend(split::steps((s, n, k), [x, terms, weight, panels, marks, redone, y]));
        self.narrow.push(narrow);
        Ok(())
    }

    /// Runs it: the values that it gives, none or one tensor of them.
    ///
    /// # Safety
    /// As for [`Desk::run`].
    unsafe fn run(&self, desk: &Desk<R>) -> Result<Vec<f32>> {
        let mut out = Vec::new();
        // SAFETY: what the caller promises.
        for found in unsafe { desk.run(&self.pieces, &self.steps) }? {
            match found {
                Found::F32(values) => out = values,
                Found::U32(redone) => desk.count_split(redone.len(), &redone),
                Found::U8(_) => return Err(Error::input("a device gave bytes for values")),
            }
        }
        Ok(out)
    }
}

impl<R: Runner> Rows<R> {
    /// Lays the rows there; `None` where they and the sums are too many.
    pub(super) fn begin(desk: &Desk<R>, x: &[&[f32]], d: usize, sums: usize) -> Result<Option<Self>> {
        let count = x.iter().map(|x| rows("experts", x.len(), d)).sum::<Result<usize>>()?;
        if (4 * count + 8 * sums).saturating_mul(d) > MOST || u32::try_from(count.max(sums)).is_err() {
            return Ok(None);
        }
        let desk = desk.alone();
        let mut it = Self { desk, d, x: None, sums: None, acts: None };
        if count > 0 {
            let memory = it.desk.runner.alloc(4 * count * d)?;
            let mut at = 0;
            for x in x {
                it.desk.runner.write(&memory, at, Values::F32(x))?;
                at += size_of_val(*x);
            }
            it.x = Some((memory, count));
        }
        if sums > 0 {
            let memory = it.desk.runner.alloc(8 * sums * d)?;
            let clear = step("golden_clear", sums * d, &[0], &[sums * d], &[]);
            // SAFETY: the memory has so many f64.
            unsafe { it.desk.run(&[Piece::Held(it.desk.runner.at(&memory))], &[clear]) }?;
            it.sums = Some((memory, sums));
        }
        Ok(Some(it))
    }

    /// Activations of some rows; gives their place. `lists`: the rows, and behind them where their activations are kept, if they are.
    fn up<'a>(
        &self,
        plan: &mut Plan<'a, R>,
        lists: &'a [u32],
        up: &Up<'a>,
        [w1, w3]: [&Held; 2],
        act: Piece<'a>,
    ) -> Result<usize> {
        let (s, d, inner) = (up.wt.len(), self.d, up.weights[0].n);
        let (rows, kept) = lists.split_at_checked(s).unwrap_or((lists, &[]));
        let (x, count) = self.x.as_ref().ok_or_else(|| Error::input("no rows were laid on the device"))?;
        fit("experts", up.weights.iter().all(|w| (w.n, w.k) == (inner, d)) && rows.len() == s)?;
        fit("experts", rows.iter().all(|&row| (row as usize) < *count))?;
        let from = plan.piece(Piece::Held(self.desk.runner.at(x)));
        let row = plan.piece(indices(lists));
        let own = plan.piece(Piece::Room(4 * s * d));
        let [g, u] = [(); 2].map(|()| plan.piece(Piece::Room(4 * s * inner)));
        let wt = plan.piece(floats(up.wt));
        let act = plan.piece(act);
        let limit = [f64::from(up.limit)];
        plan.steps.push(step("golden_gather", s * d, &[from, row, own], &[s, d], &[]));
        plan.multiply(&self.desk, [own, g], w1, [s, inner, d])?;
        plan.multiply(&self.desk, [own, u], w3, [s, inner, d])?;
        plan.steps.push(step("golden_swiglu", s * inner, &[g, u, wt, act], &[s * inner, inner], &limit));
        if let Some(acts) = self.acts.as_ref().filter(|_| !kept.is_empty()) {
            // Each where it alone is written.
            fit("experts", acts.inner == inner && kept.len() == s && kept.windows(2).all(|at| at[0] < at[1]))?;
            fit("experts", kept.last().is_none_or(|&last| (last as usize) < acts.count))?;
            let kept = plan.piece(Piece::Held(self.desk.runner.at(acts.memory.memory()?)));
            plan.steps.push(step("golden_sketch_keep", s * inner, &[act, row, kept], &[s, inner], &[]));
        }
        Ok(act)
    }
}

/// Where the runs of equal rows begin, each with its row; then the end.
fn runs(rows: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (mut row, mut from) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len() + 1));
    for (i, &r) in rows.iter().enumerate() {
        if row.last() != Some(&r) {
            row.push(r);
            from.push(i as u32);
        }
    }
    from.push(rows.len() as u32);
    (row, from)
}

// SAFETY of every block below: the sizes that a kernel is given are those that were checked against the lengths of its operands
// just above it or in `up`, and panels that are held are as long as their sizes ask for.
impl<R: Runner> Experts for Rows<R> {
    fn act(&self, rows: &[u32], up: Up<'_>) -> Result<Vec<f32>> {
        let [w1, w3] = [self.desk.held(up.weights[0])?, self.desk.held(up.weights[1])?];
        let mut plan = Plan::new();
        self.up(&mut plan, rows, &up, [&w1, &w3], Piece::F32(rows.len() * up.weights[0].n))?;
        // SAFETY: as said above.
        unsafe { plan.run(&self.desk) }
    }

    fn down(&self, rows: &[u32], act: Act<'_>, w2: Matrix<'_>) -> Result<Vec<f32>> {
        let (s, d, inner) = (rows.len(), self.d, w2.k);
        fit("experts", w2.n == d)?;
        let w2 = self.desk.held(w2)?;
        let lists = if let Act::Made(up) = &act { [rows, up.kept].concat() } else { Vec::new() };
        let mut plan = Plan::new();
        let up = match act {
            Act::Given(_) => None,
            Act::Made(up) => Some((up, self.desk.held(up.weights[0])?, self.desk.held(up.weights[1])?)),
        };
        let act = match (&up, act) {
            (Some((up, w1, w3)), _) => {
                fit("experts", up.weights[0].n == inner)?;
                self.up(&mut plan, &lists, up, [w1, w3], Piece::Room(4 * s * inner))?
            }
            (None, Act::Given(act)) => {
                fit("experts", act.len() == s * inner)?;
                plan.piece(floats(act))
            }
            (None, Act::Made(_)) => return Err(Error::input("an expert has no activations")),
        };
        let y = plan.piece(if self.sums.is_some() { Piece::Room(4 * s * d) } else { Piece::F32(s * d) });
        plan.multiply(&self.desk, [act, y], &w2, [s, d, inner])?;
        let (row, from) = runs(rows);
        if let Some((sums, count)) = &self.sums {
            // Each run of its own row: two of one row would be added by two threads at once.
            fit("experts", row.windows(2).all(|pair| pair[0] < pair[1]))?;
            fit("experts", row.last().is_none_or(|&last| (last as usize) < *count))?;
            let place = [y, plan.piece(indices(&row)), plan.piece(indices(&from))];
            let sums = plan.piece(Piece::Held(self.desk.runner.at(sums)));
            let places = [place[0], place[1], place[2], sums];
            plan.steps.push(step("golden_accumulate", row.len() * d, &places, &[row.len(), d], &[]));
        }
        // SAFETY: as said above.
        unsafe { plan.run(&self.desk) }
    }

    fn sums(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        let (sums, count) = self.sums.as_ref().ok_or_else(|| Error::input("no sums were asked for on the device"))?;
        fit("experts", rows.start <= rows.end && rows.end <= *count)?;
        let n = rows.len() * self.d;
        let pieces = [Piece::Held(self.desk.runner.at(sums)), Piece::F32(n)];
        let step = step("golden_round", n, &[0, 1], &[n, rows.start * self.d], &[]);
        // SAFETY: as said above.
        values(one(unsafe { self.desk.run(&pieces, &[step]) }?)?)
    }

    fn keep(&mut self, acts: usize, inner: usize) -> Result<bool> {
        let bytes = acts.saturating_mul(4 * inner);
        if bytes > MOST_KEPT || u32::try_from(acts).is_err() || !self.desk.runner.sketches() {
            return Ok(false);
        }
        let room = self.desk.room.lock().unwrap_or_else(PoisonError::into_inner);
        // Without so much memory they go the other way, as without anybody who takes sketches.
        let memory = room.waiting.spare.lend(&*self.desk.runner, bytes).ok().map(Arc::new);
        self.acts = memory.map(|memory| Acts { memory, count: acts, inner });
        Ok(self.acts.is_some())
    }

    fn sketch(&self, rows: Range<usize>, each: usize) -> Result<Option<Box<dyn Later>>> {
        let Some(acts) = &self.acts else { return Ok(None) };
        fit("experts", rows.start <= rows.end && rows.end * each <= acts.count)?;
        let (lies, width) = (Lies::Held(acts.memory.clone()), each * acts.inner);
        let values = rows.start * width..rows.end * width;
        want(&self.desk.runner, &self.desk.room, lies, &values, (rows.len(), false)).map(Some)
    }
}

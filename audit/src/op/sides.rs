//! Golden, golden in f64 and the contract on the same operands.

use std::borrow::Cow;

use karat_model::Error as Message;
use karat_optimized::{Accumulation, History, Numerics, Optimized, Plan};
use karat_reference::{Golden, Mode};
use karat_seam::{
    Data, Error as SeamError, Layer, Op, Path, Phase, Requests, RowId, Sequence, Span, SpanKind, Tap, Tensor, Turn,
};

use super::{OpJob, Operands, file};
use crate::by_kernel::Sizes;
use crate::{Facts, Result, rotate};

/// Values of an operand widened to all positions: 2 GiB.
const MOST: usize = 1 << 29;

/// What three sides make of the operands: the rows of the operands, in golden's shapes.
pub struct Sides {
    /// Golden.
    pub golden: Vec<(Tap, Tensor)>,
    /// The same op in f64 on the same operands: its distance is golden's floor.
    pub(super) floor: Vec<(Tap, Tensor)>,
    /// The contract.
    pub contract: Vec<(Tap, Tensor)>,
    /// Lengths of sums, and what the plan stores.
    pub(super) sizes: Sizes,
    /// Positions of the token rows.
    pub(super) positions: Vec<u32>,
    /// The router's biases, where golden adds some.
    pub(super) bias: Option<Vec<f32>>,
}

impl Sides {
    /// Runs the op.
    ///
    /// # Errors
    /// Usage: patches that are not known or don't act on this op in this phase, a layer that lacks the op. Input: operands of other
    /// shapes than the model's, positions or ids past it.
    pub fn run(job: &OpJob, operands: &Operands) -> Result<Self> {
        let config = job.checkpoint.config();
        let name = job.op.spec().name;
        let reads = job.check()?;
        for tap in &reads {
            if operands.tensor(*tap).is_none() {
                let error = Message::input(format!("op {name} needs an operand that is not there")).at(&operands.label);
                let hint = "karat op --list names the operands of each op";
                return Err(error.expected(format!("operand.{} {}", tap.name(), tap.about())).hint(hint).into());
            }
        }
        let is_hashed = job.op == Op::Route && config.is_hash_layer(usize::from(job.layer));
        if is_hashed && operands.ids.is_empty() {
            let error = Message::input(format!("layer {} chooses experts by token id", job.layer)).at(&operands.label);
            return Err(error.expected("ids: I64 [S]").found("no such tensor").into());
        }
        let whole = Whole::of(job, operands)?;
        let requests = whole.requests(job, operands);
        let run = |path: &dyn Path, given: &[(Tap, Tensor)]| -> Result<Vec<(Tap, Tensor)>> {
            let layer: Box<dyn Layer + '_> = path.layer(job.layer)?;
            let made = layer.op(job.op, given, &whole.rows).map_err(|e| told(e, operands))?;
            Ok(made.into_iter().map(|(tap, tensor)| (tap, whole.kept(tap, tensor))).collect())
        };
        let golden = Golden::new(job.checkpoint.clone(), requests.clone(), Mode::F32, job.threads)?;
        let golden = run(&golden, &whole.given)?;
        let floor = Golden::new(job.checkpoint.clone(), requests.clone(), Mode::F64, job.threads)?;
        let wide: Vec<(Tap, Tensor)> = whole.given.iter().map(|(tap, t)| (*tap, widened(t))).collect();
        let floor = run(&floor, &wide)?;
        let history = if job.phase == Phase::Decode { History::Decoded } else { History::Cold };
        let plan = Plan { stock: job.stock, patches: job.patches.clone(), history };
        let path = Optimized::new(job.checkpoint.clone(), requests, plan, job.threads)?;
        let contract = run(&path, &whole.given)?;
        let numerics: &Numerics = path.numerics(job.phase);
        let in_frame = |made: Vec<(Tap, Tensor)>| -> Vec<(Tap, Tensor)> {
            let turned = |(tap, tensor): (Tap, Tensor)| {
                let turn = vec![numerics.index.hadamard && rotate::is_rotated(tap); tensor.rows()];
                (tap, rotate::rows(Cow::Owned(tensor), &turn).into_owned())
            };
            made.into_iter().map(turned).collect()
        };
        // Whose kernel it is isn't known: sm_90's model is the one that is declared.
        let accumulation = Accumulation::default();
        let sizes = Sizes::new(config, [Phase::Prefill, Phase::Decode].map(|p| path.numerics(p)), 1, &accumulation);
        let bias = if job.op == Op::Route { bias(job)? } else { None };
        let positions = operands.positions.clone();
        Ok(Self { golden: in_frame(golden), floor: in_frame(floor), contract, sizes, positions, bias })
    }
}

impl OpJob {
    /// Taps that the op reads in its layer.
    ///
    /// # Errors
    /// Usage: no such layer, a layer without the op, patches that are not known, or none that acts on the op in the phase.
    pub fn check(&self) -> Result<Vec<Tap>> {
        let (name, layers) = (self.op.spec().name, self.checkpoint.config().layers.len());
        if usize::from(self.layer) >= layers {
            let error = Message::usage("no such layer").at("--layer").expected(format!("0 to {}", layers - 1));
            return Err(error.found(self.layer).into());
        }
        let has = |l: u16| file::reads(&self.checkpoint, l, self.op);
        let Some(reads) = has(self.layer) else {
            let others: Vec<String> = (0..layers as u16).filter(|l| has(*l).is_some()).map(|l| l.to_string()).collect();
            let error = Message::usage(format!("layer {} has no op {name}", self.layer)).at("--layer");
            return Err(error.expected(if others.is_empty() { "another op".into() } else { others.join(", ") }).into());
        };
        Plan { stock: self.stock, patches: self.patches.clone(), history: History::Cold }.check()?;
        if !self.patches.is_empty() && !acts(self) {
            let (names, phase) = (self.patches.join(", "), self.phase.name());
            let acting: Vec<&str> = karat_optimized::patches()
                .iter()
                .filter(|p| p.ops.contains(&self.op) && p.phases.contains(&self.phase))
                .map(|p| p.name)
                .collect();
            let expected = if acting.is_empty() { "none: no patch does".to_string() } else { acting.join(", ") };
            let what = format!("no patch of {names} changes {name} in {phase}");
            return Err(Message::usage(what).at("--patches").expected(expected).into());
        }
        Ok(reads)
    }
}

/// True when a named patch changes the op in the phase.
pub(super) fn acts(job: &OpJob) -> bool {
    crate::specs(&job.patches).iter().any(|p| p.ops.contains(&job.op) && p.phases.contains(&job.phase))
}

/// The router's biases of the layer; `None` for hash routing.
fn bias(job: &OpJob) -> Result<Option<Vec<f32>>> {
    let facts = Facts::of(&job.checkpoint)?;
    Ok(facts.layers.get(usize::from(job.layer)).map(|layer| layer.bias.clone()).filter(|bias| !bias.is_empty()))
}

/// An operand of another shape or dtype than the model's is a fault of the file.
fn told(error: SeamError, operands: &Operands) -> crate::Error {
    match error {
        SeamError::Shape { .. } | SeamError::Dtype { .. } | SeamError::Request(_) | SeamError::Unsupported { .. } => {
            let hint =
                "the shapes are those of the model: name the one that the operands were taken from (--model DIR)";
            Message::input(error.to_string()).at(&operands.label).hint(hint).into()
        }
        other => other.into(),
    }
}

/// Operands on every position from 0 on, where an op wants that; rows that nobody gave are zero and thrown away again. Queries
/// don't meet, so no bit of the others depends on them.
struct Whole {
    rows: Vec<RowId>,
    given: Vec<(Tap, Tensor)>,
    /// Places of the given rows; `None` when nothing was put in.
    places: Option<Vec<usize>>,
}

impl Whole {
    fn of(job: &OpJob, operands: &Operands) -> Result<Self> {
        let n = operands.positions.len();
        let config = job.checkpoint.config();
        let fail = |what: String| Message::input(what).at(&operands.label);
        let last = operands.positions[n - 1] as usize;
        if last >= config.max_position_embeddings {
            let most = config.max_position_embeddings;
            return Err(fail("a position is past the model's context".into())
                .expected(format!("under {most}"))
                .found(last)
                .into());
        }
        let as_given = |rows| Self { rows, given: operands.given.clone(), places: None };
        let cold = operands.positions.iter().enumerate().all(|(i, p)| *p as usize == i);
        if matches!(job.op, Op::CompressPool | Op::IndexPool) && !cold {
            let what = format!("op {} needs every row from position 0 on", job.op.spec().name);
            return Err(fail(what).into());
        }
        if !matches!(job.op, Op::IndexScore | Op::Select | Op::Attend) {
            return Ok(as_given(operands.rows()));
        }
        let ratio = config.layers.get(usize::from(job.layer)).and_then(|kind| kind.ratio());
        let entries = match job.op {
            Op::IndexScore => operands.tensor(Tap::AttnIndexK).map(Tensor::rows),
            Op::Select => operands.tensor(Tap::AttnIndexScore).map(Tensor::width),
            _ => None,
        };
        let all = match job.op {
            Op::Attend => operands.tensor(Tap::AttnKv).map_or(0, Tensor::rows),
            _ => (last + 1).max(entries.unwrap_or(0).saturating_mul(ratio.unwrap_or(1))),
        };
        if all <= last {
            let error = fail(format!("{} ends before the last row", Tap::AttnKv.name()));
            return Err(error.expected(format!("at least {} rows", last + 1)).found(all).into());
        }
        if cold && all == n {
            return Ok(as_given(operands.rows()));
        }
        let places: Vec<usize> = operands.positions.iter().map(|p| *p as usize).collect();
        let mut given = Vec::new();
        for (tap, tensor) in &operands.given {
            if tap.is_per_entry() || *tap == Tap::AttnKv {
                given.push((*tap, tensor.clone()));
                continue;
            }
            if tensor.shape.is_empty() || tensor.rows() != n {
                let error = fail(format!("operand {} has another number of rows than positions", tap.name()));
                return Err(error.expected(n).found(format!("{:?}", tensor.shape)).into());
            }
            if all.saturating_mul(tensor.width()) > MOST {
                let what = format!("{} on {all} positions is more than this command takes", tap.name());
                return Err(fail(what).into());
            }
            given.push((*tap, spread(tensor, &places, all)));
        }
        let rows = (0..all as u32).map(|pos| RowId::new(0, pos)).collect();
        Ok(Self { rows, given, places: Some(places) })
    }

    /// A sequence that has these rows, decoded from the first on where the phase says so.
    fn requests(&self, job: &OpJob, operands: &Operands) -> Requests {
        let end = self.rows.iter().map(|row| row.pos + 1).max().unwrap_or(1);
        let mut ids = vec![0u32; end as usize];
        for (pos, id) in operands.positions.iter().zip(&operands.ids) {
            ids[*pos as usize] = *id;
        }
        let mut sequence = Sequence::prompt("operands", ids);
        let first = operands.positions[0].max(1);
        if job.phase == Phase::Decode && first < end {
            let prompt = Span { kind: SpanKind::Prompt, start: 0, end: first };
            let decoded = Span { kind: SpanKind::Generated, start: first, end };
            sequence.turns = vec![Turn { spans: vec![prompt, decoded], interrupted: false }];
        }
        Requests { seqs: vec![sequence] }
    }

    /// The given rows of a result.
    fn kept(&self, tap: Tap, tensor: Tensor) -> Tensor {
        match &self.places {
            Some(places) if !tap.is_per_entry() => crate::repro::pick(&tensor, places),
            _ => tensor,
        }
    }
}

/// Rows at their places among `all` rows of zeros.
fn spread(tensor: &Tensor, places: &[usize], all: usize) -> Tensor {
    fn of<T: Copy>(values: &[T], places: &[usize], all: usize, width: usize, zero: T) -> Vec<T> {
        let mut out = vec![zero; all * width];
        for (row, place) in places.iter().enumerate() {
            out[place * width..(place + 1) * width].copy_from_slice(&values[row * width..(row + 1) * width]);
        }
        out
    }
    let width = tensor.width();
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(of(v, places, all, width, 0.0)),
        Data::F64(v) => Data::F64(of(v, places, all, width, 0.0)),
        Data::I64(v) => Data::I64(of(v, places, all, width, 0)),
        Data::U8(v) => Data::U8(of(v, places, all, width, 0)),
    };
    let mut shape = tensor.shape.clone();
    shape[0] = all;
    Tensor { shape, data }
}

/// f32 operands as f64, exactly.
fn widened(tensor: &Tensor) -> Tensor {
    match &tensor.data {
        Data::F32(v) => Tensor::f64(tensor.shape.clone(), v.iter().map(|v| f64::from(*v)).collect()),
        _ => tensor.clone(),
    }
}

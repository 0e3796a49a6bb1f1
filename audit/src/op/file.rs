//! Files of an op: operands in, results out.

use std::path::Path;

use karat_diff::Code;
use karat_model::{Checkpoint, Error as Message};
use karat_seam::{Data, Op, Tap, Tensor};
use karat_trace::TensorFile;

use super::{OpJob, Operands};
use crate::repro::{constants, safetensors, weights};
use crate::{Facts, Result};

/// Values of weights that a file may hold: 8 GiB.
const MOST: usize = 1 << 31;

/// Taps that the op reads in this layer; `None` where the layer lacks the op.
pub(super) fn reads(checkpoint: &Checkpoint, l: u16, op: Op) -> Option<Vec<Tap>> {
    let facts = Facts::of(checkpoint).ok()?;
    let layer = facts.layers.get(usize::from(l))?;
    let has = |op: Op| layer.has_op(op);
    if !has(op) {
        return None;
    }
    let made = |tap: &&Tap| **tap == Tap::Out || karat_seam::OpSpec::writer_of(**tap).is_some_and(|w| has(w.op));
    Some(op.spec().reads.iter().filter(made).copied().collect())
}

impl Operands {
    /// Reads a file of operands: `operand.TAP` or `TAP`, `positions`, and `ids`, `layer`, `weight.*` where they are there. Gives the
    /// layer that the file names too.
    ///
    /// # Errors
    /// Input: unreadable, a tensor missing, of another shape or dtype, or with a value that is no number.
    pub fn read(path: &Path, op: Op) -> Result<(Self, Option<u16>)> {
        let file = TensorFile::open(path)?;
        let label = path.display().to_string();
        let fail = |name: &str, what: &str| Message::input(what).at(format!("tensor {name}")).at(&label);
        let has = |name: &str| file.shape(name).is_some();
        let integers = |name: &str| -> Result<Vec<i64>> {
            match file.tensor(name)?.data {
                Data::I64(v) => Ok(v),
                other => Err(fail(name, "wrong element type").expected("I64").found(other.dtype()).into()),
            }
        };
        let mut given = Vec::new();
        for tap in op.spec().reads {
            let name = [format!("operand.{}", tap.name()), tap.name().to_string()].into_iter().find(|n| has(n));
            let Some(name) = name else { continue };
            let tensor = operand(*tap, file.tensor(&name)?).map_err(|e| e.at(format!("tensor {name}")).at(&label))?;
            given.push((*tap, tensor));
        }
        let rows = given.iter().find(|(tap, _)| !tap.is_per_entry() && *tap != Tap::AttnKv).map(|(_, t)| t.rows());
        let positions: Vec<u32> = if has("positions") {
            let all = integers("positions")?;
            let fits: Option<Vec<u32>> = all.iter().map(|p| u32::try_from(*p).ok()).collect();
            let ascending = |p: &Vec<u32>| !p.is_empty() && p.windows(2).all(|w| w[0] < w[1]);
            let bad = || fail("positions", "is no ascending list of positions from 0 on");
            fits.filter(ascending).ok_or_else(bad)?
        } else {
            let hint = "give positions: I64 [S], the position of each row";
            let n = rows.ok_or_else(|| fail("positions", "is missing, and no operand tells the rows").hint(hint))?;
            (0..n as u32).collect()
        };
        let ids = match has("ids") {
            true => {
                let ids: Option<Vec<u32>> = integers("ids")?.iter().map(|id| u32::try_from(*id).ok()).collect();
                let ids = ids.ok_or_else(|| fail("ids", "holds what is no token id"))?;
                if ids.len() != positions.len() {
                    let error = fail("ids", "has another length than positions").expected(positions.len());
                    return Err(error.found(ids.len()).into());
                }
                ids
            }
            false => Vec::new(),
        };
        let layer = match has("layer") {
            true => {
                let one = integers("layer")?;
                let layer = (one.len() == 1).then(|| u16::try_from(one[0]).ok()).flatten();
                Some(layer.ok_or_else(|| fail("layer", "is no layer").expected("one number from 0 on"))?)
            }
            false => None,
        };
        Ok((Self { label, given, positions, ids }, layer))
    }

    /// Refuses a file whose weights are not those of the job's layer.
    ///
    /// # Errors
    /// Input: names the tensor.
    pub fn check_weights(&self, path: &Path, job: &OpJob) -> Result<()> {
        let file = TensorFile::open(path)?;
        if !file.names().any(|name| name.starts_with("weight.")) {
            return Ok(());
        }
        for (name, ours) in self.weights(job)? {
            // What a file leaves out is taken from the model.
            if file.shape(&name).is_none() {
                continue;
            }
            let theirs = file.tensor(&name)?;
            if theirs != ours {
                let at = |e: Message| e.at(format!("tensor {name}")).at(&self.label);
                let what = format!("is not the weight of layer {} of {}", job.layer, job.checkpoint.label());
                let hint =
                    "name the model that the operands were taken from (--model DIR), and their layer (--layer N)";
                let shown = |t: &Tensor| format!("{} {:?}", t.data.dtype(), t.shape);
                let error = Message::input(what).expected(shown(&ours)).found(shown(&theirs)).hint(hint);
                return Err(at(if theirs.shape == ours.shape && theirs.data.dtype() == ours.data.dtype() {
                    Message { expected: None, found: None, ..error }
                } else {
                    error
                })
                .into());
            }
        }
        Ok(())
    }

    /// The op's weights as f32, by the names of the file.
    fn weights(&self, job: &OpJob) -> Result<Vec<(String, Tensor)>> {
        let mut experts: Vec<i64> = match self.tensor(Tap::FfnIdx).map(|t| &t.data) {
            Some(Data::I64(idx)) => idx.clone(),
            _ => Vec::new(),
        };
        experts.sort_unstable();
        experts.dedup();
        let config = job.checkpoint.config();
        let limit = config.n_routed_experts as i64;
        if let Some(past) = experts.iter().find(|e| **e < 0 || **e >= limit) {
            let error = Message::input("no such expert").at(Tap::FfnIdx.name()).at(&self.label);
            return Err(error.expected(format!("0 to {}", limit - 1)).found(past).into());
        }
        if experts.len() * 3 * config.hidden_size * config.moe_intermediate_size > MOST {
            let error = Message::usage("the experts that these rows chose don't fit into one file of operands as f32");
            return Err(error.found(format!("{} experts", experts.len())).hint("give fewer rows").into());
        }
        Ok(weights::of(&job.checkpoint, job.layer, job.op, &self.ids, &experts)?)
    }

    /// The file that a kernel is given: operands, weights, positions, ids, layer, constants of the config.
    ///
    /// # Errors
    /// Weights that can't be read or don't fit into a file.
    pub fn file(&self, job: &OpJob) -> Result<Vec<u8>> {
        let wide = |v: &[u32]| v.iter().map(|p| i64::from(*p)).collect::<Vec<i64>>();
        let mut tensors = vec![
            ("positions".to_string(), Tensor::i64([self.positions.len()], wide(&self.positions))),
            ("layer".to_string(), Tensor::i64([1], vec![i64::from(job.layer)])),
        ];
        if !self.ids.is_empty() {
            tensors.push(("ids".to_string(), Tensor::i64([self.ids.len()], wide(&self.ids))));
        }
        tensors.extend(self.given.iter().map(|(tap, t)| (format!("operand.{}", tap.name()), t.clone())));
        tensors.extend(self.weights(job)?);
        Ok(safetensors(&tensors, job.op.spec().name, &constants(job.checkpoint.config(), job.layer)))
    }
}

/// An operand in the element type that both sides take.
fn operand(tap: Tap, tensor: Tensor) -> std::result::Result<Tensor, Message> {
    let Tensor { shape, data } = tensor;
    let fail = |expected: &str, data: &Data| {
        Message::input("wrong element type").expected(expected.to_string()).found(data.dtype())
    };
    let data = match (tap, data) {
        (Tap::FfnIdx, Data::I64(v)) => Data::I64(v),
        (Tap::FfnIdx, other) => return Err(fail("integers", &other)),
        (Tap::AttnSelected, Data::U8(v)) if v.iter().all(|v| *v < 2) => Data::U8(v),
        (Tap::AttnSelected, other) => return Err(fail("U8 or BOOL, 0 or 1", &other)),
        (_, Data::F32(v)) => {
            // A score that is hidden is the one infinity that has a meaning.
            let fits = |v: &f32| v.is_finite() || (tap == Tap::AttnIndexScore && *v == f32::NEG_INFINITY);
            if let Some(at) = v.iter().position(|v| !fits(v)) {
                return Err(Message::input("an operand holds what is no number")
                    .at(format!("value {at}"))
                    .found(v[at]));
            }
            Data::F32(v)
        }
        (_, other) => return Err(fail("F32, BF16 or F16", &other)),
    };
    Ok(Tensor { shape, data })
}

/// What a kernel gave.
#[derive(Debug)]
pub struct Answer {
    /// Results by tap: f32 values, I64 experts, U8 selections, in golden's shapes.
    pub(super) results: Vec<(Tap, Tensor, Option<Code>)>,
}

/// Reads the results of an op: `TAP` or `candidate.TAP` for each tap that it writes, in the shapes given.
///
/// # Errors
/// Input: unreadable, a tensor missing, of another shape or dtype. Nothing is decoded before its shape is known to be right.
pub fn read_answer(path: &Path, wanted: &[(Tap, Tensor)]) -> Result<Answer> {
    let label = path.display().to_string();
    // A pipe would wait for ever.
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(Message::input("is no file").at(&label).into()),
        Err(_) => return Err(Message::input("no such file").at(&label).into()),
    }
    let file = TensorFile::open(path)?;
    let mut results = Vec::new();
    for (tap, like) in wanted {
        let names = [tap.name().to_string(), format!("candidate.{}", tap.name())];
        let Some(name) = names.iter().find(|name| file.shape(name).is_some()) else {
            let have: Vec<&str> = file.names().take(8).collect();
            let found = if have.is_empty() { "no tensor".to_string() } else { have.join(", ") };
            return Err(Message::input("a result is missing").at(&label).expected(tap.name()).found(found).into());
        };
        let fail = |what: &str| Message::input(what).at(format!("tensor {name}")).at(&label);
        let shape = file.shape(name).unwrap_or_default();
        if shape != like.shape {
            let shown = |shape: &[usize]| format!("{shape:?}");
            return Err(fail("wrong shape").expected(shown(&like.shape)).found(shown(shape)).into());
        }
        let dtype = file.dtype(name)?;
        let given = file.tensor(name)?;
        let wrong = |expected: &str| fail("wrong element type").expected(expected.to_string()).found(dtype.name());
        let data = match (&like.data, given.data) {
            (Data::F32(_), Data::F32(v)) => Data::F32(v),
            (Data::F32(_), Data::F64(v)) => Data::F32(v.into_iter().map(|v| v as f32).collect()),
            (Data::F32(_), _) => return Err(wrong("F32, F64, BF16 or F16").into()),
            (Data::I64(_), Data::I64(v)) => Data::I64(v),
            (Data::I64(_), _) => return Err(wrong("I64 or I32").into()),
            (_, Data::U8(v)) => Data::U8(v.into_iter().map(|v| u8::from(v != 0)).collect()),
            (_, Data::I64(v)) => Data::U8(v.into_iter().map(|v| u8::from(v != 0)).collect()),
            _ => return Err(wrong("U8 or BOOL").into()),
        };
        results.push((*tap, Tensor { shape: given.shape, data }, Code::named(dtype.name())));
    }
    Ok(Answer { results })
}

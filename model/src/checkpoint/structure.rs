//! Does what is on disk fit the config? Every check that needs no tensor's bytes.

use std::collections::HashSet;

use safetensors::Dtype as Stored;
use serde::Serialize;

use super::inventory::{Expected, Role, Storage};
use super::names::{Meaning, fused_of};
use super::store::{Id, Store};
use super::{Encoding, RawTensor, inventory};
use crate::config::ExpertDtype;
use crate::{Error, Result};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; the model is read as intended.
    Note,
    /// Suspicious, but the forward pass is defined.
    Warning,
    /// The checkpoint isn't what its config says.
    Error,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// A tensor that the config asks for isn't there.
    Missing,
    /// A tensor that nothing reads.
    Unused,
    /// Two tensors for one place.
    Duplicate,
    /// Wrong shape.
    Shape,
    /// Wrong dtype, or parts that don't belong together.
    Dtype,
    /// Block or global scales out of range.
    Scale,
    /// NaN or infinity.
    Nonfinite,
    /// Expert ids out of range or twice for one token, or a table that doesn't use every expert.
    Ids,
    /// Numbers that don't look like those of a checkpoint that was stored and loaded right.
    Numbers,
    /// Index file and shards disagree.
    Index,
    /// Something the config and the tensors say differently.
    Config,
}

/// One finding. The message names file and tensor, what was expected and found, and a plausible cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// About what.
    pub check: Check,
    /// Canonical or disk name of the tensor; empty when it is about the whole.
    pub tensor: String,
    /// The message.
    pub error: Error,
}

impl Finding {
    pub(crate) fn new(severity: Severity, check: Check, tensor: &str, error: Error) -> Self {
        Self { severity, check, tensor: tensor.to_string(), error }
    }
}

/// All findings that need only headers, worst kind of order: as the inventory goes, then what is left over.
pub(crate) fn findings(store: &Store, expected: &[Expected]) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut used = HashSet::new();
    for e in expected {
        match one(store, e) {
            Ok(ids) => used.extend(ids),
            Err((check, error)) => {
                used.extend(touched(store, e));
                out.push(Finding::new(Severity::Error, check, &e.name, error));
            }
        }
    }
    doubles(store, &mut out);
    unused(store, &used, &mut out);
    index(store, &mut out);
    about_config(store, &mut out);
    out
}

/// Checks one expected tensor; gives the stored tensors that it uses.
fn one(store: &Store, e: &Expected) -> std::result::Result<Vec<Id>, (Check, Error)> {
    let missing = |error: Error| {
        let check = match error.what.as_str() {
            "tensor is missing" => Check::Missing,
            "wrong shape" => Check::Shape,
            _ => Check::Dtype,
        };
        (check, error)
    };
    if let Role::Linear(storage) = e.role {
        let (w, ids) = store.linear(&e.name).map_err(missing)?;
        if [w.rows, w.cols] != e.shape[..] {
            let found = [w.rows, w.cols];
            return Err((
                Check::Shape,
                store.shape(ids[0], &format!("{:?}", e.shape), &found).hint(shape_hint(&e.shape, &found)),
            ));
        }
        if storage == Storage::Expert {
            expert_storage(store, ids[0], w.encoding).map_err(|error| (Check::Config, error))?;
        }
        return Ok(ids);
    }
    let (t, id) = store.tensor(&e.name).map_err(missing)?;
    let stored = store.entries[id].dtype;
    let (allowed, names): (&[Stored], &str) = match e.role {
        Role::Ids => (&[Stored::I64, Stored::I32], "I64 or I32"),
        _ => (&[Stored::F32, Stored::BF16], "F32 or BF16"),
    };
    if !allowed.contains(&stored) {
        return Err((Check::Dtype, store.dtype(id, stored, names)));
    }
    if t.shape != e.shape {
        return Err((
            Check::Shape,
            store.shape(id, &format!("{:?}", e.shape), &t.shape).hint(shape_hint(&e.shape, &t.shape)),
        ));
    }
    Ok(vec![id])
}

/// Stored tensors of an expected one that failed: they are wrong, not unused.
fn touched(store: &Store, e: &Expected) -> Vec<Id> {
    use super::names::Part::{Global, Input, Scale, Value};
    let keys = [Some(e.name.clone()), fused_of(&e.name).map(|(fused, _, _)| fused)];
    keys.iter()
        .flatten()
        .flat_map(|key| [Value, Scale, Global, Input].into_iter().filter_map(move |part| store.find(key, part)))
        .collect()
}

fn shape_hint(want: &[usize], found: &[usize]) -> &'static str {
    let mut reversed = found.to_vec();
    reversed.reverse();
    if reversed == want {
        "the tensor is transposed"
    } else if want.len() == found.len() && want.iter().zip(found).any(|(w, f)| *f * 2 == *w || *w * 2 == *f) {
        "off by a factor of two: packed codes counted as elements, or a fused or split tensor"
    } else {
        "check config.json against the checkpoint: they may belong to different models"
    }
}

/// `expert_dtype` against what the tensors are. Decoded experts (BF16, F32) carry their own answer.
fn expert_storage(store: &Store, id: Id, encoding: Encoding) -> Result<()> {
    let found = match encoding {
        Encoding::Fp8Block { .. } => ExpertDtype::Fp8,
        Encoding::Mxfp4 | Encoding::Nvfp4 => ExpertDtype::Fp4,
        Encoding::Plain => return Ok(()),
    };
    if found == store.config.expert_dtype {
        return Ok(());
    }
    let says = if store.says_expert_dtype { "expert_dtype" } else { "the first expert" };
    Err(Error::input("experts are stored in another way")
        .at(store.place(id))
        .expected(format!("{} as {says} says", store.config.expert_dtype))
        .found(found)
        .hint("config.json and weights may belong to different releases"))
}

fn doubles(store: &Store, out: &mut Vec<Finding>) {
    for &(first, later) in &store.doubles {
        let error = Error::input("two tensors for one place")
            .at(store.place(later))
            .expected("one")
            .found(format!("also {}", store.place(first)))
            .hint("delete stale shards, or the second naming");
        out.push(Finding::new(Severity::Error, Check::Duplicate, store.name(later), error));
    }
    // A fused tensor beside the single experts it would hold.
    for id in 0..store.entries.len() {
        if let Some((key, part)) = store.slot(id)
            && let Some((fused, _, _)) = fused_of(key)
            && let Some(other) = store.find(&fused, part)
        {
            let error = Error::input("an expert's matrix both alone and in a fused tensor")
                .at(store.name(id))
                .expected("one of them")
                .found(format!("also {}", store.place(other)));
            out.push(Finding::new(Severity::Error, Check::Duplicate, store.name(id), error));
        }
    }
}

fn unused(store: &Store, used: &HashSet<Id>, out: &mut Vec<Finding>) {
    let doubled: HashSet<Id> = store.doubles.iter().map(|d| d.1).collect();
    for id in 0..store.entries.len() {
        if used.contains(&id) || doubled.contains(&id) {
            continue;
        }
        let name = store.name(id);
        let (severity, hint) = match store.meaning(id) {
            Meaning::Skip(why) => (Severity::Note, why),
            _ if name.contains("mtp.") => {
                (Severity::Warning, "num_nextn_predict_layers declares fewer MTP blocks: it is skipped")
            }
            Meaning::Slot(_) => (Severity::Error, unused_hint(name)),
            Meaning::Unknown => (Severity::Error, unknown_hint(name)),
        };
        let error = Error::input("tensor is not used").at(store.place(id)).hint(hint);
        out.push(Finding::new(severity, Check::Unused, name, error));
    }
}

fn unused_hint(name: &str) -> &'static str {
    if name.contains("tid2eid") || name.contains("bias") {
        "num_hash_layers decides which layers have tid2eid and which a bias: check it"
    } else if name.contains("compressor") || name.contains("indexer") {
        "the layer schedule gives this layer no such part: check compress_ratios"
    } else {
        "config.json asks for fewer layers or experts: they may belong to different models"
    }
}

fn unknown_hint(name: &str) -> &'static str {
    if name.ends_with(".weight_packed") || name.ends_with(".weight_global_scale") {
        "compressed-tensors naming, whose global scale is the inverse: convert to modelopt's or the released form"
    } else if name.ends_with("_blocks") || name.ends_with("_scales") {
        "a fused FP4 naming that V4 checkpoints don't use: convert to the released form"
    } else if name.rsplit('.').next() == Some("bias") {
        "no linear of this architecture has a bias"
    } else if name.contains("wqkv_a") || name.contains("wkv_gate") {
        "an engine's fused tensor: export the checkpoint in the released naming"
    } else {
        "a tensor that nobody reads may change the model: is this DeepSeek-V4?"
    }
}

fn index(store: &Store, out: &mut Vec<Finding>) {
    let place = Store::index_name();
    for file in &store.layout.stray {
        let error =
            Error::input("file is not read").at(file).hint("stale shard, or another tool's file beside the weights?");
        out.push(Finding::new(Severity::Warning, Check::Index, file, error));
    }
    let Some(map) = &store.layout.map else { return };
    let mut seen = HashSet::new();
    for id in 0..store.entries.len() {
        let name = store.name(id);
        match map.get(name) {
            Some(file) if file == store.file(id) => {
                seen.insert(name);
            }
            Some(file) => {
                // A double is reported as such; here only a tensor that lies in one wrong file matters.
                let error = Error::input("tensor lies in another shard")
                    .at(format!("{place}: {name}"))
                    .expected(file)
                    .found(store.file(id))
                    .hint("the index belongs to another sharding: write it again");
                out.push(Finding::new(Severity::Error, Check::Index, name, error));
                seen.insert(name);
            }
            None => {
                let error = Error::input("tensor is not in the index")
                    .at(store.place(id))
                    .hint("the index belongs to another checkpoint: write it again");
                out.push(Finding::new(Severity::Error, Check::Index, name, error));
            }
        }
    }
    for (name, file) in map {
        if !seen.contains(name.as_str()) {
            let error = Error::input("tensor of the index is in no shard")
                .at(format!("{place}: {name}"))
                .expected(format!("it in {file}"))
                .hint("that shard is of another version: download it again");
            out.push(Finding::new(Severity::Error, Check::Index, name, error));
        }
    }
    let total: u64 = store.entries.iter().map(|s| s.range.len() as u64).sum();
    if let Some(said) = store.layout.total_size
        && said != total
    {
        let error =
            Error::input("sizes disagree").at(format!("{place}: metadata.total_size")).expected(total).found(said);
        out.push(Finding::new(Severity::Warning, Check::Index, "", error));
    }
}

fn about_config(store: &Store, out: &mut Vec<Finding>) {
    if store.mtp_left_out > 0 {
        let error = Error::input("MTP blocks are left out")
            .at("config.json: num_nextn_predict_layers")
            .expected(store.mtp_left_out)
            .found("no mtp.* tensor")
            .hint("transformers drops them when it saves: MTP is not compared");
        out.push(Finding::new(Severity::Note, Check::Config, "", error));
    }
}

/// The inventory of a store and the first structural error, for opening.
pub(crate) fn require(store: &Store) -> Result<Vec<Expected>> {
    let expected = inventory::expected_tensors(&store.config);
    let errors: Vec<Finding> =
        findings(store, &expected).into_iter().filter(|f| f.severity == Severity::Error).collect();
    let more = errors.len().saturating_sub(1);
    match errors.into_iter().next() {
        None => Ok(expected),
        Some(first) => {
            let mut error = first.error;
            if more > 0 {
                let count =
                    format!("{more} more finding{}: `karat model verify` lists them", if more == 1 { "" } else { "s" });
                error.hint = Some(match error.hint {
                    Some(hint) => format!("{hint} ({count})").into(),
                    None => count.into(),
                });
            }
            Err(if error.place.starts_with(&store.label) { error } else { error.at(&store.label) })
        }
    }
}

/// Expert ids out of range, as an error; the tensor was found and has the right shape.
pub(crate) fn ids_in_range(store: &Store, t: &RawTensor<'_>, id: Id) -> Result<()> {
    let (k, experts) = (store.config.num_experts_per_tok, store.config.n_routed_experts as i64);
    let all = t.ids();
    let outside = |v: &&i64| !(0..experts).contains(*v);
    let Some(first) = all.iter().position(|v| outside(&v)) else { return Ok(()) };
    let count = all.iter().filter(outside).count();
    Err(Error::input("expert ids out of range")
        .at(store.place(id))
        .expected(format!("0 to {}", experts - 1))
        .found(format!("{count} ids, first {} for token {}", all[first], first / k))
        .hint("is the table of another model, or read with the wrong integer size?"))
}

/// Expert ids become indices, so that opening checks them although they are values.
pub(crate) fn require_ids(store: &Store, expected: &[Expected]) -> Result<()> {
    for e in expected.iter().filter(|e| e.role == Role::Ids) {
        let (t, id) = store.tensor(&e.name)?;
        ids_in_range(store, &t, id).map_err(|e| e.at(&store.label))?;
    }
    Ok(())
}

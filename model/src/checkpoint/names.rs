//! Tensor names: the released ("original") naming, which is canonical here, and that of transformers (spec 4).
//!
//! A name on disk becomes a [`Slot`]: the canonical tensor or linear it belongs to, and which part of it it is. Both
//! namings may be mixed, with or without the prefix `model.`; two names for one slot are found as duplicates.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Which part of a tensor a stored tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The values or codes.
    Value,
    /// Block scales: `.scale`, `.weight_scale`, `.weight_scale_inv`.
    Scale,
    /// NVFP4's global scale: `.weight_scale_2`.
    Global,
    /// NVFP4's activation scale: `.input_scale`.
    Input,
}

/// The place a stored tensor fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot<K = String> {
    /// Canonical name without `.weight`.
    pub(crate) key: K,
    /// Part of it.
    pub(crate) part: Part,
}

/// What a name on disk means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning<K = String> {
    /// Part of the model.
    Slot(Slot<K>),
    /// Known and not needed; the reason.
    Skip(&'static str),
    /// Not a name of this architecture.
    Unknown,
}

impl<K> Meaning<K> {
    /// The same with its key in another form.
    pub(crate) fn map_key<L>(self, form: impl FnOnce(K) -> L) -> Meaning<L> {
        match self {
            Self::Slot(Slot { key, part }) => Meaning::Slot(Slot { key: form(key), part }),
            Self::Skip(why) => Meaning::Skip(why),
            Self::Unknown => Meaning::Unknown,
        }
    }
}

/// Fused expert tensors of transformers, as keys under `ffn.experts`.
pub(crate) const FUSED_GATE_UP: &str = "gate_up_proj";
/// See [`FUSED_GATE_UP`].
pub(crate) const FUSED_DOWN: &str = "down_proj";

/// How a tensor appears on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaf {
    /// `NAME.weight` with scales beside it.
    Linear,
    /// `NAME.weight` only.
    Norm,
    /// `NAME` itself.
    Bare,
}

/// Suffixes of a linear's parts.
const PARTS: &[(&str, Part)] = &[
    (".weight", Part::Value),
    (".scale", Part::Scale),
    (".weight_scale", Part::Scale),
    (".weight_scale_inv", Part::Scale),
    (".weight_scale_2", Part::Global),
    (".input_scale", Part::Input),
];

/// Names at the top: canonical, transformers (after `model.`).
const TOP: &[(&str, &str, Leaf)] = &[
    ("embed", "embed_tokens", Leaf::Linear),
    ("head", "lm_head", Leaf::Linear),
    ("norm", "norm", Leaf::Norm),
    ("hc_head_fn", "hc_head.hc_fn", Leaf::Bare),
    ("hc_head_base", "hc_head.hc_base", Leaf::Bare),
    ("hc_head_scale", "hc_head.hc_scale", Leaf::Bare),
];

/// Names inside a block: canonical, transformers.
const BLOCK: &[(&str, &str, Leaf)] = &[
    ("attn_norm", "input_layernorm", Leaf::Norm),
    ("ffn_norm", "post_attention_layernorm", Leaf::Norm),
    ("hc_attn_fn", "attn_hc.fn", Leaf::Bare),
    ("hc_attn_base", "attn_hc.base", Leaf::Bare),
    ("hc_attn_scale", "attn_hc.scale", Leaf::Bare),
    ("hc_ffn_fn", "ffn_hc.fn", Leaf::Bare),
    ("hc_ffn_base", "ffn_hc.base", Leaf::Bare),
    ("hc_ffn_scale", "ffn_hc.scale", Leaf::Bare),
    ("attn.attn_sink", "self_attn.sinks", Leaf::Bare),
    ("attn.wq_a", "self_attn.q_a_proj", Leaf::Linear),
    ("attn.q_norm", "self_attn.q_a_norm", Leaf::Norm),
    ("attn.wq_b", "self_attn.q_b_proj", Leaf::Linear),
    ("attn.wkv", "self_attn.kv_proj", Leaf::Linear),
    ("attn.kv_norm", "self_attn.kv_norm", Leaf::Norm),
    ("attn.wo_a", "self_attn.o_a_proj", Leaf::Linear),
    ("attn.wo_b", "self_attn.o_b_proj", Leaf::Linear),
    ("attn.compressor.ape", "self_attn.compressor.position_bias", Leaf::Bare),
    ("attn.compressor.wkv", "self_attn.compressor.kv_proj", Leaf::Linear),
    ("attn.compressor.wgate", "self_attn.compressor.gate_proj", Leaf::Linear),
    ("attn.compressor.norm", "self_attn.compressor.kv_norm", Leaf::Norm),
    ("attn.indexer.wq_b", "self_attn.compressor.indexer.q_b_proj", Leaf::Linear),
    ("attn.indexer.weights_proj", "self_attn.compressor.indexer.scorer.weights_proj", Leaf::Linear),
    ("attn.indexer.compressor.ape", "self_attn.compressor.indexer.position_bias", Leaf::Bare),
    ("attn.indexer.compressor.wkv", "self_attn.compressor.indexer.kv_proj", Leaf::Linear),
    ("attn.indexer.compressor.wgate", "self_attn.compressor.indexer.gate_proj", Leaf::Linear),
    ("attn.indexer.compressor.norm", "self_attn.compressor.indexer.kv_norm", Leaf::Norm),
    ("ffn.gate", "mlp.gate", Leaf::Linear),
    ("ffn.gate.bias", "mlp.gate.e_score_correction_bias", Leaf::Bare),
    ("ffn.gate.tid2eid", "mlp.gate.tid2eid", Leaf::Bare),
    ("ffn.shared_experts.w1", "mlp.shared_experts.gate_proj", Leaf::Linear),
    ("ffn.shared_experts.w2", "mlp.shared_experts.down_proj", Leaf::Linear),
    ("ffn.shared_experts.w3", "mlp.shared_experts.up_proj", Leaf::Linear),
];

/// Names of an MTP block beside those of [`BLOCK`]; transformers has none.
const MTP: &[(&str, Leaf)] = &[
    ("e_proj", Leaf::Linear),
    ("h_proj", Leaf::Linear),
    ("enorm", Leaf::Norm),
    ("hnorm", Leaf::Norm),
    ("norm", Leaf::Norm),
    ("hc_head_fn", Leaf::Bare),
    ("hc_head_base", Leaf::Bare),
    ("hc_head_scale", Leaf::Bare),
];

/// An expert's matrices: canonical, transformers.
const EXPERT: &[(&str, &str)] = &[("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];

type Table = HashMap<String, (&'static str, Part)>;

fn add(table: &mut Table, key: &'static str, name: &str, leaf: Leaf) {
    match leaf {
        Leaf::Linear => {
            for (suffix, part) in PARTS {
                table.insert(format!("{name}{suffix}"), (key, *part));
            }
        }
        Leaf::Norm => {
            table.insert(format!("{name}.weight"), (key, Part::Value));
        }
        Leaf::Bare => {
            table.insert(name.to_string(), (key, Part::Value));
        }
    }
}

fn table(names: &[(&'static str, &'static str, Leaf)]) -> Table {
    let mut table = Table::new();
    for &(key, other, leaf) in names {
        add(&mut table, key, key, leaf);
        add(&mut table, key, other, leaf);
    }
    table
}

static TOP_TABLE: LazyLock<Table> = LazyLock::new(|| table(TOP));
static BLOCK_TABLE: LazyLock<Table> = LazyLock::new(|| table(BLOCK));
static MTP_TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::new();
    for &(key, leaf) in MTP {
        add(&mut table, key, key, leaf);
    }
    table
});

/// What a name on disk means.
pub(crate) fn meaning(disk: &str) -> Meaning {
    let name = disk.strip_prefix("model.").unwrap_or(disk);
    if name.ends_with("rotary_emb.inv_freq") || name.ends_with("original_inv_freq") {
        return Meaning::Skip("rope frequencies follow from config.json");
    }
    if name.starts_with("dspark") {
        return Meaning::Skip("draft layers are no part of the model's own pass");
    }
    if let Some(&(key, part)) = TOP_TABLE.get(name) {
        return slot(key.to_string(), part);
    }
    let Some((prefix, rest, mtp)) = block_of(name) else { return Meaning::Unknown };
    if mtp && is_copy(rest) {
        return Meaning::Skip("copy of the shared embedding or head in an MTP block");
    }
    if mtp && let Some(&(key, part)) = MTP_TABLE.get(rest) {
        return slot(format!("{prefix}.{key}"), part);
    }
    if let Some(&(key, part)) = BLOCK_TABLE.get(rest) {
        return slot(format!("{prefix}.{key}"), part);
    }
    match expert(rest) {
        Some((key, part)) => slot(format!("{prefix}.{key}"), part),
        None => Meaning::Unknown,
    }
}

fn slot(key: String, part: Part) -> Meaning {
    Meaning::Slot(Slot { key, part })
}

/// Copies of the shared embedding and head that some converters leave in an MTP block (spec 4).
fn is_copy(rest: &str) -> bool {
    matches!(
        rest,
        "emb.tok_emb.weight" | "embed.weight" | "embed_tokens.weight" | "head.weight" | "shared_head.head.weight"
    )
}

/// Splits `layers.3.attn.wkv.weight` into `layers.3`, `attn.wkv.weight` and whether it is an MTP block.
fn block_of(name: &str) -> Option<(&str, &str, bool)> {
    let mtp = name.starts_with("mtp.");
    let after = name.strip_prefix("layers.").or_else(|| name.strip_prefix("mtp."))?;
    let (number, rest) = after.split_once('.')?;
    decimal(number)?;
    Some((&name[..name.len() - rest.len() - 1], rest, mtp))
}

/// A number as the format writes it: no sign, no leading zero, so that one layer has one name.
fn decimal(s: &str) -> Option<usize> {
    let plain = s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
    if plain { s.parse().ok() } else { None }
}

/// A routed expert's matrix, or a fused tensor of all experts.
fn expert(rest: &str) -> Option<(String, Part)> {
    let inner = rest.strip_prefix("ffn.experts.").or_else(|| rest.strip_prefix("mlp.experts."))?;
    for fused in [FUSED_GATE_UP, FUSED_DOWN] {
        let part = match inner.strip_prefix(fused) {
            Some("" | ".weight") => Part::Value,
            Some("_scale_inv" | "_scale" | ".scale" | ".weight_scale" | ".weight_scale_inv") => Part::Scale,
            _ => continue,
        };
        return Some((format!("ffn.experts.{fused}"), part));
    }
    let (number, matrix) = inner.split_once('.')?;
    decimal(number)?;
    for (suffix, part) in PARTS {
        let Some(stem) = matrix.strip_suffix(suffix) else { continue };
        if let Some((w, _)) = EXPERT.iter().find(|(a, b)| *a == stem || *b == stem) {
            return Some((format!("ffn.experts.{number}.{w}"), *part));
        }
    }
    None
}

/// The name transformers gives a canonical tensor (without `model.`): `layers.0.attn.wq_a.weight` becomes
/// `layers.0.self_attn.q_a_proj.weight`, an expert's matrix the fused tensor that holds it. `None` when transformers
/// has no such tensor (MTP blocks) or the name isn't canonical.
pub fn to_transformers(canonical: &str) -> Option<String> {
    let Meaning::Slot(Slot { key, part }) = meaning(canonical) else { return None };
    let dotted = match part {
        Part::Value => "",
        Part::Scale => ".weight_scale_inv",
        Part::Global => ".weight_scale_2",
        Part::Input => ".input_scale",
    };
    let named = |names: &[(&str, &str, Leaf)], key: &str| {
        let (_, other, leaf) = names.iter().find(|(k, _, _)| *k == key)?;
        let weight = if *leaf == Leaf::Bare || part != Part::Value { "" } else { ".weight" };
        Some(format!("{other}{weight}{dotted}"))
    };
    if let Some(name) = named(TOP, &key) {
        return Some(name);
    }
    let (prefix, rest, mtp) = block_of(&key)?;
    if mtp {
        return None;
    }
    if let Some(name) = named(BLOCK, rest) {
        return Some(format!("{prefix}.{name}"));
    }
    let (_, matrix) = rest.strip_prefix("ffn.experts.")?.split_once('.')?;
    let fused = if matrix == "w2" { FUSED_DOWN } else { FUSED_GATE_UP };
    let scale = match part {
        Part::Value => "",
        Part::Scale => "_scale_inv",
        Part::Global | Part::Input => return None,
    };
    Some(format!("{prefix}.mlp.experts.{fused}{scale}"))
}

/// For an expert's matrix: the fused tensor's key, the expert's number, and `w1`, `w2` or `w3`.
pub(crate) fn fused_of(key: &str) -> Option<(String, usize, &str)> {
    let (prefix, rest) = key.split_once(".ffn.experts.")?;
    let (number, matrix) = rest.split_once('.')?;
    let fused = if matrix == "w2" { FUSED_DOWN } else { FUSED_GATE_UP };
    Some(([prefix, ".ffn.experts.", fused].concat(), decimal(number)?, matrix))
}

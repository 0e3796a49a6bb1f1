//! `quantization_config` and `expert_dtype`: how the weights are stored.

use serde_json::json;

use super::ExpertDtype;
use super::fields::{Fields, agree};
use crate::{Error, Result};

/// Block of an FP8 weight scale when the file has no quantised linear to describe.
const USUAL_BLOCK: [usize; 2] = [128, 128];

/// What the file says about storage.
pub(super) struct Quant {
    pub(super) weight_block_size: [usize; 2],
    /// `None` when the file doesn't say (the initial release): the tensors do.
    pub(super) expert_dtype: Option<ExpertDtype>,
}

/// Keys that name modules left alone, or describe serving; the tensors themselves say how they are stored.
const HARMLESS: &[&str] = &[
    "config_groups",
    "dequantize",
    "exclude_modules",
    "group_size",
    "ignore",
    "ignored_layers",
    "kv_cache_quant_algo",
    "kv_cache_scheme",
    "modules_to_not_convert",
    "producer",
    "quant_algo",
    "quantized_layers",
];

/// Reads both places of `expert_dtype` and the block size.
pub(super) fn read(f: &Fields<'_>) -> Result<Quant> {
    let outer = expert_dtype(f)?;
    let Some(q) = f.object("quantization_config")? else {
        return Ok(Quant { weight_block_size: USUAL_BLOCK, expert_dtype: outer });
    };
    let method = q.text("quant_method")?.ok_or_else(|| q.missing("quant_method"))?;
    let block = q.usizes("weight_block_size")?;
    if !matches!(method, "fp8" | "modelopt") {
        return Err(Error::input("unsupported way of quantising")
            .at(q.path("quant_method"))
            .expected("fp8 (the released form) or modelopt (NVFP4)")
            .found(method)
            .hint("convert the checkpoint to the released form, or to plain BF16"));
    }
    let weight_block_size = match block.as_deref() {
        Some(&[rows, cols]) if rows > 0 && cols > 0 => [rows, cols],
        Some(other) => {
            return Err(Error::input("wrong block")
                .at(q.path("weight_block_size"))
                .expected("two positive numbers, [128,128] in the released models")
                .found(format!("{other:?}")));
        }
        None if method == "modelopt" => USUAL_BLOCK,
        None => {
            return Err(q
                .missing("weight_block_size")
                .hint("without it transformers means one scale a tensor, which no released model has"));
        }
    };
    q.only("fmt", &json!("e4m3"), "FP8 weights are E4M3")?;
    q.only("activation_scheme", &json!("dynamic"), "activations are quantised as they come")?;
    for key in ["scale_fmt", "scale_dtype"] {
        if let Some(name) = q.text(key)?
            && !matches!(name, "ue8m0" | "fp8" | "float" | "fp32")
        {
            return Err(Error::input("unknown scale format").at(q.path(key)).expected("ue8m0").found(name));
        }
    }
    let inner = expert_dtype(&q)?;
    for key in HARMLESS {
        q.ignore(key);
    }
    if let Some(key) = q.unread().first() {
        return Err(Error::input("unknown field").at(q.path(key)).hint(super::keys::advice(key)));
    }
    let expert_dtype = agree(("expert_dtype", outer), ("quantization_config.expert_dtype", inner))?;
    Ok(Quant { weight_block_size, expert_dtype })
}

fn expert_dtype(f: &Fields<'_>) -> Result<Option<ExpertDtype>> {
    f.text("expert_dtype")?
        .map(|name| match name {
            "fp4" => Ok(ExpertDtype::Fp4),
            "fp8" => Ok(ExpertDtype::Fp8),
            other => {
                Err(Error::input("unknown storage").at(f.path("expert_dtype")).expected("fp4 or fp8").found(other))
            }
        })
        .transpose()
}

//! Which layer keeps what: `compress_ratios`, or `layer_types` with `compress_rates`; and which layers route by token id.

use super::LayerKind;
use super::fields::{Fields, agree};
use crate::{Error, Result};

/// Layer types in transformers' words.
const SLIDING: &str = "sliding_attention";
const CSA: &str = "compressed_sparse_attention";
const HCA: &str = "heavily_compressed_attention";

/// Tokens an entry stands for, by layer type, as far as the file says it.
#[derive(Clone, Copy, Default)]
struct Rates {
    csa: Option<usize>,
    hca: Option<usize>,
}

/// Reads the kinds of `n_layers` layers and `n_mtp` MTP blocks (spec 1).
///
/// In `compress_ratios` 0, 4 and 128 name the type; the ratio itself comes from `compress_rates` where the file has it.
/// The list is cut to the layers; MTP block i uses entry `n_layers + i`. `layer_types` never lists MTP blocks: they
/// are sliding (spec 2.14).
pub(super) fn layers(f: &Fields<'_>, n_layers: usize, n_mtp: usize) -> Result<(Vec<LayerKind>, Vec<LayerKind>)> {
    let rates = rates(f)?;
    let ratios = f.usizes("compress_ratios")?;
    let types = f.texts("layer_types")?;
    let by_types = types.map(|t| by_types(f, &t, rates, n_layers)).transpose()?;
    let by_ratios = ratios.map(|r| by_ratios(f, &r, rates, n_layers, n_mtp)).transpose()?;
    match (by_ratios, by_types) {
        (Some((layers, mtp)), None) => Ok((layers, mtp)),
        (None, Some(layers)) => Ok((layers, vec![LayerKind::Sliding; n_mtp])),
        (Some((layers, mtp)), Some(other)) => {
            if let Some(l) = (0..n_layers).find(|&l| layers[l] != other[l]) {
                return Err(Error::input("two spellings of one fact disagree")
                    .at(format!("layer_types[{l}]"))
                    .expected(format!("{} as in compress_ratios", layers[l]))
                    .found(other[l])
                    .hint("remove the wrong list"));
            }
            Ok((layers, mtp))
        }
        (None, None) => Err(f.missing("compress_ratios").hint(
            "the layer schedule decides the architecture, so there is no default: give compress_ratios, or layer_types \
             with compress_rates",
        )),
    }
}

/// `compress_rates`, with its two older single fields.
fn rates(f: &Fields<'_>) -> Result<Rates> {
    let mut rates = Rates::default();
    if let Some(table) = f.object("compress_rates")? {
        rates.csa = table.usize(CSA)?;
        rates.hca = table.usize(HCA)?;
        // transformers never writes a sliding rate; 0 and 1 both mean "not compressed".
        if let Some(rate) = table.usize(SLIDING)?
            && rate > 1
        {
            return Err(Error::input("a sliding layer compresses nothing")
                .at(table.path(SLIDING))
                .expected("0, or no such key")
                .found(rate));
        }
        if let Some(key) = table.unread().first() {
            return Err(Error::input("unknown layer type")
                .at(table.path(key))
                .expected(format!("{CSA} or {HCA}"))
                .found(key));
        }
    }
    let (csa, hca) = (f.usize("compress_rate_csa")?, f.usize("compress_rate_hca")?);
    rates.csa = agree((&format!("compress_rates.{CSA}"), rates.csa), ("compress_rate_csa", csa))?;
    rates.hca = agree((&format!("compress_rates.{HCA}"), rates.hca), ("compress_rate_hca", hca))?;
    for (name, rate) in [(CSA, rates.csa), (HCA, rates.hca)] {
        if let Some(rate) = rate
            && !(2..=super::check::MAX_RATIO).contains(&rate)
        {
            return Err(Error::input("impossible compression ratio")
                .at(format!("compress_rates.{name}"))
                .expected(format!("2 to {}", super::check::MAX_RATIO))
                .found(rate));
        }
    }
    Ok(rates)
}

fn by_ratios(
    f: &Fields<'_>,
    ratios: &[usize],
    rates: Rates,
    n_layers: usize,
    n_mtp: usize,
) -> Result<(Vec<LayerKind>, Vec<LayerKind>)> {
    if ratios.len() < n_layers + n_mtp {
        return Err(Error::input("layer schedule is too short")
            .at(f.path("compress_ratios"))
            .expected(format!("{n_layers} layers + {n_mtp} MTP blocks = {} entries", n_layers + n_mtp))
            .found(format!("{} entries", ratios.len()))
            .hint("an MTP block's entry is 0; set num_nextn_predict_layers to 0 if the checkpoint has none"));
    }
    let mut kinds = Vec::with_capacity(n_layers + n_mtp);
    // Entries beyond the MTP blocks (Flash-0731 lists its draft layers) are checked, then dropped.
    for (i, &ratio) in ratios.iter().enumerate() {
        let kind = match ratio {
            0 => LayerKind::Sliding,
            4 => LayerKind::Csa { ratio: rates.csa.unwrap_or(4) },
            128 => LayerKind::Hca { ratio: rates.hca.unwrap_or(128) },
            _ => {
                return Err(Error::input("unknown compression ratio")
                    .at(f.path(&format!("compress_ratios[{i}]")))
                    .expected("0 (sliding), 4 (compressed sparse) or 128 (heavily compressed)")
                    .found(ratio)
                    .hint("these three name the layer's type: give other ratios in compress_rates"));
            }
        };
        if i >= n_layers && kind != LayerKind::Sliding {
            return Err(Error::input("a block after the last layer is compressed")
                .at(f.path(&format!("compress_ratios[{i}]")))
                .expected(format!("0: MTP blocks keep the window only, and num_hidden_layers is {n_layers}"))
                .found(ratio)
                .hint("check num_hidden_layers"));
        }
        if i < n_layers + n_mtp {
            kinds.push(kind);
        }
    }
    let mtp = kinds.split_off(n_layers);
    Ok((kinds, mtp))
}

fn by_types(f: &Fields<'_>, types: &[&str], rates: Rates, n_layers: usize) -> Result<Vec<LayerKind>> {
    if types.len() != n_layers {
        return Err(Error::input("layer schedule has the wrong length")
            .at(f.path("layer_types"))
            .expected(format!("{n_layers} entries (num_hidden_layers)"))
            .found(format!("{} entries", types.len())));
    }
    let rate = |rate: Option<usize>, name: &str, usual: usize| {
        rate.ok_or_else(|| {
            f.missing(&format!("compress_rates.{name}"))
                .hint(format!("layer_types names the type only: add the ratio ({usual} in the released models)"))
        })
    };
    types
        .iter()
        .enumerate()
        .map(|(i, &name)| match name {
            SLIDING => Ok(LayerKind::Sliding),
            CSA => Ok(LayerKind::Csa { ratio: rate(rates.csa, CSA, 4)? }),
            HCA => Ok(LayerKind::Hca { ratio: rate(rates.hca, HCA, 128)? }),
            other => Err(Error::input("unknown layer type")
                .at(f.path(&format!("layer_types[{i}]")))
                .expected(format!("{SLIDING}, {CSA} or {HCA}"))
                .found(other)),
        })
        .collect()
}

/// How many leading layers route by token id: `num_hash_layers`, or the leading `hash_moe` of `mlp_layer_types`.
/// There is no default: transformers' silent 3 is a known trap (spec 1, bug site d).
pub(super) fn hash_layers(f: &Fields<'_>, n_layers: usize) -> Result<usize> {
    let given = f.usize("num_hash_layers")?;
    let mut counted = None;
    if let Some(types) = f.texts("mlp_layer_types")? {
        if types.len() != n_layers {
            return Err(Error::input("list has the wrong length")
                .at(f.path("mlp_layer_types"))
                .expected(format!("{n_layers} entries (num_hidden_layers)"))
                .found(format!("{} entries", types.len())));
        }
        let hash = types.iter().take_while(|t| **t == "hash_moe").count();
        for (i, &name) in types.iter().enumerate().skip(hash) {
            if name != "moe" {
                return Err(Error::input("wrong kind of expert layer")
                    .at(f.path(&format!("mlp_layer_types[{i}]")))
                    .expected("hash_moe for the first layers, moe for all later ones")
                    .found(name));
            }
        }
        counted = Some(hash);
    }
    let n =
        agree(("num_hash_layers", given), ("mlp_layer_types (its leading hash_moe)", counted))?.ok_or_else(|| {
            f.missing("num_hash_layers")
                .hint("there is no safe default: 3 in the released models, or give mlp_layer_types")
        })?;
    if n > n_layers {
        return Err(Error::input("more hash layers than layers")
            .at(f.path("num_hash_layers"))
            .expected(format!("at most {n_layers} (num_hidden_layers)"))
            .found(n));
    }
    Ok(n)
}

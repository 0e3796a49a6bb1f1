//! The weights of one op as f32, by the names that the script has for them.

use karat_model::checkpoint::Dtype;
use karat_model::formats::decode_rows;
use karat_model::{Checkpoint, Error, Result};
use karat_reference::Rope;
use karat_seam::{Op, Tensor};

/// Weights of `op` in layer `l`: `ids` are the ids of the rows (hash routing), `experts` those that the rows chose.
pub(crate) fn of(
    checkpoint: &Checkpoint,
    l: u16,
    op: Op,
    ids: &[u32],
    experts: &[i64],
) -> Result<Vec<(String, Tensor)>> {
    let config = checkpoint.config();
    let full = |name: &str| format!("layers.{l}.{name}");
    let mut out = Vec::new();
    let mut plains = |names: &[(&str, &str)]| -> Result<()> {
        for (short, name) in names {
            out.push(((*short).to_string(), plain(checkpoint, &full(name))?));
        }
        Ok(())
    };
    let linears: &[(&str, &str)] = match op {
        Op::HcAttnPre => {
            plains(&[("fn", "hc_attn_fn"), ("base", "hc_attn_base"), ("scale", "hc_attn_scale")])?;
            &[]
        }
        Op::HcFfnPre => {
            plains(&[("fn", "hc_ffn_fn"), ("base", "hc_ffn_base"), ("scale", "hc_ffn_scale")])?;
            &[]
        }
        Op::AttnNorm => {
            plains(&[("norm", "attn_norm.weight")])?;
            &[]
        }
        Op::FfnNorm => {
            plains(&[("norm", "ffn_norm.weight")])?;
            &[]
        }
        Op::QueryDown => {
            plains(&[("norm", "attn.q_norm.weight")])?;
            &[("wq_a", "attn.wq_a")]
        }
        Op::QueryUp => &[("wq_b", "attn.wq_b")],
        Op::KeyValue => {
            plains(&[("norm", "attn.kv_norm.weight")])?;
            &[("wkv", "attn.wkv")]
        }
        Op::CompressProject => &[("wkv", "attn.compressor.wkv"), ("wgate", "attn.compressor.wgate")],
        Op::IndexProject => &[("wkv", "attn.indexer.compressor.wkv"), ("wgate", "attn.indexer.compressor.wgate")],
        Op::CompressPool => {
            plains(&[("ape", "attn.compressor.ape"), ("norm", "attn.compressor.norm.weight")])?;
            &[]
        }
        Op::IndexPool => {
            plains(&[("ape", "attn.indexer.compressor.ape"), ("norm", "attn.indexer.compressor.norm.weight")])?;
            &[]
        }
        Op::IndexQuery => &[("wq_b", "attn.indexer.wq_b")],
        Op::IndexWeights => &[("weights_proj", "attn.indexer.weights_proj")],
        Op::Attend => {
            plains(&[("sink", "attn.attn_sink")])?;
            &[]
        }
        Op::OutputDown => &[("wo_a", "attn.wo_a")],
        Op::OutputUp => &[("wo_b", "attn.wo_b")],
        Op::Route => {
            match config.is_hash_layer(usize::from(l)) {
                true => out.push(("experts_of_rows".to_string(), hashed(checkpoint, &full("ffn.gate.tid2eid"), ids)?)),
                false => plains(&[("bias", "ffn.gate.bias")])?,
            }
            &[("gate", "ffn.gate")]
        }
        Op::SharedExpert => {
            &[("w1", "ffn.shared_experts.w1"), ("w3", "ffn.shared_experts.w3"), ("w2", "ffn.shared_experts.w2")]
        }
        _ => &[],
    };
    for (short, name) in linears {
        out.push(((*short).to_string(), linear(checkpoint, &full(name))?));
    }
    for e in experts {
        for w in ["w1", "w3", "w2"] {
            out.push((format!("{e}.{w}"), linear(checkpoint, &full(&format!("ffn.experts.{e}.{w}")))?));
        }
    }
    let turns =
        [Op::QueryUp, Op::KeyValue, Op::CompressPool, Op::IndexPool, Op::IndexQuery, Op::OutputDown].contains(&op);
    if turns {
        let is_compressed = config.layers.get(usize::from(l)).is_some_and(|kind| kind.ratio().is_some());
        let rope = if is_compressed { Rope::yarn(config) } else { Rope::plain(config) };
        out.push(("inv_freq".to_string(), Tensor::f32([rope.inv_freq.len()], rope.inv_freq)));
    }
    Ok(out.into_iter().map(|(name, tensor)| (format!("weight.{name}"), tensor)).collect())
}

/// `[rows, cols]` of a linear, whatever its encoding.
fn linear(checkpoint: &Checkpoint, name: &str) -> Result<Tensor> {
    let weight = checkpoint.linear(name)?;
    let mut values = vec![0.0; weight.rows * weight.cols];
    decode_rows(&weight, 0, &mut values);
    Ok(Tensor::f32([weight.rows, weight.cols], values))
}

fn plain(checkpoint: &Checkpoint, name: &str) -> Result<Tensor> {
    let raw = checkpoint.tensor(name)?;
    let values: Vec<f32> = match raw.dtype {
        Dtype::F32 => raw.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::Bf16 => raw.bytes.as_chunks::<2>().0.iter().map(|b| f32::from_le_bytes([0, 0, b[0], b[1]])).collect(),
        other => return Err(Error::input("expected F32 or BF16").at(name).found(other.name())),
    };
    Ok(Tensor::f32(raw.shape, values))
}

/// `[n, K]` experts of ids, from the table of a hash layer.
fn hashed(checkpoint: &Checkpoint, name: &str, ids: &[u32]) -> Result<Tensor> {
    let k = checkpoint.config().num_experts_per_tok;
    let table = checkpoint.tensor(name)?.ids();
    let of = |id: &u32| table.get(*id as usize * k..(*id as usize + 1) * k).unwrap_or_default().to_vec();
    let chosen: Vec<i64> = ids.iter().flat_map(of).collect();
    if chosen.len() != ids.len() * k {
        return Err(Error::input("the table of experts has no line for an id").at(name));
    }
    Ok(Tensor::i64([ids.len(), k], chosen))
}

//! Hyper-connections and the residual streams.

use karat_model::formats::bf16;
use karat_seam::{Block, Op, Result, Tap, Tensor};

use crate::Edit;
use crate::fault::{Fault, NONE};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "MHC-01",
        change: "the streams are mixed by the transposed matrix",
        block: Block::Layer(1),
        taps: &[Tap::HcAttnOut],
        edit: Some(transposed),
        ..NONE
    },
    Fault {
        id: "MHC-02",
        change: "the parameters of the mixing are rounded to bf16",
        block: Block::Layer(0),
        files: Some(|files| {
            for name in (0..4).flat_map(|l| ["attn", "ffn"].map(|part| (l, part))) {
                for what in ["fn", "base", "scale"] {
                    let name = format!("layers.{}.hc_{}_{what}", name.0, name.1);
                    let rounded: Vec<f32> = files.f32s(&name).into_iter().map(bf16::round).collect();
                    files.put_f32s(&name, &rounded);
                }
            }
        }),
        without: &["bf16-mhc"],
        ..NONE
    },
    Fault {
        id: "MHC-04",
        change: "the final norm is skipped",
        block: Block::Head,
        // The norm's weights are gone with the files, its division with the edit.
        files: Some(|files| files.map_bf16("norm.weight", |_| 1.0)),
        taps: &[Tap::Logits],
        edit: Some(no_division),
        ..NONE
    },
];

fn transposed(e: &mut Edit<'_>) -> Result<()> {
    let comb = e.seen(Tap::HcAttnComb)?;
    let hc = comb.shape[1];
    let mut values = comb.as_f32("hc_attn.comb")?.to_vec();
    for m in values.chunks_exact_mut(hc * hc) {
        for (j, k) in (0..hc).flat_map(|j| (0..j).map(move |k| (j, k))) {
            m.swap(j * hc + k, k * hc + j);
        }
    }
    let new = e.rerun(Op::HcAttnPost, &[(Tap::HcAttnComb, Tensor::f32(comb.shape.clone(), values))])?;
    e.put(&new)
}

/// The logits of unnormed values: each row times the rms that it was divided by.
fn no_division(e: &mut Edit<'_>) -> Result<()> {
    for i in 0..e.rows().len() {
        let x = e.other(Tap::HeadCollapsed, i)?;
        let rms = (x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32).sqrt();
        e.row(i).iter_mut().for_each(|v| *v *= rms);
    }
    Ok(())
}

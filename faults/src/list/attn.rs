//! Core attention: sink, window, merge, padding.

use karat_seam::{Block, Data, Op, Phase, Result, Tap, Tensor};
use serde_json::json;

use crate::bench::{ANSWER, SEAM};
use crate::fault::{Fault, NONE, decoded};
use crate::{Edit, Files};

const BOTH: &[Tap] = &[Tap::AttnO, Tap::AttnLse];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "ATTN-01",
        change: "a layer has no sinks",
        block: Block::Layer(1),
        files: Some(|files| no_sinks(files, 1)),
        ..NONE
    },
    Fault {
        id: "ATTN-02",
        change: "every rank of two heads has the first rank's sinks",
        block: Block::Layer(2),
        files: Some(|files| {
            let sinks = files.f32s("layers.2.attn.attn_sink");
            let local: Vec<f32> = (0..sinks.len()).map(|h| sinks[h % 2]).collect();
            files.put_f32s("layers.2.attn.attn_sink", &local);
        }),
        ..NONE
    },
    Fault {
        id: "ATTN-03",
        change: "f32 sinks are read as bf16 halves",
        block: Block::Layer(1),
        files: Some(|files| {
            let bits = files.f32s("layers.1.attn.attn_sink").into_iter().map(f32::to_bits);
            let halves: Vec<f32> = bits.flat_map(|b| [b << 16, b & 0xffff_0000].map(f32::from_bits)).take(4).collect();
            files.put_f32s("layers.1.attn.attn_sink", &halves);
        }),
        ..NONE
    },
    Fault {
        id: "ATTN-05",
        change: "decode has no sinks",
        block: Block::Layer(3),
        rows: decoded,
        donor: Some(|files| no_sinks(files, 3)),
        taps: BOTH,
        edit: Some(attend_of_donor),
        ..NONE
    },
    Fault {
        id: "ATTN-06",
        change: "two empty partial results are merged at the first rows of the second prefill",
        block: Block::Layer(2),
        rows: |pos, _| (SEAM..SEAM + 2).contains(&pos),
        taps: BOTH,
        edit: Some(|e| {
            e.each_row(|_, row| row.fill(f32::NAN));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "ATTN-08",
        change: "a layer has no sliding window",
        block: Block::Layer(1),
        rows: |pos, _| pos > 15,
        donor: Some(|files| files.set("sliding_window", json!(4096))),
        taps: BOTH,
        edit: Some(attend_of_donor),
        ..NONE
    },
    Fault {
        id: "ATTN-10",
        change: "decode counts eight rows of zeros that no page holds",
        block: Block::Layer(1),
        rows: decoded,
        taps: BOTH,
        edit: Some(counted_zeros),
        ..NONE
    },
    Fault {
        id: "ATTN-13",
        change: "a row of padding makes a decoded row's scale no number",
        block: Block::Layer(1),
        rows: |pos, _| pos == 280,
        taps: BOTH,
        edit: Some(|e| {
            e.each_row(|_, row| row.fill(f32::NAN));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "ATTN-14",
        change: "offsets into the window's rows wrap at row 128",
        block: Block::Layer(3),
        rows: |pos, _| pos > 127,
        taps: BOTH,
        edit: Some(|e| {
            let width = e.seen(Tap::AttnKv)?.width();
            other_rows(e, move |kv| {
                let wrapped = kv.len().saturating_sub(128 * width);
                let old = kv.to_vec();
                kv.iter_mut().skip(128 * width).zip(old.iter().cycle()).take(wrapped).for_each(|(v, o)| *v = *o);
            })
        }),
        ..NONE
    },
    Fault {
        id: "ATTN-11",
        change: "decoded rows attend to the entries that the row 40 before them chose",
        block: Block::Layer(3),
        rows: decoded,
        taps: BOTH,
        edit: Some(|e| other_lists(e, 40)),
        ..NONE
    },
    Fault {
        id: "ATTN-12",
        change: "at the first answer's first tokens what padded heads hold is summed in",
        block: Block::Layer(2),
        rows: |pos, _| (ANSWER..ANSWER + 6).contains(&pos),
        taps: &[Tap::AttnO],
        edit: Some(|e| {
            e.each_row(|_, row| row.iter_mut().step_by(3).for_each(|v| *v += 0.25));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "ATTN-15",
        change: "every decode step has the logits of the first",
        block: Block::Head,
        rows: |pos, phase| phase == Phase::Decode && pos > ANSWER,
        taps: &[Tap::Logits],
        edit: Some(first_steps_logits),
        ..NONE
    },
];

fn no_sinks(files: &mut Files, layer: u16) {
    let name = format!("layers.{layer}.attn.attn_sink");
    let gone = vec![-1e30; files.f32s(&name).len()];
    files.put_f32s(&name, &gone);
}

fn attend_of_donor(e: &mut Edit<'_>) -> Result<()> {
    let new = e.rerun_donor(Op::Attend)?;
    e.put(&new)
}

/// Attention over other rows in the window.
pub(super) fn other_rows(e: &mut Edit<'_>, edit: impl Fn(&mut [f32])) -> Result<()> {
    let kv = e.seen(Tap::AttnKv)?;
    let mut values = kv.as_f32("attn.kv")?.to_vec();
    edit(&mut values);
    let new = e.rerun(Op::Attend, &[(Tap::AttnKv, Tensor::f32(kv.shape.clone(), values))])?;
    e.put(&new)
}

/// Eight keys of zeros add 8 * e^0 to the denominator and nothing to the sum.
fn counted_zeros(e: &mut Edit<'_>) -> Result<()> {
    let (heads, first) = (e.config().num_attention_heads, e.rows()[0].pos as usize);
    let lse = e.attend_lse()?;
    let hd = e.width() / heads;
    let is_lse = e.tap == Tap::AttnLse;
    e.each_row(|pos, row| {
        for (h, head) in row.chunks_exact_mut(hd).enumerate() {
            let sum = lse[(pos as usize - first) * heads + h].exp();
            match is_lse {
                true => head[0] = (sum + 8.0).ln(),
                false => head.iter_mut().for_each(|v| *v *= sum / (sum + 8.0)),
            }
        }
    });
    Ok(())
}

/// Row i attends to the entries of row i - `by`.
pub(super) fn other_lists(e: &mut Edit<'_>, by: usize) -> Result<()> {
    let mask = e.seen(Tap::AttnSelected)?;
    let (width, Data::U8(old)) = (mask.width(), &mask.data) else { return Ok(()) };
    let mut new = old.clone();
    for pos in by..mask.rows() {
        new[pos * width..(pos + 1) * width].copy_from_slice(&old[(pos - by) * width..(pos - by + 1) * width]);
    }
    let new = e.rerun(Op::Attend, &[(Tap::AttnSelected, Tensor::u8(mask.shape.clone(), new))])?;
    e.put(&new)
}

fn first_steps_logits(e: &mut Edit<'_>) -> Result<()> {
    let first = match e.rows().iter().position(|row| row.pos == ANSWER) {
        Some(i) => e.row(i).to_vec(),
        None => {
            let (seen, width) = (e.seen(Tap::Logits)?, e.width());
            seen.as_f32("logits")?[ANSWER as usize * width..(ANSWER as usize + 1) * width].to_vec()
        }
    };
    e.each_row(|_, row| row.copy_from_slice(&first));
    Ok(())
}

//! The indexer: queries, keys, scores, selection.
#![expect(clippy::unnecessary_wraps, reason = "the type of Fault::edit")]

use karat_model::formats::bf16;
use karat_optimized::{Rope, Store, quant::hadamard};
use karat_seam::{Block, Data, Phase, Result, Tap, Tensor};

use crate::Edit;
use crate::fault::{Fault, NONE, decoded, prefilled};

const AT: Block = Block::Layer(1);
const LAST: Block = Block::Layer(3);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "INDEX-01",
        change: "index queries and keys are rotated in halves, not in pairs",
        block: AT,
        rows: |pos, _| pos > 0,
        taps: &[Tap::AttnIndexK, Tap::AttnIndexQ],
        edit: Some(rotated_in_halves),
        ..NONE
    },
    Fault {
        id: "INDEX-02",
        change: "index keys alone are rotated in halves",
        block: LAST,
        rows: |pos, _| pos > 4,
        taps: &[Tap::AttnIndexK],
        edit: Some(rotated_in_halves),
        ..NONE
    },
    Fault {
        id: "INDEX-06",
        change: "index keys lack the rotation by the Hadamard matrix that queries have, or have one more",
        block: AT,
        taps: &[Tap::AttnIndexK],
        edit: Some(other_hadamard),
        ..NONE
    },
    Fault {
        id: "INDEX-07",
        change: "neither queries nor keys are in the frame that the plan says",
        block: LAST,
        taps: &[Tap::AttnIndexK, Tap::AttnIndexQ],
        edit: Some(other_hadamard),
        ..NONE
    },
    Fault {
        id: "INDEX-09",
        change: "one key in sixteen has a code that reads as NaN: its score is -inf",
        block: AT,
        rows: |pos, _| pos > 23,
        taps: &[Tap::AttnIndexScore],
        edit: Some(|e| {
            e.each_row(|_, row| row.iter_mut().skip(5).step_by(16).for_each(|s| *s = f32::NEG_INFINITY));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "INDEX-10",
        change: "decode reads zero scores from entry 40 on",
        block: LAST,
        rows: |pos, phase| phase == Phase::Decode && pos > 163,
        taps: &[Tap::AttnIndexScore],
        edit: Some(|e| {
            let last = |pos: u32| (pos as usize + 1) / 4;
            e.each_row(|pos, row| row[..last(pos)].iter_mut().skip(40).for_each(|s| *s = 0.0));
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "INDEX-11",
        change: "prefill selects among all entries, later ones too",
        block: AT,
        rows: prefilled,
        taps: &[Tap::AttnSelected],
        edit: Some(future_entries),
        ..NONE
    },
    Fault {
        id: "INDEX-13",
        change: "index scores lack the relu",
        block: AT,
        rows: |pos, _| pos > 2,
        taps: &[Tap::AttnIndexScore],
        edit: Some(|e| rescored(e, false, 0)),
        ..NONE
    },
    Fault {
        id: "INDEX-18",
        change: "every other key is the one before it",
        block: LAST,
        rows: |pos, _| pos % 8 == 7,
        taps: &[Tap::AttnIndexK],
        edit: Some(stale_keys),
        ..NONE
    },
    Fault {
        id: "INDEX-20",
        change: "decode reads keys at a stride that is four values too long",
        block: AT,
        rows: decoded,
        taps: &[Tap::AttnIndexScore],
        edit: Some(|e| rescored(e, true, 4)),
        ..NONE
    },
    Fault {
        id: "INDEX-03",
        change: "head weights are rounded to bf16 once more, before their factor (once is what the official code does)",
        block: AT,
        taps: &[Tap::AttnIndexW],
        edit: Some(|e| {
            let factor = ((e.config().index_head_dim * e.config().index_n_heads) as f32).sqrt().recip();
            let rounded = |v: &mut f32| *v = bf16::round(bf16::round(*v / factor) * factor);
            e.each_row(|_, row| row.iter_mut().for_each(rounded));
            Ok(())
        }),
        ..NONE
    },
];

/// Turns each vector back by pairs and forward by halves, in the frame without the Hadamard matrix.
fn rotated_in_halves(e: &mut Edit<'_>) -> Result<()> {
    let (rope, di, ratio) = (e.rope(), e.config().index_head_dim, if e.tap.is_per_entry() { e.ratio() } else { 1 });
    let hadamards: Vec<bool> = (0..e.rows().len()).map(|i| e.hadamard(i)).collect();
    for (i, rotates) in hadamards.into_iter().enumerate() {
        if !e.hits(i) {
            continue;
        }
        let pos = e.rows()[i].pos * ratio;
        for v in e.row(i).chunks_exact_mut(di) {
            if rotates {
                hadamard(v);
            }
            rope.at(pos).apply(Store::F32, v, true);
            halves(&rope, pos, v);
            if rotates {
                hadamard(v);
            }
        }
    }
    Ok(())
}

fn halves(rope: &Rope, pos: u32, v: &mut [f32]) {
    let half = rope.inv_freq().len();
    let at = v.len() - 2 * half;
    for (i, f) in rope.inv_freq().iter().enumerate() {
        let (sin, cos) = f64::from(pos as f32 * f).sin_cos();
        let (a, b) = (f64::from(v[at + i]), f64::from(v[at + half + i]));
        v[at + i] = (a * cos - b * sin) as f32;
        v[at + half + i] = (a * sin + b * cos) as f32;
    }
}

fn other_hadamard(e: &mut Edit<'_>) -> Result<()> {
    let di = e.config().index_head_dim;
    e.each_row(|_, row| row.chunks_exact_mut(di).for_each(hadamard));
    Ok(())
}

/// The list of each row that the fault is in is that of the best scores against other keys, `[entries, di]`.
pub(super) fn chosen_by(e: &mut Edit<'_>, keys: &[f32]) -> Result<()> {
    let (di, topk) = (e.config().index_head_dim, e.config().index_topk);
    for i in (0..e.rows().len()).filter(|i| e.hits(*i)).collect::<Vec<_>>() {
        let (q, w) = (e.other(Tap::AttnIndexQ, i)?, e.other(Tap::AttnIndexW, i)?);
        let visible = ((e.position(i) + 1) / e.ratio()) as usize;
        let head =
            |(q, w): (&[f32], &f32), key: &[f32]| w * q.iter().zip(key).map(|(q, k)| q * k).sum::<f32>().max(0.0);
        let score = |key: &[f32]| q.chunks_exact(di).zip(&w).map(|h| head(h, key)).sum::<f32>();
        let scores: Vec<f32> = keys.chunks_exact(di).take(visible).map(score).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mask = e.mask(i);
        mask.fill(0);
        order.into_iter().take(topk).for_each(|entry| mask[entry] = 1);
    }
    Ok(())
}

/// Score of query row `i` against every key so far, read `drift` values later with each key.
fn scores(e: &Edit<'_>, i: usize, relu: bool, drift: usize) -> Result<Vec<f32>> {
    let (q, w, keys) = (e.other(Tap::AttnIndexQ, i)?, e.other(Tap::AttnIndexW, i)?, e.seen(Tap::AttnIndexK)?);
    let (di, flat) = (e.config().index_head_dim, keys.as_f32("attn.index_k")?);
    let score = |entry: usize| {
        let key = |d: usize| flat[(entry * (di + drift) + d) % flat.len()];
        let head = |(q, w): (&[f32], &f32)| {
            let dot: f32 = q.iter().enumerate().map(|(d, q)| q * key(d)).sum();
            w * if relu { dot.max(0.0) } else { dot }
        };
        q.chunks_exact(di).zip(&w).map(head).sum()
    };
    Ok((0..keys.rows()).map(score).collect())
}

fn rescored(e: &mut Edit<'_>, relu: bool, drift: usize) -> Result<()> {
    for i in (0..e.rows().len()).filter(|i| e.hits(*i)).collect::<Vec<_>>() {
        let (new, visible) = (scores(e, i, relu, drift)?, (e.position(i) + 1) / e.ratio());
        e.row(i)[..visible as usize].copy_from_slice(&new[..visible as usize]);
    }
    Ok(())
}

fn future_entries(e: &mut Edit<'_>) -> Result<()> {
    let topk = e.config().index_topk;
    for i in (0..e.rows().len()).filter(|i| e.hits(*i)).collect::<Vec<_>>() {
        let new = scores(e, i, true, 0)?;
        let mut order: Vec<usize> = (0..new.len()).collect();
        order.sort_by(|a, b| new[*b].total_cmp(&new[*a]));
        let mask = e.mask(i);
        mask.fill(0);
        order.into_iter().take(topk).for_each(|entry| mask[entry] = 1);
    }
    Ok(())
}

fn stale_keys(e: &mut Edit<'_>) -> Result<()> {
    let Data::F32(old) = &e.tensor.data else { return Ok(()) };
    let mut new = old.clone();
    let width = e.width();
    for i in (1..e.rows().len()).filter(|i| e.hits(*i)) {
        new.copy_within((i - 1) * width..i * width, i * width);
    }
    e.tensor = Tensor::f32(e.tensor.shape.clone(), new);
    Ok(())
}

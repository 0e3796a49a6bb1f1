//! What one request of a batch does to another: rows of the second sequence are changed by what the first left.

use karat_seam::{Block, Data, Op, Phase, Result, Tap, Tensor};

use super::attn::other_rows;
use super::index::chosen_by;
use crate::Edit;
use crate::bench::{LAST_ANSWER, SECOND_ANSWER};
use crate::fault::{Fault, NONE, decoded, prefilled};

const BOTH: &[Tap] = &[Tap::AttnO, Tap::AttnLse];
/// The other sequence.
const FIRST: u32 = 0;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "INDEX-04",
        change: "in a batch of two the second request's keys begin where its queries do",
        block: Block::Layer(1),
        together: true,
        rows: prefilled,
        taps: &[Tap::AttnSelected],
        edit: Some(keys_at_the_start_of_queries),
        ..NONE
    },
    Fault {
        id: "STATE-12",
        change: "four rows of the window belong to two requests, and hold what the other one wrote",
        block: Block::Layer(2),
        together: true,
        rows: |pos, _| (64..79).contains(&pos),
        taps: BOTH,
        edit: Some(|e| rows_of_the_other(e, 60, 60, 4)),
        ..NONE
    },
    Fault {
        id: "SPEC-03",
        change: "steps after a rejected draft see three rows of the window that another request's draft left",
        block: Block::Layer(3),
        together: true,
        rows: |pos, phase| phase == Phase::Decode && (91..103).contains(&pos),
        taps: BOTH,
        edit: Some(|e| rows_of_the_other(e, 164, 88, 3)),
        ..NONE
    },
    Fault {
        id: "BATCH-05",
        change: "entries that decode completes begin with another request's list of chosen entries, which shares their buffer",
        block: Block::Layer(1),
        together: true,
        rows: decoded,
        taps: &[Tap::AttnCkv],
        edit: Some(begun_with_the_others_list),
        ..NONE
    },
    Fault {
        id: "BATCH-09",
        change: "the partner's part of the experts' sum is the one that it gave to the sum before, attention's",
        block: Block::Layer(2),
        taps: &[Tap::FfnOut],
        edit: Some(partners_sum_before),
        ..NONE
    },
];

/// The batch's keys lie one request after the other, and so do its queries: the second's begin at the first's entries, not at
/// its tokens. Past the end stand the first keys again.
fn keys_at_the_start_of_queries(e: &mut Edit<'_>) -> Result<()> {
    let (own, first) = (e.seen(Tap::AttnIndexK)?, e.seen_of(Tap::AttnIndexK, FIRST)?);
    let (width, start) = (own.width(), e.seen_of(Tap::AttnIn, FIRST)?.rows());
    let all = [first.as_f32("attn.index_k")?, own.as_f32("attn.index_k")?].concat();
    let keys = all.iter().cycle().skip(start * width % all.len()).take(own.rows() * width).copied().collect::<Vec<_>>();
    chosen_by(e, &keys)
}

/// Rows `from..from + n` of the other's window stand at `to`.
fn rows_of_the_other(e: &mut Edit<'_>, from: usize, to: usize, n: usize) -> Result<()> {
    let other = e.seen_of(Tap::AttnKv, FIRST)?;
    let width = other.width();
    let rows = other.as_f32("attn.kv")?[from * width..(from + n) * width].to_vec();
    other_rows(e, move |kv| {
        if let Some(place) = kv.get_mut(to * width..(to + n) * width) {
            place.copy_from_slice(&rows);
        }
    })
}

/// The first request's list in the same step of the batch.
fn begun_with_the_others_list(e: &mut Edit<'_>) -> Result<()> {
    let lists = e.seen_of(Tap::AttnSelected, FIRST)?;
    let (width, Data::U8(mask)) = (lists.width(), &lists.data) else { return Ok(()) };
    let mask = mask.clone();
    for i in (0..e.rows().len()).filter(|i| e.hits(*i)).collect::<Vec<_>>() {
        let step = (LAST_ANSWER + e.position(i) - SECOND_ANSWER) as usize;
        let list = mask[step * width..(step + 1) * width].iter().zip(0u8..).filter(|(m, _)| **m != 0);
        let list: Vec<f32> = list.map(|(_, entry)| f32::from(entry)).collect();
        e.row(i).iter_mut().zip(list).for_each(|(v, entry)| *v = entry);
    }
    Ok(())
}

/// Two ranks: the second has the upper half of the experts, and of what the output projection reads.
fn partners_sum_before(e: &mut Edit<'_>) -> Result<()> {
    let (wt, half) = (e.seen(Tap::FfnWt)?, e.config().n_routed_experts / 2);
    let chosen = e.seen(Tap::FfnIdx)?.as_i64("ffn.idx")?;
    let upper = |(w, i): (&f32, &i64)| if (*i as usize) < half { 0.0 } else { *w };
    let upper = wt.as_f32("ffn.wt")?.iter().zip(chosen).map(upper).collect();
    let experts = e.rerun_for(Op::Experts, Tap::FfnRouted, &[(Tap::FfnWt, Tensor::f32(wt.shape.clone(), upper))])?;
    let oa = e.seen(Tap::AttnOa)?;
    let (width, mut values) = (oa.width(), oa.as_f32("attn.oa")?.to_vec());
    values.chunks_exact_mut(width).for_each(|row| row[..width / 2].fill(0.0));
    let attention = e.rerun_for(Op::OutputUp, Tap::AttnOut, &[(Tap::AttnOa, Tensor::f32(oa.shape.clone(), values))])?;
    let (gone, come) = (experts.as_f32("ffn.routed")?.to_vec(), attention.as_f32("attn.out")?.to_vec());
    let width = e.width();
    for i in 0..e.rows().len() {
        let at = i * width..(i + 1) * width;
        e.row(i).iter_mut().zip(&gone[at.clone()]).zip(&come[at]).for_each(|((v, gone), come)| *v += come - gone);
    }
    Ok(())
}

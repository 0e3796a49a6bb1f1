//! Routing, its scaling factor, and how routed and shared experts meet.
#![expect(clippy::unnecessary_wraps, reason = "the type of Fault::edit")]

use karat_model::formats::bf16;
use karat_seam::{Block, Op, Phase, Result, Tap, Tensor};

use crate::Edit;
use crate::fault::{Fault, NONE, decoded};

const AT: Block = Block::Layer(2);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "ROUTE-01",
        change: "the routing weights carry the scaling factor twice",
        block: AT,
        taps: &[Tap::FfnWt],
        edit: Some(times_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-02",
        change: "the routed sum is scaled again behind the NVFP4 experts",
        block: Block::Layer(3),
        taps: &[Tap::FfnRouted],
        edit: Some(times_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-03",
        change: "the routed sum is scaled again, in decode only",
        block: AT,
        rows: decoded,
        taps: &[Tap::FfnRouted],
        edit: Some(times_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-04",
        change: "the routed sum is never scaled",
        block: Block::Layer(1),
        taps: &[Tap::FfnRouted],
        edit: Some(over_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-05",
        change: "the lower half of the experts is scaled twice",
        block: AT,
        taps: &[Tap::FfnRouted],
        edit: Some(half_scaled_twice),
        ..NONE
    },
    Fault {
        id: "ROUTE-06",
        change: "the routing weights lack the scaling factor",
        block: AT,
        taps: &[Tap::FfnWt],
        edit: Some(over_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-07",
        change: "routing weights are made of score plus selection bias",
        block: AT,
        taps: &[Tap::FfnWt],
        edit: Some(biased_weights),
        ..NONE
    },
    Fault {
        id: "ROUTE-09",
        change: "one token's routing weights are 0/0",
        block: AT,
        rows: |pos, _| pos == 77,
        taps: &[Tap::FfnWt],
        edit: Some(no_number),
        ..NONE
    },
    Fault {
        id: "ROUTE-10",
        change: "scores are sigmoid(logit), not sqrt(softplus(logit))",
        block: AT,
        taps: &[Tap::FfnIdx, Tap::FfnWt],
        edit: Some(sigmoid_scores),
        ..NONE
    },
    Fault {
        id: "ROUTE-11",
        change: "one decoded token's routing weights in a hash layer are no numbers",
        block: Block::Layer(0),
        rows: |pos, phase| phase == Phase::Decode && pos == 290,
        taps: &[Tap::FfnWt],
        edit: Some(no_number),
        ..NONE
    },
    Fault {
        id: "ROUTE-12",
        change: "router logits are stored in bf16",
        block: AT,
        taps: &[Tap::FfnRouterLogits],
        edit: Some(to_bf16),
        without: &["bf16-router"],
        ..NONE
    },
    Fault {
        id: "ROUTE-15",
        change: "the shared expert is divided by the scaling factor",
        block: AT,
        taps: &[Tap::FfnShared],
        edit: Some(over_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-16",
        change: "eight ranks each add the whole shared expert",
        block: AT,
        taps: &[Tap::FfnShared],
        edit: Some(|e| {
            e.scale(8.0);
            Ok(())
        }),
        ..NONE
    },
    Fault {
        id: "ROUTE-17",
        change: "the shared expert is added twice in decode",
        block: Block::Layer(1),
        rows: decoded,
        taps: &[Tap::FfnOut],
        edit: Some(shared_twice),
        ..NONE
    },
    Fault {
        id: "ROUTE-18",
        change: "the streams that leave layers 0, 1 and 2 are divided by the scaling factor",
        block: Block::Layer(0),
        blocks: &[Block::Layer(1), Block::Layer(2)],
        taps: &[Tap::Out],
        edit: Some(over_factor),
        ..NONE
    },
    Fault {
        id: "ROUTE-19",
        change: "only one of two ranks' slices of the shared down projection is summed",
        block: AT,
        files: Some(|files| {
            let name = "layers.2.ffn.shared_experts.w2.weight";
            let cols = files.shape(name)[1];
            files.bytes(name).chunks_exact_mut(cols).for_each(|row| row[cols / 2..].fill(0));
        }),
        ..NONE
    },
    Fault {
        id: "ROUTE-14",
        change: "selection biases about 12 are rounded to bf16",
        block: Block::Layer(2),
        files: Some(|files| {
            // 12 more for every expert changes no choice: what does is the rounding, up to 0.03 there.
            let bias = files.f32s("layers.2.ffn.gate.bias").into_iter().map(|b| bf16::round(12.0 + b) - 12.0);
            let bias: Vec<f32> = bias.collect();
            files.put_f32s("layers.2.ffn.gate.bias", &bias);
        }),
        ..NONE
    },
];

fn times_factor(e: &mut Edit<'_>) -> Result<()> {
    e.scale(e.factor());
    Ok(())
}

fn over_factor(e: &mut Edit<'_>) -> Result<()> {
    e.scale(1.0 / e.factor());
    Ok(())
}

fn no_number(e: &mut Edit<'_>) -> Result<()> {
    e.each_row(|_, row| row.fill(f32::NAN));
    Ok(())
}

fn to_bf16(e: &mut Edit<'_>) -> Result<()> {
    e.each_row(|_, row| row.iter_mut().for_each(|v| *v = bf16::round(*v)));
    Ok(())
}

/// Adds (factor - 1) times what the lower half of the experts contributes.
fn half_scaled_twice(e: &mut Edit<'_>) -> Result<()> {
    let (wt, half) = (e.seen(Tap::FfnWt)?, e.config().n_routed_experts / 2);
    let chosen = e.seen(Tap::FfnIdx)?.as_i64("ffn.idx")?;
    let lower = |(w, i): (&f32, &i64)| if (*i as usize) < half { *w } else { 0.0 };
    let lower = wt.as_f32("ffn.wt")?.iter().zip(chosen).map(lower).collect();
    let lower = e.rerun(Op::Experts, &[(Tap::FfnWt, Tensor::f32(wt.shape.clone(), lower))])?;
    let (again, width) = (e.factor() - 1.0, e.width());
    let lower = lower.as_f32("ffn.routed")?.to_vec();
    for i in 0..e.rows().len() {
        e.row(i).iter_mut().zip(&lower[i * width..]).for_each(|(v, l)| *v += again * l);
    }
    Ok(())
}

fn normalised(chosen: &[f32], factor: f32) -> Vec<f32> {
    let sum: f32 = chosen.iter().sum();
    chosen.iter().map(|s| s / sum * factor).collect()
}

fn biased_weights(e: &mut Edit<'_>) -> Result<()> {
    let bias = e.parameter("ffn.gate.bias");
    for i in 0..e.rows().len() {
        let (logits, chosen) = (e.other(Tap::FfnRouterLogits, i)?, e.chosen(i)?);
        let scores: Vec<f32> = chosen.iter().map(|x| logits[*x].exp().ln_1p().sqrt() + bias[*x]).collect();
        let wt = normalised(&scores, e.factor());
        e.row(i).copy_from_slice(&wt);
    }
    Ok(())
}

fn sigmoid_scores(e: &mut Edit<'_>) -> Result<()> {
    let bias = e.parameter("ffn.gate.bias");
    for i in 0..e.rows().len() {
        let logits = e.other(Tap::FfnRouterLogits, i)?;
        let scores: Vec<f32> = logits.iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect();
        if e.tap == Tap::FfnWt {
            let chosen: Vec<f32> = e.chosen(i)?.iter().map(|x| scores[*x]).collect();
            let wt = normalised(&chosen, e.factor());
            e.row(i).copy_from_slice(&wt);
            continue;
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| (scores[*b] + bias[*b]).total_cmp(&(scores[*a] + bias[*a])));
        e.experts(i).iter_mut().zip(order).for_each(|(to, x)| *to = x as i64);
    }
    Ok(())
}

fn shared_twice(e: &mut Edit<'_>) -> Result<()> {
    for i in 0..e.rows().len() {
        let shared = e.other(Tap::FfnShared, i)?;
        if e.hits(i) {
            e.row(i).iter_mut().zip(shared).for_each(|(v, s)| *v += s);
        }
    }
    Ok(())
}

//! Queries (spec 2.5): down projection with norm, up projection with per-head norm and rope.

use karat_model::Config;

use super::norm::{inverse_rms, rms_norm};
use super::rope::Rope;
use super::rows;
use crate::arith::{bf16, round_rows, sum, vectorised};
use crate::linear::Linear;
use crate::plan::{Numerics, QueryNorm};

/// qr = RMSNorm(Lin(x, wq_a); q_norm): `[S,R]`.
pub(crate) fn down(rules: &Numerics, config: &Config, wq_a: &Linear, q_norm: &[f32], x: &[f32]) -> Vec<f32> {
    let mut qr = wq_a.apply_parts(rules.dense, rules, rules.qkv_a, x);
    round_rows(rules.store.rounds(), &mut qr);
    rms_norm(rules, &mut qr, q_norm, config.rms_norm_eps as f32);
    qr
}

/// q = rope(norm_per_head(Lin(qr, wq_b))): `[S,H,hd]`, normed over all dims of a head before rope.
pub(crate) fn up(
    rules: &Numerics,
    config: &Config,
    wq_b: &Linear,
    rope: &Rope,
    qr: &[f32],
    position: impl Fn(usize) -> u32 + Sync,
) -> Vec<f32> {
    let (hd, eps) = (config.head_dim, config.rms_norm_eps as f32);
    let rd = config.qk_rope_head_dim;
    let mut q = wq_b.apply(rules.dense, rules, qr);
    round_rows(rules.store.rounds(), &mut q);
    rows(&mut q, wq_b.rows, |s, row| {
        let turn = rope.at(position(s));
        let mut squares = Vec::new();
        for head in row.chunks_exact_mut(hd) {
            match rules.query_norm {
                QueryNorm::Fused => {
                    let r = inverse_rms(head, eps);
                    for v in head.iter_mut() {
                        *v *= r;
                    }
                    round_rows(rules.store.rounds(), &mut head[..hd - rd]);
                }
                QueryNorm::Bf16Chain => bf16_norm(head, &mut squares, eps),
            }
            turn.apply(rules.store, head, false);
        }
    });
    q
}

/// The per-head norm (`squares` is scratch) with square, mean, +eps, rsqrt and product each rounded to bf16 (D2).
fn bf16_norm(head: &mut [f32], squares: &mut Vec<f32>, eps: f32) {
    squares.clear();
    squares.resize(head.len(), 0.0);
    bf16_squares(head, squares);
    let mean = bf16(sum(squares) / head.len() as f32);
    let r = bf16(1.0 / bf16(mean + eps).sqrt());
    bf16_scale(head, r);
}

vectorised! {
    fn bf16_squares(x: &[f32], out: &mut [f32]) {
        for (s, v) in out.iter_mut().zip(x) {
            *s = bf16(v * v);
        }
    }
}

vectorised! {
    fn bf16_scale(x: &mut [f32], r: f32) {
        for v in x {
            *v = bf16(*v * r);
        }
    }
}

//! Large linears against packed ones.

use std::collections::BTreeMap;

use karat_model::new::{Geometry, new_model};

use super::*;
use crate::linalg::{Pool, matmul};
use crate::ops::rows;
use crate::weights::{BlockWeights, Loader};

/// The linears of a block that may be large, with what they are called.
fn linears<'a, 'b>(block: &'b BlockWeights<'a, f32>) -> Vec<(&'static str, &'b Linear<'a, f32>)> {
    let (attn, shared) = (&block.attn, &block.shared);
    let mut all = vec![("wq_b", &attn.wq_b), ("wo_b", &attn.wo_b)];
    all.extend(attn.wo_a.iter().map(|w| ("wo_a", w)));
    all.extend([("w1", &shared.w1), ("w3", &shared.w3), ("w2", &shared.w2)]);
    all
}

#[test]
fn a_large_linear_has_the_bits_of_a_packed_one() {
    let files: BTreeMap<_, _> = new_model(Geometry::Default, 3).into_iter().collect();
    let checkpoint = Checkpoint::from_memory("seeded", files).unwrap();
    let pool = Pool::new(3).unwrap();
    let load = |values, keep| {
        let loader = Loader::new(&checkpoint, "layers.0", pool.isa()).large_from(values);
        pool.install(|| loader.block::<f32>(checkpoint.config().layers[0], true, keep)).unwrap()
    };
    let (stored, packed, kept) = (load(1, false), load(usize::MAX, false), load(1, true));
    for ((name, w), ((_, want), (_, kept))) in
        linears(&stored).into_iter().zip(linears(&packed).into_iter().zip(linears(&kept)))
    {
        assert!(matches!(w, Linear::Stored(_)), "{name} is decoded as it is multiplied");
        assert!(matches!((want, kept), (Linear::Packed(_), Linear::Packed(_))), "{name} is packed, small or kept");
        let Linear::Stored(it) = w else { continue };
        let k = Stored::<f32>::inputs(it);
        let x: Vec<f32> = (0..37 * k).map(|i| ((i * 7919 + i * i % 613) % 1999) as f32 / 1999.0 - 0.5).collect();
        let times = |w: &Linear<'_, f32>| pool.install(|| matmul(pool.isa(), &rows(&x, k), w));
        let (got, want) = (times(w), times(want));
        assert!(want.iter().any(|v| *v != 0.0), "{name} is more than zeros");
        assert!(got.iter().map(|v| v.to_bits()).eq(want.iter().map(|v| v.to_bits())), "{name}");
    }
}

//! The exact-split tier without a GPU: its kernels thread by thread, its tensor-core product emulated as the declared model has it.

use std::sync::Arc;

use karat_model::new::{Geometry, new_model};
use karat_model::{Checkpoint, Result};
use karat_reference::backend::Backend;
use karat_reference::{Golden, Mode};
use karat_seam::{Path as _, Requests, Sequence, Site, Tap};

use super::super::accumulator::{DECLARED, Model, STEP};
use super::super::compare::run;
use super::super::run::{Args, Desk, Found, Piece, Step, Values};
use super::super::split::Taken;
use super::super::{LONGEST, bound, least, split_standing, stated, tiers};
use super::Bus;
use super::host::Host;

/// Value of bf16 bits.
fn wide(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Nearest bf16, by the crate that knows about it.
fn narrow(v: f32) -> u16 {
    half::bf16::from_f32(v).to_bits()
}

/// 2^exponent of a normal f64.
fn two_to(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Exponent of the first bit of a normal f64.
fn first_bit(v: f64) -> i32 {
    (v.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// Toward zero, to multiples of 2^exponent.
fn truncated(v: f64, exponent: i32) -> f64 {
    (v * two_to(-exponent)).trunc() * two_to(exponent)
}

/// A step of a tensor core: everything truncated under the last kept bit of the largest, added, truncated to f32.
fn step(model: Model, sum: f32, products: &[f64]) -> f32 {
    let sum = f64::from(sum);
    let largest = products.iter().map(|v| v.abs()).fold(sum.abs(), f64::max);
    if largest == 0.0 || !largest.is_finite() {
        return products.iter().fold(sum, |sum, v| sum + v) as f32;
    }
    let last = first_bit(largest) - model.kept as i32;
    let exact: f64 = products.iter().map(|v| truncated(*v, last)).sum::<f64>() + truncated(sum, last);
    if exact == 0.0 { 0.0 } else { truncated(exact, first_bit(exact) - 23) as f32 }
}

/// One output of the product kernel: `terms[t]` and `w` of length k.
fn output(model: Model, terms: [&[u16]; 3], w: &[u16]) -> f32 {
    let (mut total, mut rest) = (0f32, 0f32);
    for (block, w) in w.chunks(STEP).enumerate() {
        let mut sum = 0f32;
        for term in terms.iter().rev() {
            let x = &term[block * STEP..][..w.len()];
            let mut products = [0.0; STEP];
            for ((product, x), w) in products.iter_mut().zip(x).zip(w) {
                *product = f64::from(wide(*x)) * f64::from(wide(*w));
            }
            sum = products.chunks(model.products as usize).fold(sum, |sum, products| step(model, sum, products));
        }
        let after = total + sum;
        let back = after - total;
        rest += (total - (after - back)) + (sum - back);
        total = after;
    }
    total + rest
}

/// The product kernel, for the runner of this process.
///
/// # Safety
/// Its operands are as the kernel's head names them.
pub(super) unsafe fn emulate(args: Args) {
    let [s, n, k] = [0, 1, 2].map(|i| args.n[i] as usize);
    // SAFETY: what the caller promises.
    let (terms, w, y) = unsafe {
        (
            std::slice::from_raw_parts(args.p[0] as *const u16, 3 * s * k),
            std::slice::from_raw_parts(args.p[1] as *const u16, n * k),
            std::slice::from_raw_parts_mut(args.p[2] as *mut f32, s * n),
        )
    };
    for (row, y) in y.chunks_mut(n).enumerate() {
        let x = [0, 1, 2].map(|term| &terms[(term * s + row) * k..][..k]);
        y.iter_mut().zip(w.chunks(k)).for_each(|(y, w)| *y = output(DECLARED, x, w));
    }
}

/// Numbers of no pattern.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// In -1..1, all 24 bits of it.
    fn value(&mut self) -> f32 {
        let bits = self.bits();
        (((bits >> 40) as f32) + 1.0) / 16_777_216.0 * if bits & 1 == 0 { 1.0 } else { -1.0 }
    }

    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    fn exact(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| wide(narrow(self.value()))).collect()
    }
}

/// Rows `[n,k]` as panels.
fn panels(w: &[f32], k: usize) -> Vec<f32> {
    let n = w.len() / k;
    let mut out = vec![0.0; n.div_ceil(16) * k * 16];
    for (i, v) in w.iter().enumerate() {
        let (row, at) = (i / k, i % k);
        out[(row / 16 * k + at) * 16 + row % 16] = *v;
    }
    out
}

/// Both tiers on this processor; none, and a word on it, without a C++ compiler.
fn desks() -> Option<[Desk<Host>; 2]> {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else {
        println!("SKIPPED: no g++: the exact-split tier's kernels were not run");
        return None;
    };
    let again = Host::again(folder.path());
    Some([Desk::new(host), Desk::new(again).exact_split("sm_90a", "image")])
}

fn bytes(found: &Found) -> &[u8] {
    let Found::U8(bytes) = found else { panic!("{found:?}") };
    bytes
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

#[test]
fn a_value_is_the_sum_of_its_terms_or_its_row_is_marked() {
    let Some([desk, _]) = desks() else { return };
    let mut random = Random(1);
    let k = 8;
    let mut x = random.values(6 * k);
    // Row 1: the third term would be subnormal. 2: NaN. 3: infinite. 4: its first term would be infinite. 5: all of that is well.
    let odd = [
        (1, f32::from_bits(0x0a00_0001)),
        (2, f32::NAN),
        (3, f32::INFINITY),
        (4, f32::MAX),
        (5, f32::from_bits(0x7f00_ffff)),
        (5, -0.0),
        (5, f32::from_bits(0x0c80_0001)),
        (5, f32::MIN_POSITIVE),
    ];
    odd.iter().enumerate().for_each(|(i, (row, v))| x[row * k + i] = *v);
    let pieces = [Piece::In(Values::F32(&x)), Piece::U8(6 * x.len()), Piece::U32(6), Piece::U32(6)];
    let steps = [
        ("golden_split_clear", 6, vec![2, 3], vec![6]),
        ("golden_split_terms", x.len() / 2, vec![0, 1, 2], vec![6, k]),
    ];
    let steps = steps.map(|(kernel, threads, p, n)| Step { kernel, threads, p, n, f: Vec::new() });
    // SAFETY: the pieces have the sizes that the kernels' heads name.
    let found = unsafe { desk.run(&pieces, &steps) }.unwrap();
    let terms = words(bytes(&found[0]));
    assert_eq!(found[1], Found::U32(vec![0, 1, 1, 1, 1, 0]));
    for (i, v) in x.iter().enumerate().filter(|(i, _)| [0, 5].contains(&(i / k))) {
        let parts = [0, 1, 2].map(|term| terms[term * x.len() + i]);
        let sum: f64 = parts.iter().map(|bits| f64::from(wide(*bits))).sum();
        assert_eq!(sum, f64::from(*v), "{v}");
        let first = narrow(*v);
        let second = narrow(v - wide(first));
        assert_eq!(parts, [first, second, narrow(v - wide(first) - wide(second))], "{v}");
    }
}

#[test]
fn a_weight_is_narrowed_and_its_inexact_values_are_counted() {
    let Some([desk, _]) = desks() else { return };
    // Neither whole panels nor whole chunks.
    let (n, k) = (37, 200);
    let mut w = Random(2).exact(n * k);
    let exact = w.clone();
    // Row 5: bits too many, a subnormal, a NaN, an infinity. Row 36: one bit. Zeros of either sign are exact.
    for (i, v) in [1.0 + f32::EPSILON, 1e-39, f32::NAN, f32::INFINITY, 0.0, -0.0].into_iter().enumerate() {
        w[5 * k + 63 + i] = v;
    }
    w[36 * k + 199] = 1.0 + 1.0 / 256.0;
    let panels = panels(&w, k);
    let chunks = k.div_ceil(STEP);
    let pieces = [Piece::In(Values::F32(&panels)), Piece::U8(2 * n * k), Piece::U8(n * chunks), Piece::U32(n)];
    let step = |kernel, threads, p: &[usize], n: &[usize]| Step {
        kernel,
        threads,
        p: p.to_vec(),
        n: n.to_vec(),
        f: Vec::new(),
    };
    let steps = [
        step("golden_split_narrow", n.div_ceil(16) * 16 * chunks, &[0, 1, 2], &[n, k]),
        step("golden_split_count", n, &[2, 3], &[n, chunks]),
    ];
    // SAFETY: the pieces have the sizes that the kernels' heads name.
    let found = unsafe { desk.run(&pieces, &steps) }.unwrap();
    let rows = words(bytes(&found[0]));
    for (i, v) in exact.iter().enumerate().filter(|(i, _)| ![5, 36].contains(&(i / k))) {
        assert_eq!(wide(rows[i]).to_bits(), v.to_bits(), "{i}");
    }
    let mut counts = vec![0; n];
    (counts[5], counts[36]) = (4, 1);
    assert_eq!(found[2], Found::U32(counts));
    assert_eq!(bytes(&found[1])[5 * chunks..][..chunks], [1, 3, 0, 0], "the chunk that a value stands in");
}

/// Sum of products and of their sizes, in f64 (32 bits a product: exact enough for any K here).
fn exactly(x: &[f32], w: &[f32]) -> (f64, f64) {
    let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
    products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
}

#[test]
fn what_cannot_be_split_has_goldens_bits_and_is_counted() {
    let Some([bits, split]) = desks() else { return };
    let mut random = Random(3);
    let (s, n, k) = (5, 19, 72);
    let (mut x, w) = (random.values(s * k), random.exact(n * k));
    x[k + 3] = 1e-38;
    x[2 * k] = f32::NAN;
    // Each product is a number, their sum in any order is none: golden says so, and it stands.
    x[3 * k..4 * k].fill(f32::MAX / 64.0);
    let same = |x: &[f32], w: &[f32], k: usize, rows: &[usize]| {
        let n = w.len() / k;
        let (a, b) =
            (bits.product(x, &panels(w, k), (n, k)).unwrap(), split.product(x, &panels(w, k), (n, k)).unwrap());
        for row in rows {
            for i in row * n..(row + 1) * n {
                assert!(a[i].to_bits() == b[i].to_bits(), "row {row}: {} {}", a[i], b[i]);
            }
        }
        (a, b)
    };
    let positive: Vec<f32> = w.iter().map(|v| v.abs().max(0.25) * 4.0).collect();
    let (a, b) = same(&x, &positive, k, &[1, 2, 3]);
    assert!(a[3 * n..4 * n].iter().all(|v| v.is_infinite()) && a[2 * n].is_nan());
    assert!((0..n).any(|i| a[i].to_bits() != b[i].to_bits()), "the other rows are summed in another order");
    let one = Taken { split: 1, rows: 5, rows_redone: 3, weights: [1, 0, 0], ..Taken::default() };
    assert_eq!(split.taken(), Some(one));
    // One value that isn't exact, K of another size: all of it.
    let mut lossy = w.clone();
    lossy[n * k - 1] = 0.1;
    same(&x, &lossy, k, &[0, 1, 3, 4]);
    same(&x[..70], &w[..70], 70, &[0]);
    let all = Taken { inexact: 1, sizes: 1, weights: [2, 1, 1], ..one };
    assert_eq!(split.taken(), Some(all));
    assert_eq!(bits.taken(), None);
    let said = all.describe();
    assert!(
        said.contains("1 products of 5 rows") && said.contains("3 rows of them, 1 products whose weight"),
        "{said}"
    );
    assert!(said.contains("1 of 2 weights are exact"), "{said}");
}

#[test]
fn an_output_depends_on_its_own_row_alone() {
    let Some([_, split]) = desks() else { return };
    let mut random = Random(4);
    let (s, n, k) = (7, 33, 264);
    let (mut x, w) = (random.values(s * k), random.exact(n * k));
    let alone = split.product(&x[k..2 * k], &panels(&w, k), (n, k)).unwrap();
    x[2 * k] = f32::INFINITY;
    let found = split.product(&x, &panels(&w, k), (n, k)).unwrap();
    assert_eq!(found[n..2 * n], alone);
    let few = split.product(&x, &panels(&w[..5 * k], k), (5, k)).unwrap();
    assert_eq!(few[5..10], alone[..5]);
}

#[test]
fn the_bound_is_what_its_derivation_gives() {
    // By hand: four steps a term, each 17 of 2^-25 and one of 2^-23, so 84 x 2^-25 and what the lower terms add to it.
    let steps = 4.0 * 21.0 * 2f64.powi(-25);
    let terms = (1.0 + 2f64.powi(-7) + 2f64.powi(-17)) + (2f64.powi(-8) + 2f64.powi(-17)) + 2f64.powi(-17);
    assert!((bound(DECLARED, 64) / (steps * terms + 2f64.powi(-24) * 1.018) - 1.0).abs() < 1e-3);
    assert!(stated("sm_90a") > 2.5e-6 && stated("sm_90a") < 2.7e-6, "{:e}", stated("sm_90a"));
    assert_eq!(stated("sm_90a"), bound(DECLARED, LONGEST));
    // Golden's own chain of 128 fused steps, each rounded to nearest, allows three times as much.
    assert!(3.0 * bound(DECLARED, LONGEST) < 1.05 * 128.0 * 2f64.powi(-24));
    assert!(bound(Model { kept: 24, ..DECLARED }, 64) > 1.5 * bound(DECLARED, 64));
    let (known, unknown) =
        (split_standing("a GPU", "sm_90a", &Taken::default()), split_standing("b", "sm_120a", &Taken::default()));
    assert!(known.starts_with("golden: exact-split tier on a GPU: products within 2.60e-6 of"), "{known}");
    assert!(known.contains("were probed") && unknown.contains("declared, not probed on this chip"), "{unknown}");
    assert!(unknown.contains("never measured on sm_120a"), "{unknown}");
}

/// Worst error of outputs in parts of the bound, on operands that are hard in one way each.
fn hardest(model: Model) -> f64 {
    let mut random = Random(5);
    let mut worst: f64 = 0.0;
    for k in [8, 64, 72, 1000, 4096, 16_384] {
        for kind in 0..5 {
            let (mut x, mut w) = (random.values(k), random.exact(k));
            for i in 0..k {
                match kind {
                    // One sign: what is truncated adds up.
                    0 => (x[i], w[i]) = (x[i].abs(), w[i].abs()),
                    // Nearly all of it in the first 16 of every 64: the later steps lose as much as the first.
                    1 => (x[i], w[i]) = (if i % 64 < 16 { 1.999_999_9 } else { 1e-6 * x[i].abs() }, 1.0),
                    // All but the last bits cancels.
                    2 if i % 2 == 1 => (x[i], w[i]) = (-x[i - 1] * (1.0 - f32::EPSILON), w[i - 1]),
                    // Sizes apart by up to 2^40.
                    3 => x[i] *= 2f32.powi((random.bits() % 40) as i32 - 20),
                    // All but the largest lie just under the last bit that is kept: nothing of them is left.
                    4 => (x[i], w[i]) = (if i % 64 == 0 { 1.0 } else { 2f32.powi(-(model.kept as i32)) * 0.99 }, 1.0),
                    _ => {}
                }
            }
            let mut rest = x.clone();
            let terms: [Vec<u16>; 3] = [0; 3].map(|_| {
                let term: Vec<u16> = rest.iter().map(|v| narrow(*v)).collect();
                rest.iter_mut().zip(&term).for_each(|(v, term)| *v -= wide(*term));
                term
            });
            assert!(rest.iter().all(|v| *v == 0.0));
            let bits: Vec<u16> = w.iter().map(|v| narrow(*v)).collect();
            let y = output(model, terms.each_ref().map(Vec::as_slice), &bits);
            let (sum, size) = exactly(&x, &w);
            let most = bound(DECLARED, k) * size + least(k);
            worst = worst.max((f64::from(y) - sum).abs() / most);
        }
    }
    worst
}

#[test]
fn an_emulated_tensor_core_keeps_the_bound_on_hard_operands() {
    let worst = hardest(DECLARED);
    assert!(worst < 1.0, "{worst}");
    // The bound is not far over what the hardest of them cost, and an accumulator that keeps fewer bits breaks it.
    assert!(worst > 0.6, "{worst}: the operands are not hard");
    assert!(hardest(Model { kept: 22, ..DECLARED }) > 1.0);
}

fn model() -> (Arc<Checkpoint>, Vec<u32>) {
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", new_model(Geometry::Mini, 3)).unwrap());
    let vocab = checkpoint.config().vocab_size as u32;
    (checkpoint, (0..16).map(|i| (i * 167 + i * i * 31) % vocab).collect())
}

#[test]
fn a_whole_run_on_the_tier_is_near_and_says_what_it_is() {
    let Some([bits, split]) = desks() else { return };
    let (checkpoint, ids) = model();
    let [bits, split]: [Arc<Desk<Host>>; 2] = [Arc::new(bits), Arc::new(split)];
    let backends: [Arc<dyn Backend>; 2] = [bits.clone(), split.clone()];
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids.clone())] };
    let path = |backend: &Arc<dyn Backend>| {
        let golden = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 1).unwrap();
        golden.computed_by(Some(backend.clone()))
    };
    // A cache key of its own, a name that says so, a floor that is stated.
    let [a, b] = backends.each_ref().map(path);
    assert_ne!(a.identity(), b.identity());
    assert_eq!((a.floor(), b.floor()), (0.0, stated("sm_90a")));
    assert_eq!(b.name(), "golden on this processor, thread by thread, exact-split tier");

    let found = tiers(&checkpoint, &ids, None, &backends[1], 2).unwrap();
    let taken = split.taken().unwrap();
    assert!(taken.split > 0 && taken.inexact > 0, "{taken:?}: both kinds of weights are in the model");
    assert!(found.taps.iter().any(|it| it.tiers > 0.0), "some bits differ");
    for it in &found.taps {
        assert!(it.tiers < 1e-4 && it.split < 1e-4 && it.values > 0, "{it:?}");
    }
    assert!(found.kl[1] < 1e-6 && found.flips[0] == 16, "{found:?}");
    // What comes before the first product of the first layer has golden's bits, mHC's float32 product among it.
    let next: Vec<u32> = (0..16).collect();
    let [a, b] = [&a, &b].map(|path| run(path, &next).unwrap().taps);
    let same = |tap| a[&(Site::layer(0, tap), 0)].data == b[&(Site::layer(0, tap), 0)].data;
    assert!(same(Tap::HcAttnPre) && same(Tap::AttnIn) && !same(Tap::AttnQr));
}

#[test]
fn all_ranks_run_on_the_tier_and_count_together() {
    let folder = tempfile::tempdir().unwrap();
    let Some(first) = Host::compile(folder.path(), "off") else { return };
    let second = Host::again(folder.path());
    let bus = Arc::new(Bus::default());
    let desk = Desk::spread(first, vec![second], bus).exact_split("sm_120a", "image");
    let (x, w) = (Random(6).values(16), Random(7).exact(48));
    let of = |image: &str| Desk::new(Host::again(folder.path())).exact_split("sm_90a", image).identity();
    assert_ne!(of("an image"), of("another"));
    let product = |desk: &Desk<Host>| -> Result<Vec<f32>> { desk.product(&x, &panels(&w, 16), (3, 16)) };
    assert_eq!(product(&desk).unwrap(), product(&desk.others[0]).unwrap());
    assert_eq!(desk.taken().map(|taken| taken.split), Some(2));
    assert!(desk.identity().contains("2 ranks, a bus, exact-split image within"), "{}", desk.identity());
}

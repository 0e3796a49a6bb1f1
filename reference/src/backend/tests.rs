//! What becomes of a path whose backend fails, and what a backend is asked for the routed experts.

use std::sync::atomic::{AtomicUsize, Ordering};

use karat_model::new::{Geometry, new_model};
use karat_model::{Checkpoint, ErrorKind};
use karat_seam::{Lane, NoTaps, Path, Requests, Sequence};

use super::*;
use crate::linalg::{Isa, Packed, matmul, zip_map};
use crate::ops::Ctx;
use crate::ops::experts::{ExpertWeights, Matrices, Routed, expert_act, expert_sum, routed};
use crate::ops::swiglu::Swiglu;
use crate::{Golden, Mode};

/// Refuses every op but whole experts.
#[derive(Debug, Default)]
struct Full(AtomicUsize, Arc<AtomicUsize>);

impl Full {
    fn no<R>(&self) -> Result<R> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::input("the memory is full"))
    }
}

impl Backend for Full {
    fn name(&self) -> String {
        "a full device".to_string()
    }
    fn identity(&self) -> String {
        "full".to_string()
    }
    fn linear(&self, _: &[f32], _: Matrix<'_>) -> Result<Vec<f32>> {
        self.no()
    }
    fn inverse_rms(&self, _: &[f32], _: usize, _: f64) -> Result<Vec<f32>> {
        self.no()
    }
    fn rms_norm(&self, _: &[f32], _: usize, _: Option<&[f32]>, _: f64) -> Result<Vec<f32>> {
        self.no()
    }
    fn rotate(&self, _: &[f32], _: usize, _: &[f32], _: usize, _: bool) -> Result<Vec<f32>> {
        self.no()
    }
    fn scale(&self, _: &[f32], _: f32) -> Result<Vec<f32>> {
        self.no()
    }
    fn coefficients(&self, _: &[f32], _: &[f32], _: &[f32], _: &[f32], _: Sinkhorn) -> Result<Mixing> {
        self.no()
    }
    fn head_weights(&self, _: &[f32], _: &[f32], _: &[f32], _: f32, _: f32) -> Result<Vec<f32>> {
        self.no()
    }
    fn collapse(&self, _: &[f32], _: &[f32], _: usize) -> Result<Vec<f32>> {
        self.no()
    }
    fn combine(&self, _: &[f32], _: &[f32], _: &[f32], _: &[f32], _: usize) -> Result<Vec<f32>> {
        self.no()
    }
    fn pool(&self, _: Windows<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        self.no()
    }
    fn index_scores(&self, _: Scoring<'_>) -> Result<Vec<f32>> {
        self.no()
    }
    fn select(&self, _: Choosing<'_>) -> Result<Vec<u8>> {
        self.no()
    }
    fn attend(&self, _: Attention<'_>) -> Result<(Vec<f32>, Vec<f32>)> {
        self.no()
    }
    fn choose(&self, _: &[f32], _: &[f32], _: usize) -> Result<Vec<u32>> {
        self.no()
    }
    fn route_weights(&self, _: &[f32], _: usize, _: &[u32], _: usize, _: f64) -> Result<Vec<f32>> {
        self.no()
    }
    fn swiglu(&self, _: &[f32], _: &[f32], _: f32, _: Option<(&[f32], usize)>) -> Result<Vec<f32>> {
        self.no()
    }
    fn sum_experts(&self, _: &[f32], _: &[u32], _: usize, _: usize) -> Result<Vec<f32>> {
        self.no()
    }
    fn add(&self, _: &[f32], _: &[f32], _: usize, _: usize) -> Result<Vec<f32>> {
        self.no()
    }
    fn experts(&self, x: &[&[f32]], d: usize, sums: usize) -> Result<Option<Box<dyn Experts>>> {
        Ok(Some(Box::new(ByHand { x: x.concat(), d, sums: Mutex::new(vec![0.0; sums * d]), most: self.1.clone() })))
    }
}

/// The rows of a layer here, as a backend has them there.
#[derive(Debug)]
struct ByHand {
    x: Vec<f32>,
    d: usize,
    sums: Mutex<Vec<f64>>,
    /// Most rows of an op.
    most: Arc<AtomicUsize>,
}

/// The widest vectors that this machine has.
fn isa() -> Isa {
    *Isa::available().last().unwrap()
}

/// `x w^T` of panels.
fn product(x: &[f32], w: Matrix<'_>) -> Vec<f32> {
    let Source::Panels(panels) = w.source else { panic!("these weights are decoded") };
    let row = |i: usize, out: &mut [f32]| {
        out.iter_mut().enumerate().for_each(|(at, v)| *v = panels[(i / 16 * w.k + at) * 16 + i % 16]);
    };
    let x: Vec<&[f32]> = x.chunks_exact(w.k).collect();
    matmul(isa(), &x, &Packed::from_rows(w.n, w.k, row))
}

impl Experts for ByHand {
    fn act(&self, rows: &[u32], up: Up<'_>) -> Result<Vec<f32>> {
        assert!(rows.is_sorted() && rows.len() == up.wt.len());
        self.most.fetch_max(rows.len(), Ordering::Relaxed);
        let x: Vec<f32> = rows.iter().flat_map(|&r| &self.x[r as usize * self.d..][..self.d]).copied().collect();
        let (mut act, u) = (product(&x, up.weights[0]), product(&x, up.weights[1]));
        zip_map(isa(), &mut act, &u, Swiglu { limit: up.limit });
        for (act, wt) in act.chunks_exact_mut(up.weights[0].n).zip(up.wt) {
            act.iter_mut().for_each(|a| *a *= wt);
        }
        Ok(act)
    }
    fn down(&self, rows: &[u32], act: Act<'_>, w2: Matrix<'_>) -> Result<Vec<f32>> {
        let act = match act {
            Act::Given(act) => act.to_vec(),
            Act::Made(up) => self.act(rows, up)?,
        };
        let y = product(&act, w2);
        let mut sums = self.sums.lock().unwrap();
        for (&r, y) in rows.iter().zip(y.chunks_exact(self.d)) {
            sums[r as usize * self.d..][..self.d].iter_mut().zip(y).for_each(|(sum, v)| *sum += f64::from(*v));
        }
        Ok(Vec::new())
    }
    fn sums(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        Ok(self.sums.lock().unwrap()[rows.start * self.d..rows.end * self.d].iter().map(|v| *v as f32).collect())
    }
}

/// Eight experts of the mini model's sizes.
struct Weights(Vec<(Arc<[Packed<f32>; 2]>, Arc<[Packed<f32>; 1]>)>);

impl ExpertWeights<f32> for Weights {
    type Error = ();
    fn up(&self, e: usize) -> std::result::Result<Matrices<'_, f32, 2>, ()> {
        Ok(Matrices::Packed(self.0[e].0.clone()))
    }
    fn down(&self, e: usize) -> std::result::Result<Matrices<'_, f32, 1>, ()> {
        Ok(Matrices::Packed(self.0[e].1.clone()))
    }
}

#[test]
fn experts_on_a_backend_give_goldens_sums_in_pieces_of_rows() {
    let checkpoint = Checkpoint::from_memory("mini", new_model(Geometry::Mini, 1)).unwrap();
    let config = checkpoint.config();
    let (d, inner, k) = (config.hidden_size, config.moe_intermediate_size, config.num_experts_per_tok);
    let values = |n: usize, seed: usize| -> Vec<f32> {
        (0..n).map(|i| ((i * 2_654_435_761 + seed * 40_503) >> 7 & 0xffff) as f32 / 32768.0 - 1.0).collect()
    };
    let packed = |n: usize, k: usize, seed: usize| {
        let w = values(n * k, seed);
        Packed::from_rows(n, k, |i, out| out.copy_from_slice(&w[i * k..(i + 1) * k]))
    };
    let one = |e| {
        let up = [packed(inner, d, e), packed(inner, d, e + 20)];
        (Arc::new(up), Arc::new([packed(d, inner, e + 40)]))
    };
    let weights = Weights((0..config.n_routed_experts).map(one).collect());
    // Expert 2 is everybody's, in more than one piece; row 5 has it twice, and expert 7 is nobody's.
    let parts: Vec<(Vec<f32>, Vec<u32>, Vec<f32>)> = [8000, 500]
        .map(|s| {
            let chosen = |i: usize| if i % k == 1 || i == 5 * k { 2 } else { [0, 1, 3, 4, 5, 6][i * 7 / 3 % 6] };
            (values(s * d, s), (0..s * k).map(|i| chosen(i) as u32).collect(), values(s * k, s + 1))
        })
        .into();
    let parts: Vec<Routed<'_, f32>> = parts.iter().map(|(x, idx, wt)| Routed { x, idx, wt }).collect();
    let full = Arc::new(Full::default());
    let slot = Slot::new(full.clone());
    let here = Ctx::new(config, isa());
    let there = Ctx { backend: Some(&slot), ..here };
    let acts = expert_act(here, &parts, &weights).unwrap();
    let sums = routed(here, &parts, &weights).unwrap();
    assert!(expert_act(there, &parts, &weights).unwrap() == acts);
    assert!(routed(there, &parts, &weights).unwrap() == sums);
    assert!(expert_sum(there, &parts, &acts, &weights).unwrap() == sums);
    assert!(slot.check().is_ok() && full.0.load(Ordering::Relaxed) == 0, "no other op was asked");
    assert_eq!(full.1.load(Ordering::Relaxed), 8192);
}

#[test]
fn a_backend_that_fails_ends_the_run_with_its_message() {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 1)).unwrap());
    let requests = Requests { seqs: vec![Sequence::prompt("a", (0..20).collect::<Vec<u32>>())] };
    let full = Arc::new(Full::default());
    let here = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 1).unwrap();
    let identity = here.identity();
    let golden = here.computed_by(Some(full.clone()));
    assert_ne!(golden.identity(), identity);
    assert_eq!(golden.name(), "golden on a full device");
    let x = golden.embed(&mut NoTaps).unwrap();
    let mut see = NoTaps;
    let ran = golden.layer(0).unwrap().run(&mut [Lane::new(&x, &mut see)]).unwrap_err();
    let karat_seam::Error::Source(source) = ran else { panic!("{ran}") };
    let error = source.downcast_ref::<Error>().unwrap();
    assert_eq!((error.kind, error.what.as_str()), (ErrorKind::Input, "the memory is full"));
    assert_eq!(full.0.load(Ordering::Relaxed), 1, "after its first error a backend is asked nothing more");
    // The f64 mode stays here.
    let wide = Golden::new(checkpoint, requests, Mode::F64, 1).unwrap().computed_by(Some(full));
    let x = wide.embed(&mut NoTaps).unwrap();
    assert!(wide.layer(0).unwrap().run(&mut [Lane::new(&x, &mut NoTaps)]).is_ok());
}

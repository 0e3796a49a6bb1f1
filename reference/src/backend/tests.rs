//! What becomes of a path whose backend fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use karat_model::new::{Geometry, new_model};
use karat_model::{Checkpoint, ErrorKind};
use karat_seam::{Lane, NoTaps, Path, Requests, Sequence};

use super::*;
use crate::{Golden, Mode};

/// Refuses every op after the first.
#[derive(Debug, Default)]
struct Full(AtomicUsize);

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

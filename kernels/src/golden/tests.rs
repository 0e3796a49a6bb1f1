//! Golden's kernels against golden, on this processor: the sources that run on a GPU, compiled by the C++ compiler.
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

mod host;
mod sketch;
mod split;
mod stored;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use karat_model::{Checkpoint, Result};
use karat_reference::backend::Backend;

use super::run::{Desk, Gather};
use super::{Compared, compare};
use host::Host;

/// None, and a word on it, without a C++ compiler. `contract`: whether it may fuse what the sources do not.
fn backend(contract: &str) -> Option<Arc<dyn Backend>> {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), contract) else {
        println!("SKIPPED: no g++: golden's kernels were not compared with golden");
        return None;
    };
    Some(Arc::new(Desk::new(host)))
}

fn assert_equal(found: &Compared) {
    let apart: Vec<_> = found.rows.iter().filter(|row| row.differing > 0 || row.values == 0).collect();
    assert!(found.equal(), "{apart:#?}");
}

#[test]
fn the_kernels_have_goldens_bits_on_the_tiny_model() {
    let Some(backend) = backend("off") else { return };
    let files = karat_model::new::new_model(karat_model::new::Geometry::Mini, 3);
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", files).unwrap());
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..70).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    let found = compare(&checkpoint, &ids, 24, &backend, 2).unwrap();
    assert_equal(&found);
    for op in karat_seam::OpSpec::graph() {
        assert!(found.rows.iter().any(|row| row.what == "op" && row.name == op.name), "{} was not compared", op.name);
    }
}

/// Moves values between two ranks of this process, and counts them; `loses` the last one on the way.
#[derive(Debug, Default)]
struct Bus {
    moved: AtomicUsize,
    loses: AtomicBool,
}

impl Gather for Bus {
    fn name(&self) -> String {
        "a bus".to_string()
    }

    fn gather(&self, shares: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
        assert_eq!(shares.len(), 2);
        self.moved.fetch_add(shares.iter().map(Vec::len).min().unwrap_or(0), Ordering::Relaxed);
        let mut shares = shares.to_vec();
        if self.loses.load(Ordering::Relaxed) {
            shares[1].last_mut().into_iter().for_each(|v| *v += 1.0);
        }
        Ok(shares)
    }
}

#[test]
fn experts_spread_over_two_devices_have_goldens_bits() {
    let folder = tempfile::tempdir().unwrap();
    // Each keeps its own weights and may not be asked for the other's. One library: its kernels can't run twice at once.
    let Some(first) = Host::compile(folder.path(), "off") else { return };
    let second = Host::again(folder.path());
    let files = karat_model::new::new_model(karat_model::new::Geometry::Mini, 3);
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", files).unwrap());
    let ids: Vec<u32> = (0..40).collect();
    let bus = Arc::new(Bus::default());
    let backend: Arc<dyn Backend> = Arc::new(Desk::spread(first, vec![second], bus.clone()));
    assert_eq!((backend.ranks(), backend.name().starts_with("2 x this processor")), (2, true));
    assert_equal(&compare(&checkpoint, &ids, 24, &backend, 1).unwrap());
    assert!(bus.moved.load(Ordering::Relaxed) > 0, "both ranks had something to give");
    bus.loses.store(true, Ordering::Relaxed);
    let found = compare(&checkpoint, &ids, 24, &backend, 1).unwrap();
    assert!(found.rows.iter().any(|r| r.what == "op" && r.name == "ffn.experts" && r.differing > 0), "{found:#?}");
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn the_kernels_have_goldens_bits_on_the_default_model() {
    let Some(backend) = backend("off") else { return };
    let files = karat_model::new::new_model(karat_model::new::Geometry::Default, 1);
    let checkpoint = Arc::new(Checkpoint::from_memory("default", files).unwrap());
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..133).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    assert_equal(&compare(&checkpoint, &ids, 129, &backend, 2).unwrap());
}

#[test]
fn a_compiler_that_fuses_on_its_own_is_seen() {
    let Some(backend) = backend("fast") else { return };
    let files = karat_model::new::new_model(karat_model::new::Geometry::Mini, 3);
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", files).unwrap());
    let ids: Vec<u32> = (0..40).collect();
    let found = compare(&checkpoint, &ids, 24, &backend, 2).unwrap();
    let apart: Vec<&str> =
        found.rows.iter().filter(|r| r.what == "op" && r.differing > 0).map(|r| r.name.as_str()).collect();
    // Rotations and coefficients are products that golden rounds before it adds.
    assert!(apart.contains(&"attn.query_up") && apart.contains(&"hc_attn.pre"), "{apart:?}");
    // A product is one chain of fused steps whatever the compiler does.
    assert!(!apart.contains(&"attn.output_up"), "{apart:?}");
}

#[test]
fn what_a_run_says_of_its_bits_is_what_was_measured_on_that_chip() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../evidence/golden/nvidia-h200.json")).unwrap();
    let rows = file["compared"]["rows"].as_array().unwrap();
    let values: u64 = rows.iter().map(|row| row["values"].as_u64().unwrap()).sum();
    let known = super::standing("sm_90a");
    assert!(values > 50_000_000 && known.contains(&format!("{values} values")), "{known}");
    assert!(known.contains("NVIDIA H200") && known.contains(file["date"].as_str().unwrap()), "{known}");
    let unknown = super::standing("sm_120a");
    assert!(unknown.contains("sm_120a were never compared"), "{unknown}");
}

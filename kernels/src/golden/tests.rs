//! Golden's kernels against golden, on this processor: the sources that run on a GPU, compiled by the C++ compiler.

mod host;

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_reference::backend::Backend;

use super::run::Desk;
use super::{Compared, compare};
use host::Host;

/// None, and a word on it, without a C++ compiler.
fn backend() -> Option<Arc<dyn Backend>> {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path()) else {
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
    let Some(backend) = backend() else { return };
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

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn the_kernels_have_goldens_bits_on_the_default_model() {
    let Some(backend) = backend() else { return };
    let files = karat_model::new::new_model(karat_model::new::Geometry::Default, 1);
    let checkpoint = Arc::new(Checkpoint::from_memory("default", files).unwrap());
    let vocab = checkpoint.config().vocab_size;
    let ids: Vec<u32> = (0..300).map(|i| ((i * 167 + i * i * 31) % vocab) as u32).collect();
    assert_equal(&compare(&checkpoint, &ids, 270, &backend, 2).unwrap());
}

//! What can be told of NCCL without a GPU.

use super::*;

#[test]
fn a_machine_without_nccl_gets_one_message() {
    let folder = tempfile::tempdir().unwrap();
    // A system that has one answers with its version.
    match nccl_version(Some(folder.path())) {
        Ok(version) => assert!(version.starts_with("2."), "{version}"),
        Err(error) => {
            assert_eq!(error.what, "NCCL was not found: no libnccl.so.2");
            assert!(error.hint.is_some_and(|hint| hint.contains("KARAT_CUDA_ROOT")));
        }
    }
}

#[test]
fn a_library_of_that_name_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lib = folder.path().join("nvidia/nccl/lib");
    std::fs::create_dir_all(&lib).unwrap();
    std::fs::write(lib.join("libnccl.so.2"), b"not a library").unwrap();
    // It is passed over like one that is not there.
    let found = nccl_version(Some(folder.path()));
    assert!(found.is_err() || found.is_ok_and(|version| version.starts_with("2.")));
}

#[test]
fn bf16_values_travel_whole() {
    let values = [1.0_f32, -0.0, 3.140625, f32::INFINITY, 1e-38];
    let there: Vec<f32> = widen(&narrow(&values[..4]));
    assert!(there.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
}

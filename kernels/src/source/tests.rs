use super::*;
use crate::list::{Define, List};

#[test]
fn the_two_paths_include_nothing_of_each_other() {
    for (path, text) in sources().filter(|(path, _)| !path.contains(".cuh")) {
        let whole = expanded(path).unwrap();
        assert!(!whole.contains("#include"), "{path}");
        for line in text.lines().filter(|l| l.contains("#include")) {
            let own = if path.starts_with("optimized/") { "#include \"ptx.cuh\"" } else { "#include \"golden.cuh\"" };
            assert_eq!(line, own, "{path}");
        }
    }
    assert!(expanded("optimized/none.cu").unwrap_err().to_string().contains("none.cu"));
}

#[test]
fn no_kernel_adds_floats_atomically_or_needs_hopper_alone() {
    for (path, text) in sources() {
        for word in ["atomicAdd", " red.", "\"red.", "wgmma", "cp.async.bulk", "tcgen05", "setmaxnreg"] {
            assert!(!text.contains(word), "{path}: {word}");
        }
    }
}

#[test]
fn a_digest_moves_with_source_options_and_compiler() {
    let list = List::read().unwrap();
    let image = list.image("split-gemm-1").unwrap();
    let one = digest(image, "13.0.88").unwrap();
    assert_eq!(one.len(), 64);
    assert_ne!(one, digest(image, "13.1.0").unwrap());
    let mut other = image.clone();
    other.defines.insert("STAGES".to_string(), Define::Number(9));
    assert_ne!(one, digest(&other, "13.0.88").unwrap());
    assert_ne!(key(image, "sm_90a", "13.0.88").unwrap(), key(image, "sm_120a", "13.0.88").unwrap());
    assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

//! One line on the GPU, for `karat doctor`: never a panic, whatever the machine lacks.

/// What stands between this program and a GPU, or which GPU it would take.
pub fn probe() -> String {
    #[cfg(feature = "cuda")]
    {
        match crate::cuda::Device::open() {
            Ok(device) => device.describe(),
            Err(error) => error.what.clone(),
        }
    }
    #[cfg(not(feature = "cuda"))]
    {
        "not looked for: this build has no CUDA (feature `cuda`)".to_string()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_machine_without_a_gpu_gets_one_line() {
        let line = super::probe();
        assert!(!line.is_empty() && !line.contains('\n'), "{line}");
        if !cfg!(feature = "cuda") {
            assert!(line.contains("no CUDA"), "{line}");
        }
    }
}

//! What can be told of a machine without a GPU.

use super::*;

#[test]
fn an_old_driver_is_told_from_a_new_one() {
    let error = new_enough(12_080).unwrap_err().to_string();
    assert!(error.contains("CUDA 12.8") && error.contains("driver 580 or newer"), "{error}");
    assert!(new_enough(13_000).is_ok() && new_enough(13_010).is_ok());
}

#[test]
fn a_chip_without_images_is_refused_by_name() {
    let error = known("NVIDIA A100", (8, 0)).unwrap_err().to_string();
    assert!(error.contains("NVIDIA A100 is of compute capability 8.0"), "{error}");
    // 12.1 is another chip: sm_120a code runs on 12.0 alone.
    assert!(known("another", (12, 1)).is_err());
    assert!(known("NVIDIA H200", (9, 0)).is_ok() && known("NVIDIA RTX PRO 6000", (12, 0)).is_ok());
}

#[test]
fn a_machine_without_a_driver_gets_one_message() {
    // SAFETY: only tries to load a library by name.
    if unsafe { sys::is_culib_present() } {
        return;
    }
    let error = Device::open().unwrap_err();
    assert_eq!(error.what, "no NVIDIA driver: libcuda was not found");
}

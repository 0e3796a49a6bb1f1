use super::*;

/// A pack of two made-up images in a fresh folder.
fn packed() -> (tempfile::TempDir, List, Pack) {
    let list = List::read().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let made = ["sm_90a", "sm_120a"].map(|arch| {
        let bytes = arch.as_bytes().to_vec();
        (Item::new(list.image("split-gemm-1").unwrap(), arch, &list.compiler, &bytes, Vec::new()).unwrap(), bytes)
    });
    Pack::write(folder.path(), &list.compiler, made.to_vec()).unwrap();
    let pack = Pack::open(folder.path()).unwrap();
    (folder, list, pack)
}

#[test]
fn a_pack_gives_back_what_was_put_in() {
    let (_folder, list, pack) = packed();
    let (bytes, item) = pack.cubin(&list, "split-gemm-1", "sm_120a").unwrap();
    assert_eq!(bytes, b"sm_120a");
    assert_eq!(item.image, "split-gemm-1");
}

#[test]
fn what_is_missing_stale_or_damaged_is_told_apart() {
    let (folder, list, mut pack) = packed();
    let missing = pack.cubin(&list, "split-gemm-3", "sm_90a").unwrap_err().to_string();
    assert!(missing.contains("no kernel image split-gemm-3 for sm_90a"), "{missing}");
    let file = folder.path().join(pack.manifest.items[0].file());
    std::fs::write(&file, b"sm_90b").unwrap();
    let damaged = pack.cubin(&list, "split-gemm-1", "sm_90a").unwrap_err().to_string();
    assert!(damaged.contains("damaged"), "{damaged}");
    std::fs::remove_file(&file).unwrap();
    assert!(pack.cubin(&list, "split-gemm-1", "sm_90a").unwrap_err().to_string().contains("cannot be read"));
    pack.manifest.items[1].key = "0".repeat(64);
    let stale = pack.cubin(&list, "split-gemm-1", "sm_120a").unwrap_err().to_string();
    assert!(stale.contains("other sources"), "{stale}");
}

#[test]
fn a_folder_without_a_pack_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let none = Pack::open(folder.path()).unwrap_err().to_string();
    assert!(none.contains("no kernel pack is here") && none.contains("xtask kernels build"), "{none}");
    let path = folder.path().join(MANIFEST);
    std::fs::write(&path, "{").unwrap();
    assert!(Pack::open(folder.path()).unwrap_err().to_string().contains("no manifest"));
    std::fs::write(&path, r#"{"format": 2, "compiler": "1", "items": []}"#).unwrap();
    assert!(Pack::open(folder.path()).unwrap_err().to_string().contains("another format"));
}

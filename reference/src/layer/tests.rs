//! What a pass leaves of the checkpoint in memory.

use std::path::Path as FilePath;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::new::{Geometry, new_model};
use karat_seam::{Lane, NoTaps, Path, Requests, Sequence};

use crate::{Golden, Mode};

/// Bytes of a mapped file that are memory of this process.
fn resident(file: &FilePath) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines();
    let mut sum = 0;
    while let Some(line) = lines.next() {
        if line.ends_with(file.to_str().unwrap()) {
            let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
            sum += 1024 * rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
        }
    }
    sum
}

/// A seeded model on disk: what deletes it, its folder, the file of its weights and how long that is.
#[cfg(target_os = "linux")]
fn written() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf, usize) {
    let held = tempfile::tempdir().unwrap();
    let folder = held.path().canonicalize().unwrap();
    for (name, bytes) in new_model(Geometry::Default, 1) {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    let file = folder.join("model.safetensors");
    let size = std::fs::metadata(&file).unwrap().len() as usize;
    (held, folder, file, size)
}

#[test]
#[cfg(target_os = "linux")]
fn a_layers_pages_go_with_the_layer() {
    let (_held, folder, file, size) = written();
    let open = || {
        let requests = Requests { seqs: vec![Sequence::prompt("a", (0..40).collect::<Vec<u32>>())] };
        Golden::new(Arc::new(Checkpoint::open(&folder).unwrap()), requests, Mode::F32, 1).unwrap()
    };
    // Resident bytes after opening, the most of them after a layer ran, and at the end: layers dropped at once, or kept.
    let pass = |keep: bool| {
        let golden = open();
        let hashed = resident(&file);
        let mut x = golden.embed(&mut NoTaps).unwrap();
        let (mut kept, mut most) = (Vec::new(), 0);
        for l in 0..golden.blocks().layers {
            let layer = golden.layer(l).unwrap();
            let mut see = NoTaps;
            let mut lanes = [Lane::new(&x, &mut see)];
            layer.run(&mut lanes).unwrap();
            let [lane] = lanes;
            x = lane.out.unwrap().streams;
            most = most.max(resident(&file));
            kept.extend(Some(layer).filter(|_| keep));
        }
        let before = resident(&file);
        drop(kept);
        (hashed, most, before, resident(&file))
    };
    let (hashed, _, left, _) = pass(false);
    let (_, most, all, left_of_kept) = pass(true);
    // Most of the file is layers, and a pass reads most of a layer: were nothing given back, it would add up. (The weights of so
    // small a model are given back in vain when they are decoded: the system maps what lies around a page with it.)
    assert!(most > size / 8, "{most} of {size} bytes were read");
    assert!(all <= most);
    for (what, bytes) in [("after hashing", hashed), ("after the layers", left), ("after all at once", left_of_kept)] {
        assert!(bytes < size / 8, "{bytes} of {size} bytes are still here {what}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn bytes_that_are_done_with_are_given_back_and_stay_what_they_are() {
    let (_held, folder, file, size) = written();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let tensors: Vec<&[u8]> = checkpoint
        .inventory()
        .iter()
        .flat_map(|e| match checkpoint.linear(&e.name) {
            Ok(w) => vec![Some(w.data.bytes), w.scale.map(|s| s.bytes)],
            Err(_) => vec![Some(checkpoint.tensor(&e.name).unwrap().bytes)],
        })
        .flatten()
        .collect();
    let sum = || tensors.iter().flat_map(|bytes| bytes.iter()).map(|&b| u64::from(b)).sum::<u64>();
    let before = sum();
    assert!(resident(&file) > size / 2);
    tensors.iter().for_each(|bytes| checkpoint.done_with(bytes));
    assert!(resident(&file) < size / 8, "{} of {size} bytes are still here", resident(&file));
    // Bytes that are not of this file change nothing.
    checkpoint.done_with(&vec![0; 1 << 16]);
    assert_eq!(sum(), before);
}

//! Sketches where the rows lie, against those of a trace on this processor.

use std::path::Path;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::new::{Geometry, new_model};
use karat_reference::backend::Backend;
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, Later, NoTaps, Path as _, Requests, Sequence, Visitor};
use karat_trace::{RowSketch, SketchWriter, TapGlob};

use super::super::run::Desk;
use super::Bus;
use super::host::{Counted, Host};

/// One line a row.
fn lines(desk: &Desk<Host>, values: &[f32], rows: usize, ragged: bool) -> Box<dyn Later> {
    let place = desk.place(values).expect("the result of the last op lies there");
    desk.sketch(place, 0..values.len(), rows, ragged).unwrap().expect("and nothing was written over it")
}

/// Values of every kind, by a generator of its own: `kind` says what is strewn in.
fn values(n: usize, kind: usize) -> Vec<f32> {
    let mut state = (n * 31 + kind) as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let strewn: &[f32] = match kind {
        1 => &[-0.0, 0.0, f32::from_bits(1), -f32::from_bits(77)],
        2 => &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN],
        3 => &[3e30, -1e38, 1e-30],
        4 => &[f32::NAN, -0.0],
        _ => &[],
    };
    (0..n)
        .map(|_| {
            let v = (f64::from(next()) / f64::from(1u32 << 30) - 1.0) as f32;
            let pick = next() as usize % 5;
            match kind {
                5 => 1e-30 * v,
                6 => 0.0,
                _ => strewn.get(pick).copied().unwrap_or(v),
            }
        })
        .collect()
}

#[test]
fn rows_of_any_length_and_content_have_the_sketch_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    let desk = Desk::new(host);
    let mut waiting = Vec::new();
    for n in [1, 2, 15, 16, 17, 22, 23, 100, 1023, 1024, 1025, 2047, 2048, 3000, 5000, 8191, 8192] {
        for kind in 0..7 {
            let x: Vec<f32> = (0..3).flat_map(|row| values(n, kind + 7 * row)).collect();
            let y = desk.scale(&x, 1.0).unwrap();
            waiting.push((lines(&desk, &y, 3, false), y, n, false));
        }
        // The ends of index scores: what is not visible, which grows with the piece.
        let mut x: Vec<f32> = (0..3).flat_map(|row| values(n, 7 * row)).collect();
        for (row, hidden) in x.chunks_exact_mut(n).zip([0, n / 3, n]) {
            row[n - hidden..].fill(f32::NEG_INFINITY);
        }
        let y = desk.scale(&x, 1.0).unwrap();
        waiting.push((lines(&desk, &y, 3, true), y, n, true));
    }
    for (later, y, n, ragged) in waiting {
        for (line, row) in later.lines().unwrap().iter().zip(y.chunks_exact(n)) {
            let end = row.iter().rposition(|v| *v != f32::NEG_INFINITY).map_or(0, |last| last + 1);
            let row = if ragged { &row[..end] } else { row };
            let (here, there) = (RowSketch::of(row), RowSketch::from_line(line));
            let bits = |it: &RowSketch| {
                let sums = it.projection.map(f32::to_bits);
                (it.norm.to_bits(), it.absmax.to_bits(), sums, it.nonfinite, it.hash)
            };
            assert_eq!(bits(&here), bits(&there), "{n} values: {row:?}");
        }
    }
}

#[test]
fn what_was_written_over_has_no_place_and_what_is_wanted_is_sketched_before() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    // Kernels at once, and as late as they may be: rows that are still to be read are not written over.
    for host in [host, Host::again(folder.path()).late()] {
        let counted = host.counted.clone();
        let times = || counted.lock().unwrap().launches.get("golden_sketch_rows").copied().unwrap_or(0);
        let desk = Desk::new(host);
        let x = values(40_000, 0);
        let first = desk.scale(&x, 0.5).unwrap();
        let place = desk.place(&first).unwrap();
        let wanted = lines(&desk, &first, 4, false);
        assert!(desk.place(&x).is_none(), "an operand is no result");
        assert_eq!(times(), 0, "nobody waits for it yet");
        // Half of the room is written behind it with the second of these, all of it with the fourth: 2 x 8 MiB each time.
        let much = vec![1.0f32; 2 << 20];
        for begun in [0, 1, 1, 1, 1] {
            desk.scale(&much, 1.0).unwrap();
            assert_eq!(times(), begun);
        }
        assert!(desk.sketch(place, 0..first.len(), 4, false).unwrap().is_none(), "it lies there no more");
        // Three more end a quarter behind the start of the room.
        (0..3).for_each(|_| assert!(desk.scale(&much, 1.0).is_ok()));
        // Before operands of one op that are written over them at once, and before another room.
        let same = |wanted: Box<dyn Later>, values: &[f32], width: usize| {
            for (line, row) in wanted.lines().unwrap().iter().zip(values.chunks_exact(width)) {
                assert_eq!(RowSketch::from_line(line), RowSketch::of(row));
            }
        };
        same(wanted, &first, 10_000);
        for mib in [31, 40] {
            let second = desk.scale(&x, 0.25).unwrap();
            let wanted = lines(&desk, &second, 8, false);
            desk.scale(&vec![7.0f32; mib << 18], 1.0).unwrap();
            same(wanted, &second, 5000);
        }
        // Lines of one copy: rows of three launches, the last of them when somebody asks.
        let before = (times(), counted.lock().unwrap().reads.0);
        let mut all = Vec::new();
        for _ in 0..3 {
            let y = desk.scale(&x, 2.0).unwrap();
            all.push((lines(&desk, &y, 8, false), y));
            desk.scale(&vec![7.0f32; 10 << 20], 1.0).unwrap();
        }
        let ops = 6;
        all.into_iter().for_each(|(wanted, y)| same(wanted, &y, 5000));
        assert_eq!((times() - before.0, counted.lock().unwrap().reads.0 - before.1), (3, ops + 1));
    }
}

/// A pass over everything but the draft blocks.
fn pass(path: &Golden, see: &mut dyn Visitor) {
    let mut x = path.embed(see).unwrap();
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut *see)];
        path.layer(l).unwrap().run(&mut lanes).unwrap();
        let [lane] = lanes;
        x = lane.out.unwrap().streams;
    }
    path.head(&mut [Lane::new(&x, &mut *see)]).unwrap();
}

fn sketched(path: &Golden, requests: &Requests, to: &Path) {
    let mut writer = SketchWriter::create(to, requests, TapGlob::all()).unwrap();
    pass(path, &mut writer);
    writer.finish().unwrap();
}

fn same_files(a: &Path, b: &Path) {
    for file in std::fs::read_dir(a).unwrap() {
        let name = file.unwrap().file_name();
        let (a, b) = (std::fs::read(a.join(&name)).unwrap(), std::fs::read(b.join(&name)).unwrap());
        assert!(a == b, "{} differs", name.display());
    }
}

#[test]
fn a_run_has_the_same_sketches_and_without_them_nothing_is_launched_or_copied() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    let counted = host.counted.clone();
    let took = |run: &dyn Fn()| -> Counted {
        *counted.lock().unwrap() = Counted::default();
        run();
        counted.lock().unwrap().clone()
    };
    let desk = Arc::new(Desk::new(host));
    let backend: Arc<dyn Backend> = desk.clone();
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", new_model(Geometry::Mini, 3)).unwrap());
    let c = checkpoint.config().clone();
    let ids: Vec<u32> = (0..40).collect();
    let two = vec![Sequence::prompt("a", ids[..33].to_vec()), Sequence::prompt("b", ids.clone())];
    let requests = Requests { seqs: two };
    let here = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap();
    let there = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap().computed_by(Some(backend));
    let (a, b) = (folder.path().join("here"), folder.path().join("there"));
    sketched(&here, &requests, &a);

    let off = took(&|| pass(&there, &mut NoTaps));
    assert!(off.launches.keys().all(|kernel| !kernel.contains("sketch")), "{off:?}");
    let on = took(&|| sketched(&there, &requests, &b));
    assert_eq!(took(&|| pass(&there, &mut NoTaps)), off, "a run without is what it was");

    // The ops are launched as without, and an expert's activations are laid beside those of the others; then one small copy in for
    // three launches, and at most one copy out a block, of 84 bytes a row.
    let launches = |of: &Counted, kernel: &str| of.launches.get(kernel).copied().unwrap_or(0);
    let ops: usize = on.launches.iter().filter(|(kernel, _)| !kernel.contains("sketch")).map(|(_, n)| n).sum();
    assert_eq!(ops, off.launches.values().sum::<usize>());
    let times = launches(&on, "golden_sketch_rows");
    assert_eq!([launches(&on, "golden_sketch_lanes"), launches(&on, "golden_sketch_lengths")], [times; 2]);
    assert_eq!(launches(&on, "golden_sketch_table"), 1);
    assert_eq!(launches(&on, "golden_sketch_keep"), launches(&off, "golden_accumulate"));
    assert_eq!(on.writes.0 - off.writes.0, times);
    let blocks = usize::from(here.blocks().layers) + 1;
    assert!((1..=blocks).contains(&times), "{times}");
    assert!((1..=blocks).contains(&(on.reads.0 - off.reads.0)), "{on:?}");
    let rows = desk.room.lock().unwrap().waiting.done;
    assert_eq!(on.reads.1 - off.reads.1, 84 * usize::try_from(rows).unwrap());
    // One of them is that of each row's activations, which never come here.
    assert!(rows > 73 * c.layers.len() as u64, "{rows}");

    same_files(&a, &b);

    // Over two devices activations come here, as they do where somebody else looks at them; and kernels may run late.
    let two = Desk::spread(Host::again(folder.path()), vec![Host::again(folder.path())], Arc::new(Bus::default()));
    let backends: [(&str, Arc<dyn Backend>); 2] =
        [("two", Arc::new(two)), ("late", Arc::new(Desk::new(Host::again(folder.path()).late())))];
    for (name, backend) in backends {
        let path = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap();
        let c = folder.path().join(name);
        sketched(&path.computed_by(Some(backend)), &requests, &c);
        same_files(&a, &c);
    }
}

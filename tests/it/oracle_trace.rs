//! The oracle's taps go through karat-trace/1 and come back bit for bit; the split of a candidate that is the oracle
//! itself, one step off, is what was put in. Right values: the oracle's files, and the size of the change made here.

use std::sync::Arc;

use karat_diff::{Grid, Metrics, RowMetrics, Storage, measure, split};
use karat_model::Checkpoint;
use karat_seam::{Blocks, Data, Lane, NoTaps, Path as _, Recorder, Site, Tap};
use karat_tests::{OracleTaps, tiny_v4_files};
use karat_trace::{ModelId, SameModel, Trace, TracePath};

fn model() -> Checkpoint {
    Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap_or_else(|e| panic!("{e}"))
}

fn open(dir: &std::path::Path) -> Arc<Trace> {
    Arc::new(Trace::open(dir).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn every_tap_of_the_oracle_survives() {
    let dir = tempfile::tempdir().unwrap();
    let model = model();
    for (name, layers, least) in [("short", 5, 100), ("long", 5, 18)] {
        let taps = OracleTaps::new(name);
        let path = taps.write(&dir.path().join(name), ModelId::new(model.config_sha256(), model.weights_sha256()));
        let trace = open(&path);
        // A prompt shorter than a window has no entries: a tap without rows is not kept.
        let with_rows = taps.taps.iter().filter(|(_, tensor)| tensor.rows() > 0);
        assert_eq!(trace.held().count(), with_rows.clone().count());
        assert!(taps.taps.len() >= least, "{name}: {}", taps.taps.len());
        for (site, expected) in with_rows {
            assert_eq!(&trace.tensor(*site, 0, 0).unwrap(), expected, "{site}");
        }
        assert_eq!(trace.same_model(model.config_sha256(), model.weights_sha256()), SameModel::Same);
        assert!(trace.id_differences(&taps.requests()).is_empty());
        let candidate = TracePath::new(trace, Blocks { layers, mtp: 1 }, 4, 128).unwrap();
        assert_eq!(candidate.missing(), Vec::<String>::new());
        let mut see = Recorder::all();
        for l in 1..layers {
            let x = candidate.stream_in(l).unwrap().unwrap();
            let mut lanes = [Lane::new(&x, &mut see)];
            candidate.layer(l).unwrap().run(&mut lanes).unwrap();
            let out = lanes[0].out.take().unwrap();
            assert_eq!(out.streams.data, taps.taps[&Site::layer(l, Tap::Out)]);
        }
        assert_eq!(see.taps.keys().filter(|(site, _)| site.tap == Tap::Out).count(), usize::from(layers) - 1);
        let x = candidate.stream_in(layers).unwrap().unwrap();
        let mut nobody = NoTaps;
        let logits = candidate.head(&mut [Lane::new(&x, &mut nobody)]).unwrap();
        assert_eq!(logits[0], taps.taps[&"logits".parse().unwrap()]);
    }
}

#[test]
fn a_perturbed_layer_is_measured_as_what_was_put_in() {
    let taps = OracleTaps::new("short");
    let golden = taps.taps[&Site::layer(2, Tap::Out)].clone();
    let mut candidate = golden.clone();
    let Data::F32(v) = &mut candidate.data else { panic!("streams are f32") };
    // Row 4, stream 1 is 1 % too large.
    let start = (4 * 4 + 1) * 128;
    v[start..start + 128].iter_mut().for_each(|x| *x *= 1.01);
    let grid = Grid::of(&golden).equal_parts(4).unwrap();
    let m = measure("layers.2.out", &golden, &candidate, Storage::F32, &grid).unwrap();
    assert_eq!(RowMetrics::of(&m.rows).worst, Some(4));
    for stream in [0, 2, 3] {
        assert_eq!(m.part(stream).sums.dd, 0.0);
    }
    let one = Metrics::of(&m.part(1));
    let Data::F32(x) = &golden.data else { panic!("streams are f32") };
    let norm = |r: std::ops::Range<usize>| r.map(|i| f64::from(x[i]).powi(2)).sum::<f64>();
    let stream: f64 = (0..7).map(|row| norm((row * 4 + 1) * 128..(row * 4 + 2) * 128)).sum();
    let expected = 0.01 * (norm(start..start + 128) / stream).sqrt();
    assert!((one.rel_l2 / expected - 1.0).abs() < 1e-4, "{} {expected}", one.rel_l2);
    let s = split("layers.2.out", &golden, &golden, &candidate, &grid).unwrap();
    assert_eq!((s.whole.inherited(), s.part(1).injected()), (0.0, s.whole.total()));
}

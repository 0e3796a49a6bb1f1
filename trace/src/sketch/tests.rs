use karat_seam::{Block, Sequence, Tap};

use super::*;

/// Numbers of no pattern between -1 and 1.
fn noise(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn norm(row: &[f32]) -> f64 {
    row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn norm_and_largest_are_those_of_the_finite_values() {
    for n in [1, 15, 16, 17, 1000, 1024, 5003] {
        let mut row = noise(n as u32, n);
        let sketch = RowSketch::of(&row);
        assert!((f64::from(sketch.norm) / norm(&row) - 1.0).abs() < 1e-5, "{n}");
        assert_eq!(sketch.absmax, row.iter().fold(0.0f32, |m, v| m.max(v.abs())), "{n}");
        assert_eq!(sketch.nonfinite, 0);
        row[n / 2] = f32::NAN;
        row[n - 1] = f32::NEG_INFINITY;
        let bad = RowSketch::of(&row);
        let rest: Vec<f32> = row.iter().copied().filter(|v| v.is_finite()).collect();
        assert_eq!(bad.nonfinite as usize, n - rest.len());
        assert!((f64::from(bad.norm) - norm(&rest)).abs() <= 1e-5 * norm(&rest), "{n}");
        assert_ne!(bad.hash, sketch.hash);
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for n in [1, 16, 100, 1024, 3000] {
        let row = noise(n as u32 + 7, n);
        assert_eq!(RowSketch::of(&row), RowSketch::with_own_instructions(&row), "{n}");
    }
}

#[test]
fn a_hash_tells_one_bit_and_the_order_of_values() {
    let row = noise(5, 300);
    let own = RowSketch::of(&row).hash;
    assert_eq!(RowSketch::of(&row.clone()).hash, own);
    for i in 0..row.len() {
        let mut other = row.clone();
        other[i] = f32::from_bits(other[i].to_bits() ^ 1);
        assert_ne!(RowSketch::of(&other).hash, own, "value {i}");
    }
    for (i, j) in [(0, 1), (0, 16), (3, 35), (100, 299)] {
        let mut other = row.clone();
        other.swap(i, j);
        assert_ne!(RowSketch::of(&other).hash, own, "{i} and {j}");
    }
    // A row of zeros that is longer is another row.
    assert_ne!(RowSketch::of(&[0.0; 16]).hash, RowSketch::of(&[0.0; 32]).hash);
}

#[test]
fn the_sums_tell_how_far_two_runs_are_apart() {
    let (mut told, mut is) = (0.0, 0.0);
    for row in 0..200 {
        let x = noise(row, 2500);
        let d = noise(row + 1000, 2500);
        let y: Vec<f32> = x.iter().zip(&d).map(|(x, d)| x + 1e-2 * d).collect();
        let (a, b) = (RowSketch::of(&x), RowSketch::of(&y));
        let pairs = a.projection.iter().zip(b.projection);
        told += pairs.map(|(a, b)| f64::from(b - a).powi(2)).sum::<f64>();
        is += x.iter().zip(&y).map(|(x, y)| f64::from(y - x).powi(2)).sum::<f64>();
    }
    // A row's squared estimate is off by sqrt(2/16) of itself, 200 rows' sum by 2.5 %: four of those.
    assert!((told / is - 1.0).abs() < 0.1, "{}", told / is);
}

#[test]
fn a_sketch_is_written_and_read_as_any_safetensors_file() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("s");
    let requests = Requests { seqs: vec![Sequence::prompt("a", vec![1, 2, 3])] };
    let mut writer = SketchWriter::create(&target, &requests, TapGlob::all()).unwrap();
    let site = |tap| Site { block: Block::Layer(0), tap };
    let rows = [0, 1, 2].map(|pos| RowId::new(0, pos));
    let inf = f32::NEG_INFINITY;
    let mut out = Tensor::f32([3, 2], vec![3.0, 4.0, 0.0, -1.0, 0.5, 0.0]);
    writer.visit(site(Tap::AttnIn), &rows, out.as_mut()).unwrap();
    // A row is the same row in a wider piece.
    let mut narrow = Tensor::f32([1, 1], vec![2.0]);
    writer.visit(site(Tap::AttnIndexScore), &rows[..1], narrow.as_mut()).unwrap();
    let mut wide = Tensor::f32([2, 3], vec![2.0, inf, inf, 2.0, 5.0, inf]);
    writer.visit(site(Tap::AttnIndexScore), &rows[1..], wide.as_mut()).unwrap();
    let mut idx = Tensor::i64([3, 1], vec![4, 4, 5]);
    writer.visit(site(Tap::FfnIdx), &rows, idx.as_mut()).unwrap();
    writer.finish().unwrap();
    let dump = crate::dumps::open_any(&target).unwrap();
    assert_eq!(dump.tensor("a/layers.0.attn.in.norm").unwrap(), Tensor::f32([3], vec![5.0, 1.0, 0.5]));
    assert_eq!(dump.tensor("a/layers.0.attn.in.absmax").unwrap(), Tensor::f32([3], vec![4.0, 1.0, 0.5]));
    assert_eq!(dump.shape("a/layers.0.attn.in.projection"), Some(&[3, SUMS][..]));
    let hashes = |name: &str| match dump.tensor(name).unwrap().data {
        karat_seam::Data::I64(v) => v,
        other => panic!("{name}: {}", other.dtype()),
    };
    let scores = hashes("a/layers.0.attn.index_score.hash");
    assert!(scores[0] == scores[1] && scores[1] != scores[2], "{scores:?}");
    let experts = hashes("a/layers.0.ffn.idx.hash");
    assert!(experts[0] == experts[1] && experts[1] != experts[2], "{experts:?}");
    assert!(SketchWriter::create(&target, &requests, TapGlob::all()).is_err(), "nothing is written over");
}

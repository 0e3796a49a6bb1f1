use karat_seam::{Block, Later, Sequence, SketchLine, Tap, Tensor};

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

/// Rows of every kind: plain, of all lengths about a line and a block; with what is not finite, too large, too small.
fn rows_of_every_kind() -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> =
        [0, 1, 2, 15, 16, 17, 31, 33, 100, 1023, 1024, 1025, 3000, 4096].map(|n| noise(n as u32 + 7, n)).to_vec();
    let with = |n: usize, i: usize, value: f32| {
        let mut row = noise(n as u32, n);
        row[i] = value;
        row
    };
    rows.extend([
        with(64, 3, f32::NAN),
        with(64, 63, f32::INFINITY),
        with(2048, 1500, f32::NEG_INFINITY),
        with(48, 5, 3e38),
        with(1040, 1039, -1e20),
        vec![0.0; 40],
        vec![-0.0; 5],
        noise(9, 77).iter().map(|v| v * 1e-30).collect(),
        noise(8, 77).iter().map(|v| v * 1e-42).collect(),
    ]);
    rows
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let bits =
        |s: &RowSketch| (s.norm.to_bits(), s.absmax.to_bits(), s.projection.map(f32::to_bits), s.nonfinite, s.hash);
    for row in rows_of_every_kind() {
        assert_eq!(bits(&RowSketch::of(&row)), bits(&RowSketch::by(&row, row::block)), "{} values", row.len());
        // Also where the last word is not full.
        let bytes: Vec<u8> = row.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bytes = &bytes[..bytes.len().saturating_sub(3)];
        assert_eq!(row::hash(9, bytes), row::hash_by(9, bytes, row::pairs), "{} bytes", bytes.len());
    }
}

/// More rows than are taken side by side, and some that are not: of each width all kinds, of which a part is shown.
#[test]
fn many_rows_have_the_bits_of_the_plain_loops_by_every_instruction_set() {
    for width in [1, 23, 96, 100, 1024, 1030, 2048] {
        let mut values = noise(width as u32, 21 * width);
        for (row, value) in [(2, f32::NAN), (5, 1e25), (9, 1e-20), (18, f32::INFINITY)] {
            values[row * width..][..width].fill(value);
        }
        values[11 * width..12 * width].fill(0.0);
        values[16 * width + width / 2] = f32::NEG_INFINITY;
        let first = values.as_ptr() as usize;
        // Each row another part of itself, by its number.
        let shown = |row: &[f32]| -> usize {
            let number = (row.as_ptr() as usize - first) / 4 / width;
            width - (number * 7 % width).min(width - 1)
        };
        for way in simd_row::Way::all() {
            let (mut projection, mut norm, mut absmax) = ([[1.0; SUMS]; 21], [1.0; 21], [1.0; 21]);
            let (mut hash, mut nonfinite) = ([1; 21], [1; 21]);
            let to = columns::Rows {
                projection: &mut projection,
                norm: &mut norm,
                absmax: &mut absmax,
                hash: &mut hash,
                nonfinite: &mut nonfinite,
            };
            simd_row::fill_by(way, to, &values, width, |row| &row[..shown(row)]);
            for (i, row) in values.chunks_exact(width).enumerate() {
                let own = RowSketch::by(&row[..shown(row)], row::block);
                let at = format!("{way:?}, row {i} of {width}");
                assert_eq!(norm[i].to_bits(), own.norm.to_bits(), "{at}");
                assert_eq!(absmax[i].to_bits(), own.absmax.to_bits(), "{at}");
                assert_eq!(projection[i].map(f32::to_bits), own.projection.map(f32::to_bits), "{at}");
                assert_eq!((nonfinite[i], hash[i]), (i64::from(own.nonfinite), own.hash), "{at}");
            }
        }
    }
}

/// The next number of splitmix64 after `x`, as Vigna's C has it.
fn splitmix(x: u64) -> u128 {
    let m = 1u128 << 64;
    let mut z = (u128::from(x) + 0x9e3779b97f4a7c15) % m;
    z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) % m;
    z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) % m;
    z ^ (z >> 31)
}

#[test]
fn a_sketch_is_its_formula() {
    for row in rows_of_every_kind() {
        let n = row.len();
        let finite = |v: f32| if v.is_finite() { f64::from(v) } else { 0.0 };
        // Signed sums and norm in f64, by single values.
        let turn = |block: usize| if block > 0 && splitmix(!(block as u64)) >> 63 == 1 { -1.0 } else { 1.0 };
        let sign = |i: usize| if splitmix(i as u64 % 1024) >> 31 & 1 == 1 { -1.0 } else { 1.0 };
        let (mut sums, mut sizes) = ([0f64; SUMS], [0f64; SUMS]);
        for (i, v) in row.iter().enumerate() {
            sums[i % SUMS] += turn(i / 1024) * sign(i % 1024) * finite(*v);
            sizes[i % SUMS] += finite(*v).abs();
        }
        let sketch = RowSketch::of(&row);
        for i in 0..SUMS {
            // f32 sums of 64 values, half a last place each, and one rounding to f32.
            let off = (f64::from(sketch.projection[i]) - sums[i]).abs();
            assert!(off <= 65.0 * f64::from(f32::EPSILON) * sizes[i] + 1e-45, "{n} values, sum {i}: {off}");
        }
        let norm = row.iter().map(|v| finite(*v).powi(2)).sum::<f64>().sqrt();
        assert!((f64::from(sketch.norm) - norm).abs() <= 66.0 * f64::from(f32::EPSILON) * norm + 1e-45, "{n} values");
        assert_eq!(sketch.absmax, row.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| v.abs().max(m)), "{n} values");
        assert_eq!(sketch.nonfinite as usize, row.iter().filter(|v| !v.is_finite()).count(), "{n} values");
        // The hash, in numbers that don't wrap.
        let m = 1u128 << 64;
        let mut hash = n as u128;
        let words: Vec<u128> = row.iter().map(|v| u128::from(v.to_bits())).collect();
        let blocks = if n == 0 { vec![&words[..]] } else { words.chunks(1024).collect() };
        for block in blocks {
            let mut sum = 0u128;
            for pair in 0..block.len().next_multiple_of(16) / 2 {
                let keyed = |i: usize| (block.get(i).copied().unwrap_or(0) + (splitmix(!(i as u64)) >> 32)) % (1 << 32);
                let (x, y) = (keyed(2 * pair), keyed(2 * pair + 1));
                sum += (x + (1 << 32)) * (y + 1) - (1 << 32);
            }
            hash = splitmix((hash ^ (sum % m)) as u64);
        }
        assert_eq!(sketch.hash as u64, hash as u64, "{n} values");
        // Other values with these bits have this hash.
        let bytes: Vec<u8> = row.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(row::hash(n, &bytes), sketch.hash, "{n} values");
    }
}

#[test]
fn rows_are_the_same_on_any_number_of_threads() {
    let values = noise(3, 700 * 96);
    let columns = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (mut room, mut parts) = (Room::default(), Parts::new());
            for (count, values) in [(300, &values[..300 * 96]), (400, &values[300 * 96..])] {
                let (part, to) = room.next(count);
                columns::fill(to, values, 96, |row| row);
                parts.push(part);
            }
            room.columns(&parts).map(|(name, column)| (name, column.bytes()))
        })
    };
    let one = columns(1);
    assert!(one == columns(2) && one == columns(5));
    let own = values.chunks(96).flat_map(|row| RowSketch::of(row).hash.to_ne_bytes()).collect();
    assert_eq!(one[0], ("hash.v2", own));
}

#[test]
fn memory_is_used_again_when_nobody_holds_it() {
    let mut room = Room::default();
    room.next(3).1.hash.fill(7);
    // Fresh memory is zero, and so is what nobody had yet.
    assert_eq!(room.next(2).1.hash, [0; 2]);
    let held = room.replace();
    assert_eq!(room.next(3).1.hash, [0; 3]);
    drop(held);
    // More rows than a chunk has are not taken from one.
    assert_eq!(room.next(10_000).1.hash, vec![0; 10_000]);
    assert_eq!(room.next(3).1.hash, [7; 3]);
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
    // 3, 4 and zeros; -1 and zeros; 0.5 and zeros.
    let mut wide = [[0f32; 32]; 3];
    (wide[0][..2]).copy_from_slice(&[3.0, 4.0]);
    (wide[1][31], wide[2][16]) = (-1.0, 0.5);
    let mut out = Tensor::f32([3, 32], wide.concat());
    writer.visit(site(Tap::AttnIn), &rows, out.as_mut()).unwrap();
    // Rows that are no longer than their sketch stay what they are, whatever pieces they come in.
    for i in 0..3 {
        let mut short = Tensor::f32([1, 2, 1], vec![i as f32, f32::INFINITY]);
        writer.visit(site(Tap::HcAttnPre), &rows[i..=i], short.as_mut()).unwrap();
    }
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
    assert_eq!(dump.shape("a/layers.0.attn.in.projection.v2"), Some(&[3, SUMS][..]));
    let inf = f32::INFINITY;
    let values = Tensor::f32([3, 2], vec![0.0, inf, 1.0, inf, 2.0, inf]);
    assert_eq!(dump.tensor("a/layers.0.hc_attn.pre.values").unwrap(), values);
    let hashes = |name: &str| match dump.tensor(name).unwrap().data {
        karat_seam::Data::I64(v) => v,
        other => panic!("{name}: {}", other.dtype()),
    };
    let scores = hashes("a/layers.0.attn.index_score.hash.v2");
    assert!(scores[0] == scores[1] && scores[1] != scores[2], "{scores:?}");
    let experts = hashes("a/layers.0.ffn.idx.hash.v2");
    assert!(experts[0] == experts[1] && experts[1] != experts[2], "{experts:?}");
    assert!(SketchWriter::create(&target, &requests, TapGlob::all()).is_err(), "nothing is written over");
}

/// Rows that lie elsewhere, and what is said of them there.
struct Elsewhere(Vec<RowSketch>);

impl There for Elsewhere {
    fn sketch(&self, rows: usize, _: bool) -> karat_seam::Result<Option<Box<dyn Later>>> {
        assert!(self.0.is_empty() || rows == self.0.len());
        Ok(Some(Box::new(Self(self.0.clone()))))
    }
}

impl Later for Elsewhere {
    fn lines(self: Box<Self>) -> karat_seam::Result<Vec<SketchLine>> {
        if self.0.is_empty() {
            return Err(karat_seam::Error::source(Error::input("the device is gone")));
        }
        let line = |it: &RowSketch| {
            let mut line = [0; 21];
            (line[0], line[1], line[18]) = (it.norm.to_bits(), it.absmax.to_bits(), it.nonfinite);
            line[2..18].iter_mut().zip(it.projection).for_each(|(to, v)| *to = v.to_bits());
            (line[19], line[20]) = (it.hash as u32, (it.hash >> 32) as u32);
            line
        };
        Ok(self.0.iter().map(line).collect())
    }
}

#[test]
fn rows_from_elsewhere_and_rows_of_here_are_written_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let requests = Requests { seqs: vec![Sequence::prompt("a", (0..9).collect::<Vec<u32>>())] };
    let rows: Vec<RowId> = (0..9).map(|pos| RowId::new(0, pos)).collect();
    let site = |layer, tap| Site { block: Block::Layer(layer), tap };
    let run = |name: &str, elsewhere: bool| {
        let mut writer = SketchWriter::create(&dir.path().join(name), &requests, TapGlob::all()).unwrap();
        for layer in 0..2 {
            for (tap, width, seed) in [(Tap::AttnIn, 40, 1), (Tap::AttnOa, 50, 2), (Tap::AttnIndexScore, 3, 3)] {
                // Pieces of two rows in turns: there, here, there, ...
                for (i, rows) in rows.chunks(2).enumerate() {
                    let mut values = noise(seed + 10 * i as u32 + layer, rows.len() * width);
                    if tap.is_ragged() {
                        values[width - 1] = f32::NEG_INFINITY;
                    }
                    let mut tensor = Tensor::f32([rows.len(), width], values.clone());
                    let lines = values
                        .chunks_exact(width)
                        .map(|row| RowSketch::of(shown(site(0, tap), row, |v| *v == f32::NEG_INFINITY)));
                    let there = Elsewhere(lines.collect());
                    let at = site(u16::try_from(layer).unwrap(), tap);
                    if elsewhere && i % 2 == 0 && tap != Tap::AttnOa {
                        writer.visit_there(at, rows, tensor.as_mut(), &there).unwrap();
                    } else {
                        writer.visit(at, rows, tensor.as_mut()).unwrap();
                    }
                }
            }
        }
        writer.finish().unwrap()
    };
    let (here, there) = (run("here", false), run("there", true));
    for layer in ["layer-0000.safetensors", "layer-0001.safetensors"] {
        assert!(std::fs::read(here.join(layer)).unwrap() == std::fs::read(there.join(layer)).unwrap(), "{layer}");
    }
    // What fails elsewhere is told at the end at the latest.
    let mut writer = SketchWriter::create(&dir.path().join("lost"), &requests, TapGlob::all()).unwrap();
    let mut tensor = Tensor::f32([9, 40], noise(4, 360));
    writer.visit_there(site(0, Tap::AttnIn), &rows, tensor.as_mut(), &Elsewhere(Vec::new())).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("the device is gone"));
    assert!(!dir.path().join("lost").exists());
}

//! Stored weights and routed experts on a device that is this processor.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use karat_model::Checkpoint;
use karat_model::checkpoint::{Dtype, Encoding, RawTensor, Weight};
use karat_model::new::{Experts as Form, Geometry, new_model, new_model_with};
use karat_reference::backend::{Act, Backend, Kept, Matrix, Source, Up};
use karat_reference::decode::Decoder;
use karat_reference::{Golden, Mode, linalg};
use karat_seam::{Lane, NoTaps, Path, Requests, Sequence};

use super::super::Compared;
use super::super::formats::formats;
use super::super::ops::{floats, tiled, values as read, whole};
use super::super::run::{Desk, Piece};
use super::host::Host;
use super::{assert_equal, compare};

/// Values between -1 and 1, by a generator of its own.
fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Row-major values `[n,k]` as panels.
fn panels(n: usize, k: usize, w: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; n.div_ceil(16) * k * 16];
    for (i, row) in w.chunks_exact(k).enumerate() {
        row.iter().enumerate().for_each(|(at, v)| out[(i / 16 * k + at) * 16 + i % 16] = *v);
    }
    out
}

#[test]
fn every_code_of_every_form_is_decoded_to_goldens_bits() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    let mut found = Compared::default();
    formats(&Desk::new(host), &mut found).unwrap();
    assert_equal(&found);
    let names: Vec<&str> = found.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["bf16", "f32", "mxfp4", "nvfp4", "fp8, e8m0 scales", "fp8, bf16 scales", "fp8, f32 scales"]);
}

#[test]
fn a_tile_of_outputs_has_the_sums_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    let desk = Desk::new(host);
    for [s, n, k] in
        [[1, 1, 4], [5, 130, 40], [33, 65, 128], [4, 16, 132], [40, 200, 256], [7, 31, 260], [70, 96, 2052]]
    {
        // Some products vanish below zero: a chain may end at -0.0.
        let tiny = |v: f32| if v > 0.9 { -1e-30 } else { v };
        let x: Vec<f32> = values(s * k, 3).into_iter().map(tiny).collect();
        let w: Vec<f32> = values(n * k, k as u64).into_iter().map(tiny).collect();
        let mut want = vec![0.0; s * n];
        linalg::Weight::new(n, k, &w, 1).unwrap().multiply(&x, &mut want);
        let packed = panels(n, k, &w);
        let pieces = [floats(&x), floats(&packed), Piece::F32(s * n)];
        for step in [tiled([0, 1, 2], [s, n, k]), whole([0, 1, 2], [s, n, k])] {
            let kernel = step.kernel;
            // SAFETY: the pieces are as long as the sizes say.
            let found = unsafe { desk.run(&pieces, &[step]) }.unwrap().remove(0);
            assert_eq!(bits(&read(found).unwrap()), bits(&want), "{kernel}: {s} x {n} x {k}");
        }
    }
}

/// A weight in MXFP4 with the matrix that a backend takes.
struct Fp4 {
    codes: Vec<u8>,
    scales: Vec<u8>,
    n: usize,
    k: usize,
    kept: OnceLock<Kept>,
}

impl Fp4 {
    fn new(n: usize, k: usize, seed: usize) -> Self {
        let codes = (0..n * k / 2).map(|i| (i * 37 + i / 11 + seed) as u8).collect();
        let scales = (0..n * k / 32).map(|i| 120 + ((i * 5 + seed) % 8) as u8).collect();
        Self { codes, scales, n, k, kept: OnceLock::new() }
    }

    fn decoder(&self) -> Decoder<'_> {
        let raw =
            |name: &str, dtype, bytes, cols| RawTensor { name: name.into(), dtype, shape: vec![self.n, cols], bytes };
        let data = raw("w", Dtype::Packed4, &self.codes[..], self.k / 2);
        let scale = Some(raw("s", Dtype::F8E8M0, &self.scales[..], self.k / 32));
        let (name, rows, cols, encoding) = ("w".to_string(), self.n, self.k, Encoding::Mxfp4);
        Decoder::new(Weight { name, rows, cols, encoding, data, scale, global_scale: None, input_scale: None }).unwrap()
    }

    fn rows(&self) -> Vec<f32> {
        let (decoder, mut out) = (self.decoder(), vec![0.0; self.n * self.k]);
        out.chunks_exact_mut(self.k).enumerate().for_each(|(i, row)| decoder.row(i, row));
        out
    }

    fn take<R>(&self, use_it: impl FnOnce(Matrix<'_>) -> R) -> R {
        let decoder = self.decoder();
        use_it(Matrix::new(self.n, self.k, Source::Stored(decoder.form(0..self.n)), &self.kept))
    }
}

/// `x w^T` by golden's own loops.
fn product(x: &[f32], w: &Fp4) -> Vec<f32> {
    let mut out = vec![0.0; x.len() / w.k * w.n];
    linalg::Weight::new(w.n, w.k, &w.rows(), 1).unwrap().multiply(x, &mut out);
    out
}

#[test]
fn an_expert_passes_the_rows_that_lie_there_and_is_added_to_their_sums() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    let counted = host.counted.clone();
    let desk = Desk::new(host);
    let (d, inner, limit) = (96, 64, 0.7f32);
    let experts: Vec<[Fp4; 3]> =
        (0..3).map(|e| [Fp4::new(inner, d, e), Fp4::new(inner, d, e + 50), Fp4::new(d, inner, e + 90)]).collect();
    // Rows from two pieces; row 4 chose the second expert twice.
    let x = values(9 * d, 5);
    let users: [&[u32]; 3] = [&[0, 2, 3, 8], &[1, 4, 4, 6, 7], &[2, 4, 5]];
    let there = desk.experts(&[&x[..4 * d], &x[4 * d..]], d, 9).unwrap().unwrap();
    let before = counted.lock().unwrap().writes.1;
    let mut sums = vec![0f64; 9 * d];
    for ([w1, w3, w2], rows) in experts.iter().zip(users) {
        let wt = values(rows.len(), 70);
        let own: Vec<f32> = rows.iter().flat_map(|&r| &x[r as usize * d..][..d]).copied().collect();
        // Golden's swiglu is an op of its own, which other tests hold to its bits.
        let act = desk.swiglu(&product(&own, w1), &product(&own, w3), limit, Some((&wt, inner))).unwrap();
        let (given, found) = w1.take(|w1| {
            w3.take(|w3| {
                let up = Up { weights: [w1, w3], wt: &wt, limit, kept: &[] };
                (there.act(rows, up).unwrap(), w2.take(|w2| there.down(rows, Act::Made(up), w2)).unwrap())
            })
        });
        assert_eq!(bits(&given), bits(&act));
        assert!(found.is_empty(), "it stays there");
        for (row, y) in rows.iter().zip(product(&act, w2).chunks_exact(d)) {
            sums[*row as usize * d..][..d].iter_mut().zip(y).for_each(|(sum, v)| *sum += f64::from(*v));
        }
        // Once more, with activations of its own and no sums.
        let alone = desk.experts(&[], d, 0).unwrap().unwrap();
        let y = w2.take(|w2| alone.down(rows, Act::Given(&act), w2)).unwrap();
        assert_eq!(bits(&y), bits(&product(&act, w2)));
    }
    let want: Vec<f32> = sums.iter().map(|sum| *sum as f32).collect();
    let found = [there.sums(0..4).unwrap(), there.sums(4..9).unwrap()].concat();
    assert_eq!(bits(&found), bits(&want));
    // What the swiglus above took, the experts as they are stored, rows and weights: far less than nine decoded matrices.
    let wrote = counted.lock().unwrap().writes.1 - before;
    assert!(wrote < 9 * 4 * d * inner / 2, "{wrote} bytes");
    // What does not fit is refused before a kernel sees it.
    let [w1, w3, w2] = &experts[0];
    let act = vec![0.0; 2 * inner];
    for rows in [&[3, 9][..], &[3, 2], &[3]] {
        let error = w2.take(|w2| there.down(rows, Act::Given(&act), w2)).unwrap_err();
        assert!(error.what.contains("do not fit together"), "{error}");
    }
    let past = w1.take(|w1| w3.take(|w3| there.act(&[9], Up { weights: [w1, w3], wt: &[1.0], limit, kept: &[] })));
    assert!(past.is_err() && there.sums(0..10).is_err());
}

#[test]
fn the_memory_of_an_expert_goes_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path(), "off") else { return };
    let allocs = host.allocs.clone();
    let desk = Desk::new(host);
    let x = values(64, 1);
    let allocated = |e| {
        let (w, before) = (Fp4::new(32, 64, e), allocs.load(Ordering::Relaxed));
        let found = w.take(|w| desk.linear(&x, w)).unwrap();
        assert_eq!(bits(&found), bits(&product(&x, &w)));
        allocs.load(Ordering::Relaxed) - before
    };
    assert!(allocated(1) > 0);
    assert_eq!((2..40).map(allocated).sum::<usize>(), 0);
}

#[test]
fn nvfp4_experts_have_goldens_bits() {
    let Some(backend) = super::backend("off") else { return };
    let files = new_model_with(Geometry::Mini, 5, Form::Nvfp4);
    let checkpoint = Arc::new(Checkpoint::from_memory("tiny", files).unwrap());
    let ids: Vec<u32> = (0..40).collect();
    assert_equal(&compare(&checkpoint, &ids, 24, &backend, 2).unwrap());
}

/// The mini model with the first scale of every w1 in layer 0 no number.
fn damaged() -> Arc<Checkpoint> {
    let mut files = new_model(Geometry::Mini, 3);
    let mut bytes = files["model.safetensors"].to_vec();
    let header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let text: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let of_w1 = |name: &&String| name.contains("layers.0.ffn.experts.") && name.ends_with("w1.scale");
    let scales: Vec<&String> = text.as_object().unwrap().keys().filter(of_w1).collect();
    assert!(!scales.is_empty());
    for name in scales {
        bytes[8 + header + text[name]["data_offsets"][0].as_u64().unwrap() as usize] = 255;
    }
    files.insert("model.safetensors".to_string(), bytes.into());
    Arc::new(Checkpoint::from_memory("damaged", files).unwrap())
}

#[test]
fn a_scale_that_is_no_number_is_refused_with_the_same_words() {
    let Some(backend) = super::backend("off") else { return };
    let checkpoint = damaged();
    let said = |backend: Option<Arc<dyn Backend>>| {
        let requests = Requests { seqs: vec![Sequence::prompt("a", (0..20).collect::<Vec<u32>>())] };
        let golden = Golden::new(checkpoint.clone(), requests, Mode::F32, 1).unwrap().computed_by(backend);
        let x = golden.embed(&mut NoTaps).unwrap();
        golden.layer(0).unwrap().run(&mut [Lane::new(&x, &mut NoTaps)]).unwrap_err().to_string()
    };
    let (here, there) = (said(None), said(Some(backend)));
    assert!(here.contains("NaN"), "{here}");
    assert_eq!(here, there);
}

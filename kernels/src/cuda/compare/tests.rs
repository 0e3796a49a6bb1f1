//! The comparison's source on this processor, against the diff engine, its naive counterpart and exact sums.

use std::path::Path;
use std::process::Command;

use half::bf16;
use karat_diff::{Code, Grid, Values, View, measure_core};
use libloading::Library;

use super::*;
use crate::source::sources;

const HEADER: &str = include_str!("tests/host.h");

/// The kernels of `cuda/diff/`, compiled for this processor.
struct Host(Library);

impl Host {
    /// None without a C++ compiler.
    fn compile(folder: &Path) -> Option<Self> {
        if !Command::new("g++").arg("--version").output().is_ok_and(|out| out.status.success()) {
            return None;
        }
        let mut text = HEADER.to_string();
        sources().filter(|(path, _)| path.starts_with("diff/")).for_each(|(_, source)| text.push_str(source));
        let (file, library) = (folder.join("compare.cpp"), folder.join("compare.so"));
        std::fs::write(&file, text).unwrap();
        // Tests run side by side, each with its own memory of a block.
        let own = ["-fno-gnu-unique", "-pthread", "-fPIC", "-shared", "-w", "-o"];
        let out = Command::new("g++")
            .args(["-std=c++17", "-O2", "-mfma", "-ffp-contract=off"])
            .args(own)
            .arg(&library)
            .arg(&file)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        // SAFETY: compiled from our own source; it has no initialisers that do anything.
        Some(Self(unsafe { Library::new(library) }.unwrap()))
    }

    fn launch(&self, kernel: &str, grid: usize, threads: u32, args: Args) {
        type Kernel = unsafe extern "C" fn(Args);
        type Run = unsafe extern "C" fn(Kernel, u32, u32, Args);
        // SAFETY: the symbols have these types in the sources and in the header, which checks nothing; the addresses in `args`
        // are those of vectors that the caller holds.
        unsafe {
            let kernel = self.0.get::<Kernel>(kernel.as_bytes()).unwrap();
            let run = self.0.get::<Run>(b"karat_run").unwrap();
            run(*kernel, grid as u32, threads, args);
        }
    }

    /// The record of a pair, with `blocks` blocks (0: one a tile); the naive counterpart's with none.
    fn record(&self, x: &Tensor, y: &Tensor, blocks: Option<usize>) -> Vec<u64> {
        let n = x.values.len();
        let cut = if blocks.is_some() { tile(n) } else { RUN };
        // Poisoned, and longer than it must be.
        let (mut partial, mut record) = (vec![NONE; n.div_ceil(cut) * WORDS + 1], vec![NONE; WORDS + 1]);
        let at = [partial.as_mut_ptr() as u64, record.as_mut_ptr() as u64];
        let args = Args::new((x.at(), x.element), (y.at(), y.element), n, cut, at[0], at[1]);
        match blocks {
            Some(blocks) => {
                let kernel = format!("compare_{}_{}", x.element.name(), y.element.name());
                let tiles = if blocks == 0 { args.tiles.max(1) as usize } else { blocks };
                self.launch(&kernel, tiles, 256, args);
                self.launch("compare_finish", WORDS, 256, args);
            }
            None => {
                self.launch(
                    "naive_runs",
                    (args.tiles as usize).div_ceil(256).max(1),
                    256,
                    args.naive(x.element, y.element),
                );
                self.launch("naive_record", 1, 32, args.naive(x.element, y.element));
            }
        }
        assert_eq!((partial.pop(), record.pop()), (Some(NONE), Some(NONE)), "written past the end");
        record
    }
}

/// Values of one type, some elements behind the start of their memory.
struct Tensor {
    element: Element,
    memory: Vec<u64>,
    first: usize,
    values: Vec<f32>,
}

impl Tensor {
    /// bf16 values are rounded.
    fn new(element: Element, first: usize, values: &[f32]) -> Self {
        let mut bytes = vec![0xff; first * element.size()];
        let mut kept = Vec::new();
        for v in values {
            match element {
                Element::F32 => {
                    bytes.extend(v.to_le_bytes());
                    kept.push(*v);
                }
                Element::Bf16 => {
                    bytes.extend(bf16::from_f32(*v).to_le_bytes());
                    kept.push(bf16::from_f32(*v).to_f32());
                }
            }
        }
        bytes.resize(bytes.len().next_multiple_of(16) + 16, 0xff);
        let memory = bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        Self { element, memory, first, values: kept }
    }

    /// Vectors of 8-byte words need not lie at 16 bytes: the address is what counts.
    fn at(&self) -> u64 {
        self.memory.as_ptr() as u64 + (self.first * self.element.size()) as u64
    }
}

/// Golden's values and the candidate's: `kind` says what is strewn in.
fn pair(n: usize, kind: usize) -> (Vec<f32>, Vec<f32>) {
    let mut state = (n * 31 + kind) as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let strewn: &[f32] = match kind {
        1 => &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0],
        2 => &[f32::from_bits(1), -f32::from_bits(77), f32::MIN_POSITIVE],
        3 => &[3e38, -3e38, 1e-30],
        4 => &[f32::NEG_INFINITY],
        _ => &[],
    };
    let mut one = |far: f32| {
        let v = f64::from(next()) / f64::from(1u32 << 30) - 1.0;
        let (pick, rest) = (next() as usize % 9, next());
        let x = strewn.get(pick).copied().unwrap_or(v as f32);
        let other = strewn.get(rest as usize % 9).copied();
        // Kind 4 is masked on both sides; distances of kind 5 are all the same: the first place counts.
        let y = match kind {
            4 if pick == 0 => x,
            5 => (v as f32) + 0.0,
            _ => other.unwrap_or(x + far * (rest as f32 / u32::MAX as f32 - 0.5)),
        };
        if kind == 5 { (0.25 * (pick as f32), 0.25 * (pick as f32) + 0.5) } else { (x, y) }
    };
    (0..n).map(|_| one(0.01)).unzip()
}

/// A sum without error that matters: two f64 terms (Knuth's two-sum), every term itself exact or rounded once in f64.
fn exact(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut high, mut low) = (0.0f64, 0.0f64);
    for v in terms {
        let sum = high + v;
        let back = sum - high;
        low += (high - (sum - back)) + (v - back);
        high = sum;
    }
    high + low
}

/// What is written on the page of the kernel.
const BOUND: f64 = 5e-14;

fn close(what: &str, found: f64, right: f64, size: f64) {
    assert!((found - right).abs() <= BOUND * size, "{what}: {found:e}, not {right:e}; terms of {size:e} in all");
}

fn engine(x: &Tensor, y: &Tensor) -> CoreSums {
    let shape = [1, x.values.len()];
    let bytes = |it: &Tensor| -> Vec<u8> {
        match it.element {
            Element::F32 => it.values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Element::Bf16 => it.values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        }
    };
    let (bx, by) = (bytes(x), bytes(y));
    let code = |it: &Tensor| if it.element == Element::F32 { Code::F32 } else { Code::Bf16 };
    let view = |it: &Tensor, bytes| View { shape: &shape, values: Values::Stored(code(it), bytes) };
    measure_core("test", view(x, &bx), view(y, &by), &Grid::new(1, shape[1])).unwrap().total
}

/// All that must be equal is, and sums are those of exact arithmetic within the bound.
fn check(found: &CoreSums, x: &Tensor, y: &Tensor, what: &str) {
    let engine = engine(x, y);
    let discrete = |it: &CoreSums| {
        let counts = [it.n, it.finite, it.masked, it.nan_x, it.nan_y, it.inf_x, it.inf_y];
        (counts, it.first_nonfinite_at, it.max_abs_at, [it.max_abs, it.max_x, it.max_y].map(f64::to_bits))
    };
    assert_eq!(discrete(found), discrete(&engine), "{what}");
    let pairs: Vec<(f64, f64)> = x.values.iter().zip(&y.values).map(|(x, y)| (f64::from(*x), f64::from(*y))).collect();
    let finite = || pairs.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
    type Term = fn(f64, f64) -> f64;
    let sums: [(&str, Term, f64, f64); 8] = [
        ("x", |x, _| x, found.x, engine.x),
        ("y", |_, y| y, found.y, engine.y),
        ("xx", |x, _| x * x, found.xx, engine.xx),
        ("yy", |_, y| y * y, found.yy, engine.yy),
        ("xy", |x, y| x * y, found.xy, engine.xy),
        ("|d|", |x, y| (y - x).abs(), found.abs_d, engine.abs_d),
        ("d", |x, y| y - x, found.d, engine.d),
        ("dd", |x, y| (y - x) * (y - x), found.dd, engine.dd),
    ];
    for (name, term, found, engine) in sums {
        let size: f64 = finite().map(|(x, y)| term(*x, *y).abs()).sum();
        close(&format!("{what}: {name}"), found, exact(finite().map(|(x, y)| term(*x, *y))), size);
        close(&format!("{what}: {name}, the engine's"), found, engine, size);
    }
}

#[test]
fn any_length_content_and_alignment_has_the_engines_record() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path()) else { return };
    let lengths = [1, 3, 4, 5, 1023, 1025, 4095, 4100, 16_383, 16_384, 16_385, 3 * 16_384 + 7];
    for (i, n) in lengths.into_iter().enumerate() {
        for kind in 0..6 {
            let (xs, ys) = pair(n, kind);
            // Every combination of types is met, each with many offsets.
            let at = i + kind;
            let (x, y) = (Element::ALL[at % 2], Element::ALL[at / 2 % 2]);
            let (x, y) = (Tensor::new(x, at % 9, &xs), Tensor::new(y, (at * 5) % 7, &ys));
            let what = format!(
                "{n} pairs of kind {kind}, {:?} from {} and {:?} from {}",
                x.element, x.first, y.element, y.first
            );
            let record = host.record(&x, &y, Some(0));
            check(&sums(&record, n).unwrap(), &x, &y, &what);
            if kind == 1 || n < 1024 {
                check(&sums(&host.record(&x, &y, None), n).unwrap(), &x, &y, &format!("naive, {what}"));
            }
        }
    }
}

#[test]
fn bits_depend_on_values_alone() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path()) else { return };
    let n = 4 * 16_384 + 1234;
    for kind in [0, 1] {
        let (xs, ys) = pair(n, kind);
        // Values that bf16 holds, so that both types have them.
        let narrow = |v: &[f32]| -> Vec<f32> { v.iter().map(|v| bf16::from_f32(*v).to_f32()).collect() };
        let (xs, ys) = (narrow(&xs), narrow(&ys));
        let make = |x, at_x, y, at_y| (Tensor::new(x, at_x, &xs), Tensor::new(y, at_y, &ys));
        let (x, y) = make(Element::F32, 0, Element::F32, 0);
        let one = host.record(&x, &y, Some(0));
        for blocks in [1, 2, 3, 7] {
            assert_eq!(host.record(&x, &y, Some(blocks)), one, "{blocks} blocks");
        }
        for (a, at_a, b, at_b) in [
            (Element::F32, 1, Element::F32, 2),
            (Element::F32, 4, Element::F32, 8),
            (Element::Bf16, 0, Element::F32, 4),
            (Element::F32, 0, Element::Bf16, 3),
            (Element::Bf16, 8, Element::Bf16, 4),
        ] {
            let (x, y) = make(a, at_a, b, at_b);
            assert_eq!(host.record(&x, &y, Some(0)), one, "{a:?} from {at_a}, {b:?} from {at_b}");
        }
    }
}

#[test]
fn nothing_compared_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(host) = Host::compile(folder.path()) else { return };
    let none = Tensor::new(Element::F32, 0, &[]);
    for blocks in [Some(0), None] {
        assert_eq!(sums(&host.record(&none, &none, blocks), 0).unwrap(), CoreSums::default());
    }
}

#[test]
fn tiles_are_cut_by_the_number_of_pairs() {
    for n in [0, 1, LEAST_TILE, LEAST_TILE * MOST_TILES, LEAST_TILE * MOST_TILES + 1, 1 << 28, 1 << 42] {
        let tile = tile(n);
        assert!(tile >= LEAST_TILE && n.div_ceil(tile) <= MOST_TILES, "{n}: {tile}");
        // A thread counts places in 32 bits, and loads whole steps.
        assert!(tile < 1 << 32 && tile.is_multiple_of(256 * 4 * 4));
    }
    assert_eq!((tile(1 << 27), tile((1 << 27) + 1)), (1 << 14, 1 << 15));
}

#[test]
fn a_record_that_was_never_written_is_refused() {
    assert!(sums(&[NONE; WORDS], 1).unwrap_err().to_string().contains("counts more"));
    assert!(sums(&[0; 3], 1).unwrap_err().to_string().contains("20 words"));
    let mut words = [0; WORDS];
    (words[9], words[18], words[19]) = (7, 11, 12);
    (words[12], words[17]) = (2, 1);
    let it = sums(&words, 5).unwrap();
    assert_eq!(
        (it.max_abs_at, it.first_nonfinite_at),
        (Some(At { row: 1, column: 2 }), Some(At { row: 2, column: 1 }))
    );
    assert_eq!((it.n, it.finite, it.nonfinite()), (12, 9, 1));
}

use karat_seam::{Data, Phase, Sequence, Tap, Tensor};
use proptest::prelude::*;
use safetensors::SafeTensors;

use super::*;
use crate::Trace;

fn requests() -> Requests {
    Requests { seqs: vec![Sequence::prompt("a/..", vec![1, 2, 3]), Sequence::prompt("b", vec![4, 5])] }
}

fn rows(seq: u32, positions: std::ops::Range<u32>) -> Vec<RowId> {
    positions.map(|pos| RowId::new(seq, pos)).collect()
}

fn show(w: &mut TraceWriter, at: Site, rows: &[RowId], mut t: Tensor) -> Result<()> {
    w.add(at, rows, &t.as_mut())
}

fn ramp(shape: &[usize], first: f32) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::f32(shape.to_vec(), (0..n).map(|i| first + i as f32).collect())
}

fn writer(dir: &Path, order: Order) -> TraceWriter {
    let history =
        vec![History { sequence: "b".into(), steps: vec![crate::Step { kind: "decode".into(), start: 1, end: 2 }] }];
    let header =
        Header { producer: "test 1".into(), model: ModelId::new([1; 32], [2; 32]), mode: Mode::Graph, history };
    TraceWriter::create(&dir.join("t"), &requests(), header, TapGlob::all(), order).unwrap()
}

const OUT: fn(u16) -> Site = |l| Site::layer(l, Tap::Out);

#[test]
fn what_is_written_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut w = writer(dir.path(), Order::LayerMajor);
    for l in 0..2 {
        show(&mut w, OUT(l), &rows(0, 0..2), ramp(&[2, 2, 3], l as f32)).unwrap();
        show(&mut w, OUT(l), &rows(0, 2..3), ramp(&[1, 2, 3], 50.0)).unwrap();
        show(&mut w, OUT(l), &rows(1, 0..2), ramp(&[2, 2, 3], 90.0)).unwrap();
        show(&mut w, Site::layer(l, Tap::FfnIdx), &rows(0, 0..3), Tensor::i64([3, 2], vec![0, 1, 2, 3, 4, 5])).unwrap();
        show(&mut w, Site::layer(l, Tap::StateWin), &rows(0, 2..3), ramp(&[2, 4], 7.0)).unwrap();
        show(&mut w, Site::layer(l, Tap::AttnCkv), &rows(0, 0..1), ramp(&[1, 4], 7.0)).unwrap();
    }
    assert!(!dir.path().join("t").exists(), "not there before it is complete");
    let path = w.finish().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary folder is left");
    let t = Trace::open(&path).unwrap();
    let joined: Vec<f32> = (0..12).map(|i| 1.0 + i as f32).chain((0..6).map(|i| 50.0 + i as f32)).collect();
    assert_eq!(t.tensor(OUT(1), 0, 0).unwrap(), Tensor::f32([3, 2, 3], joined));
    assert_eq!(t.tensor(Site::layer(0, Tap::FfnIdx), 0, 0).unwrap(), Tensor::i64([3, 2], vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(t.tensor(Site::layer(0, Tap::StateWin), 0, 0).unwrap().shape, [2, 4]);
    assert_eq!((t.requests(), t.manifest().mode), (&requests(), Mode::Graph));
    assert_eq!(t.same_model([1; 32], [2; 32]), crate::SameModel::Same);
    assert_eq!(t.phase_of(RowId::new(1, 1)), Phase::Decode);
    assert_eq!(t.manifest().files, ["layer-0000.safetensors", "layer-0001.safetensors"]);
    // Another reader of the file format agrees.
    let bytes = std::fs::read(path.join("layer-0001.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("a%2F../layers.1.out").unwrap().shape(), [3, 2, 3]);
    assert_eq!(file.len(), 5);
}

#[test]
fn ragged_rows_are_widened() {
    let dir = tempfile::tempdir().unwrap();
    let mut w = writer(dir.path(), Order::Any);
    let (score, selected) = (Site::layer(0, Tap::AttnIndexScore), Site::layer(0, Tap::AttnSelected));
    show(&mut w, score, &rows(0, 0..2), Tensor::f32([2, 0], vec![])).unwrap();
    show(&mut w, score, &rows(0, 2..3), Tensor::f32([1, 2], vec![1.0, 2.0])).unwrap();
    show(&mut w, selected, &rows(0, 0..1), Tensor::u8([1, 1], vec![1])).unwrap();
    show(&mut w, selected, &rows(0, 1..3), Tensor::u8([2, 2], vec![0, 1, 1, 1])).unwrap();
    let t = Trace::open(&w.finish().unwrap()).unwrap();
    let inf = f32::NEG_INFINITY;
    assert_eq!(t.tensor(score, 0, 0).unwrap(), Tensor::f32([3, 2], vec![inf, inf, inf, inf, 1.0, 2.0]));
    assert_eq!(t.tensor(selected, 0, 0).unwrap(), Tensor::u8([3, 2], vec![1, 0, 0, 1, 1, 1]));
}

#[test]
fn some_rows_and_later_passes_list_their_positions() {
    let dir = tempfile::tempdir().unwrap();
    let mut w = writer(dir.path(), Order::Any);
    show(&mut w, OUT(0), &[RowId::new(0, 0), RowId::new(0, 2)], ramp(&[2, 1, 1], 0.0)).unwrap();
    show(&mut w, OUT(0), &[RowId { seq: 0, pos: 1, pass: 1 }], ramp(&[1, 1, 1], 9.0)).unwrap();
    let t = Trace::open(&w.finish().unwrap()).unwrap();
    assert_eq!((&*t.positions(0, 0), &*t.positions(0, 1), &*t.positions(1, 0)), (&[0, 2][..], &[1][..], &[][..]));
    assert_eq!(t.tensor(OUT(0), 0, 1).unwrap(), ramp(&[1, 1, 1], 9.0));
    assert_eq!(t.row_ids(OUT(0), 0, 1).unwrap(), [RowId { seq: 0, pos: 1, pass: 1 }]);
}

/// Synced, not synced, with a slow producer: the same files, byte for byte.
#[test]
fn a_synced_trace_has_the_same_bytes() {
    let files = |synced: bool| -> BTreeMap<std::ffi::OsString, Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let w = writer(dir.path(), Order::LayerMajor);
        let mut w = if synced { w.synced() } else { w };
        // Large enough for memory to be used again: five layers, two of another width.
        for l in 0..5 {
            let width = if l % 2 == 0 { 1 << 15 } else { 3 << 14 };
            show(&mut w, OUT(l), &rows(0, 0..3), ramp(&[3, width], f32::from(l))).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let path = w.finish().unwrap();
        let entries = std::fs::read_dir(path).unwrap().map(|e| e.unwrap());
        entries.map(|e| (e.file_name(), std::fs::read(e.path()).unwrap())).collect()
    };
    let plain = files(false);
    assert_eq!(plain.len(), 6);
    assert!(files(true) == plain);
    for l in 0..5u16 {
        let file = &plain[std::ffi::OsStr::new(&format!("layer-{l:04}.safetensors"))];
        let file = SafeTensors::deserialize(file).unwrap();
        let values = file.tensor(&format!("a%2F../layers.{l}.out")).unwrap();
        let expected = (0..values.data().len() / 4).flat_map(|i| (f32::from(l) + i as f32).to_le_bytes());
        assert!(values.data().iter().copied().eq(expected), "layer {l}");
    }
}

#[test]
fn an_abandoned_writer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut w = writer(dir.path(), Order::LayerMajor);
    show(&mut w, OUT(0), &rows(0, 0..3), ramp(&[3, 1, 1], 0.0)).unwrap();
    show(&mut w, OUT(1), &rows(0, 0..3), ramp(&[3, 1, 1], 0.0)).unwrap();
    drop(w);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_no_trace_can_hold_is_refused() {
    type Case<'a> = (&'a str, Vec<(Site, Vec<RowId>, Tensor)>);
    let one = |l| (OUT(l), rows(0, 0..3), ramp(&[3, 1, 1], 0.0));
    let ckv = Site::layer(0, Tap::AttnCkv);
    let cases: Vec<Case<'_>> = vec![
        ("a block came back", vec![one(0), one(1), one(0)]),
        ("two sequences or passes", vec![(OUT(0), vec![RowId::new(0, 0), RowId::new(1, 0)], ramp(&[2, 1, 1], 0.0))]),
        ("the requests don't have", vec![(OUT(0), vec![RowId::new(2, 0)], ramp(&[1, 1, 1], 0.0))]),
        ("another number of rows", vec![(OUT(0), rows(0, 0..2), ramp(&[3, 1, 1], 0.0))]),
        ("different row shapes", vec![one(0), (OUT(0), rows(0, 2..3), ramp(&[1, 1, 2], 0.0))]),
        ("different element types", vec![one(0), (OUT(0), rows(0, 2..3), Tensor::f64([1, 1, 1], vec![0.0]))]),
        ("behind the end", vec![(OUT(0), rows(0, 1..4), ramp(&[3, 1, 1], 0.0))]),
        ("not ascending", vec![one(0), one(0)]),
        ("cover different rows", vec![one(0), (Site::layer(0, Tap::AttnIn), rows(0, 0..2), ramp(&[2, 1], 0.0))]),
        ("not all entries", vec![(ckv, rows(0, 1..2), ramp(&[1, 4], 0.0))]),
        ("state was visited twice", vec![(Site::layer(0, Tap::StateWin), rows(0, 2..3), ramp(&[1, 4], 0.0)); 2]),
    ];
    for (expected, pieces) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut w = writer(dir.path(), Order::LayerMajor);
        let failed = pieces.into_iter().find_map(|(at, rows, t)| show(&mut w, at, &rows, t).err());
        let again = w.finish().unwrap_err().to_string();
        assert!(again.contains(expected), "{again}\n  lacks {expected}");
        assert!(failed.is_none_or(|e| e.to_string() == again));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn requests_and_targets_are_checked_first() {
    let dir = tempfile::tempdir().unwrap();
    let create = |target: &Path, requests: &Requests| {
        TraceWriter::create(target, requests, Header::default(), TapGlob::all(), Order::Any)
            .err()
            .map(|e| e.to_string())
    };
    let seqs = |ids: &[(&str, Vec<u32>)]| Requests {
        seqs: ids.iter().map(|(id, ids)| Sequence::prompt(*id, ids.clone())).collect(),
    };
    let t = dir.path().join("t");
    for (requests, expected) in [
        (seqs(&[]), "no sequence"),
        (seqs(&[("a", vec![])]), "empty sequence"),
        (seqs(&[("a", vec![1]), ("a", vec![1])]), "two sequences"),
        (seqs(&[("", vec![1])]), "id is empty"),
    ] {
        assert!(create(&t, &requests).unwrap().contains(expected));
    }
    let nothing = TraceWriter::create(&t, &requests(), Header::default(), TapGlob::all(), Order::Any).unwrap().finish();
    assert!(nothing.unwrap_err().to_string().contains("nothing was recorded"));
    assert!(create(dir.path(), &requests()).unwrap().contains("exists already"));
    assert!(create(&dir.path().join("no/such"), &requests()).unwrap().contains("can't be made"));
}

#[test]
fn a_glob_chooses_what_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let glob = TapGlob::new("layers.*.out").unwrap();
    let w = TraceWriter::create(&dir.path().join("t"), &requests(), Header::default(), glob, Order::Any).unwrap();
    assert_eq!((w.want(OUT(3)), w.want(Site::layer(3, Tap::AttnIn))), (Want::Read, Want::Skip));
}

proptest! {
    #[test]
    fn pieces_read_back_as_one(cuts in proptest::collection::vec(1usize..4, 1..5), width in 1usize..4, values: u64) {
        let n: usize = cuts.iter().sum();
        let flat: Vec<f32> = (0..n * width).map(|i| f32::from_bits((values as u32).wrapping_mul(2654435761 + i as u32))).collect();
        let dir = tempfile::tempdir().unwrap();
        let requests = Requests { seqs: vec![Sequence::prompt("s", (0..n as u32).collect::<Vec<_>>())] };
        let mut w = TraceWriter::create(&dir.path().join("t"), &requests, Header::default(), TapGlob::all(), Order::Any).unwrap();
        let mut at = 0;
        for c in cuts {
            let piece = Tensor::f32([c, width], flat[at * width..(at + c) * width].to_vec());
            show(&mut w, Site::layer(0, Tap::AttnIn), &rows(0, at as u32..(at + c) as u32), piece).unwrap();
            at += c;
        }
        let t = Trace::open(&w.finish().unwrap()).unwrap();
        let Data::F32(got) = t.tensor(Site::layer(0, Tap::AttnIn), 0, 0).unwrap().data else { panic!("dtype") };
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&got), bits(&flat));
    }
}

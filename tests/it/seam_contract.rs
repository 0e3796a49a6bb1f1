//! What the seam promises, held by golden: ops composed by the graph equal a run bit for bit; looking changes nothing;
//! writing changes what follows; replaying one's own KV and decisions changes nothing; lanes do not meet.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_reference::{Golden, Mode};
use karat_seam::{
    Choices, Data, DataMut, Kv, KvPart, KvRows, KvView, Lane, LayerChoices, NoTaps, Path, Recorder, Requests, Result,
    Routing, RowId, Sequence, Site, Streams, Tap, Tensor, TensorMut, Visitor, Want,
};
use karat_tests::{bits, cold_run, tiny_v4_files};

fn tiny() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap())
}

fn requests(lengths: &[usize]) -> Requests {
    let ids = |n: usize, seed: usize| (0..n).map(|i| ((i * 211 + seed * 37) % 512) as u32).collect::<Vec<u32>>();
    Requests { seqs: lengths.iter().enumerate().map(|(i, &n)| Sequence::prompt(format!("{i}"), ids(n, i))).collect() }
}

fn golden(lengths: &[usize], mode: Mode) -> Golden {
    Golden::new(tiny(), requests(lengths), mode, 2).unwrap()
}

/// Every op of every layer on recorded operands, composed by the graph, gives the recorded results.
fn compose(lengths: &[usize], mode: Mode) {
    let golden = golden(lengths, mode);
    let mut seen = Recorder::all();
    let mut streams = vec![golden.embed(&mut seen).unwrap()];
    for l in 0..golden.blocks().layers {
        let x = streams.last().unwrap().clone();
        let mut lanes = [Lane::new(&x, &mut seen)];
        golden.layer(l).unwrap().run(&mut lanes).unwrap();
        let [lane] = lanes;
        streams.push(lane.out.unwrap().streams);
    }
    let logits = golden.head(&mut [Lane::new(streams.last().unwrap(), &mut seen)]).unwrap();
    let (mut ops, mut first) = (0, 0);
    for (seq, &n) in lengths.iter().enumerate() {
        let rows: Vec<RowId> = (0..n as u32).map(|pos| RowId::new(seq as u32, pos)).collect();
        let of_rows = |whole: &Tensor| slice(whole, first, n);
        for l in 0..golden.blocks().layers {
            let layer = golden.layer(l).unwrap();
            let recorded = |tap| {
                let kept = seen.get(Site::layer(l, tap), seq as u32).map(|recorded| recorded.tensor.clone());
                kept.unwrap_or_else(|| empty(&golden, tap, mode))
            };
            for spec in golden.graph().iter().filter(|spec| layer.has_op(spec.op)) {
                // `out` stands for the streams that enter the block; an op's other taps may be absent in this layer.
                let operands: Vec<(Tap, Tensor)> = spec
                    .reads
                    .iter()
                    .filter(|&&tap| tap == Tap::Out || is_there(&golden, l, tap))
                    .map(|&tap| (tap, if tap == Tap::Out { of_rows(&streams[l as usize].data) } else { recorded(tap) }))
                    .collect();
                let results = layer.op(spec.op, &operands, &rows).unwrap();
                assert_eq!(results.iter().map(|(tap, _)| *tap).collect::<Vec<_>>(), spec.writes, "{}", spec.name);
                for (tap, tensor) in results {
                    assert_eq!(tensor, recorded(tap), "layer {l}, {n} rows: {} by {}", tap.name(), spec.name);
                    ops += 1;
                }
            }
        }
        // The head's ops belong to no layer; any layer answers them.
        let layer = golden.layer(0).unwrap();
        let head = |tap: Tap| seen.get(tap.name().parse().unwrap(), seq as u32).unwrap().tensor.clone();
        for spec in golden.graph().iter().filter(|spec| spec.part == karat_seam::Part::Head) {
            assert!(!layer.has_op(spec.op));
            let results = layer.op(spec.op, &[(spec.reads[0], head(spec.reads[0]))], &rows).unwrap();
            assert_eq!(results, [(spec.writes[0], head(spec.writes[0]))], "{}", spec.name);
        }
        assert_eq!(of_rows(&logits[0]), head(Tap::Logits));
        first += n;
    }
    assert!(ops > 100, "{ops}");
}

fn slice(whole: &Tensor, first: usize, n: usize) -> Tensor {
    let (mut shape, range) = (whole.shape.clone(), first * whole.width()..(first + n) * whole.width());
    shape[0] = n;
    Tensor::new(
        shape,
        match &whole.data {
            Data::F32(v) => Data::F32(v[range].to_vec()),
            Data::F64(v) => Data::F64(v[range].to_vec()),
            other => panic!("{}", other.dtype()),
        },
    )
}

/// Entries before the first window is complete: never visited, because there is none.
fn empty(golden: &Golden, tap: Tap, mode: Mode) -> Tensor {
    assert!(tap.is_per_entry(), "{} was not visited", tap.name());
    let c = golden.config();
    let width = if tap == Tap::AttnCkv { c.head_dim } else { c.index_head_dim };
    match mode {
        Mode::F32 => Tensor::f32([0, width], vec![]),
        Mode::F64 => Tensor::f64([0, width], vec![]),
    }
}

fn is_there(golden: &Golden, l: u16, tap: Tap) -> bool {
    let kind = golden.config().layers[usize::from(l)];
    match tap {
        Tap::AttnCkv | Tap::AttnSelected | Tap::AttnKvp | Tap::AttnGateScore => kind.ratio().is_some(),
        Tap::AttnIndexScore => kind.has_indexer(),
        _ => true,
    }
}

#[test]
fn ops_composed_by_the_graph_equal_a_run() {
    compose(&[3, 133], Mode::F32);
    compose(&[70], Mode::F64);
}

/// Records all, and the most rows of one visit.
struct Pieces {
    seen: Recorder,
    few: bool,
    most: usize,
}

impl Visitor for Pieces {
    fn want(&self, _: Site) -> Want {
        Want::Read
    }

    fn takes_few_rows(&self) -> bool {
        self.few
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        self.most = self.most.max(if at.tap.is_per_entry() { 0 } else { rows.len() });
        self.seen.visit(at, rows, tensor)
    }
}

#[test]
fn few_rows_at_a_time_are_the_same_rows() {
    let golden = golden(&[600], Mode::F32);
    let [many, few] = [false, true].map(|few| {
        let mut see = Pieces { seen: Recorder::all(), few, most: 0 };
        let mut x = golden.embed(&mut NoTaps).unwrap();
        for l in 0..golden.blocks().layers {
            let mut lanes = [Lane::new(&x, &mut see)];
            golden.layer(l).unwrap().run(&mut lanes).unwrap();
            let [lane] = lanes;
            x = lane.out.unwrap().streams;
        }
        see
    });
    assert_eq!((many.most, few.most), (600, 256));
    assert!(many.seen.taps.len() > 100, "{}", many.seen.taps.len());
    for (at, whole) in &many.seen.taps {
        assert_eq!(few.seen.taps.get(at), Some(whole), "{}", at.0);
    }
    assert_eq!(few.seen.taps.len(), many.seen.taps.len());
}

/// Changes every tensor of one tap.
struct Change(Site, usize);

impl Visitor for Change {
    fn want(&self, at: Site) -> Want {
        if at == self.0 { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, _: Site, _: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        self.1 += 1;
        match tensor.data {
            DataMut::F32(v) => v.iter_mut().filter(|v| v.is_finite()).for_each(|v| *v = *v * -1.5 + 0.01),
            DataMut::I64(v) => v.iter_mut().for_each(|v| *v = (*v + 1) % 8),
            DataMut::U8(v) => v.fill(0),
            DataMut::F64(_) => panic!("an f32 run"),
        }
        Ok(())
    }
}

#[test]
fn what_a_visitor_writes_is_used() {
    let golden = golden(&[150], Mode::F32);
    let x = golden.embed(&mut NoTaps).unwrap();
    for l in [1, 2] {
        let layer = golden.layer(l).unwrap();
        let run = |see: &mut dyn Visitor| {
            let mut lanes = [Lane::new(&x, see)];
            layer.run(&mut lanes).unwrap();
            let [lane] = lanes;
            bits(&lane.out.unwrap().streams.data)
        };
        let clean = run(&mut NoTaps);
        let mut changed = 0;
        for &tap in Tap::ALL {
            let mut change = Change(Site::layer(l, tap), 0);
            let got = run(&mut change);
            if change.1 == 0 {
                continue;
            }
            // lse has no reader, and a state belongs to a run that is over.
            let inert = tap == Tap::AttnLse || tap.is_state();
            assert_eq!(got == clean, inert, "layer {l}: {}", tap.name());
            changed += usize::from(!inert);
        }
        assert_eq!(changed, if l == 1 { 35 } else { 29 });
    }
    // The ends of the model.
    let logits = |see: &mut dyn Visitor| bits(&golden.head(&mut [Lane::new(&x, see)]).unwrap()[0]);
    let clean = logits(&mut NoTaps);
    for name in ["h_final", "head.collapsed", "logits"] {
        assert_ne!(logits(&mut Change(name.parse().unwrap(), 0)), clean, "{name}");
    }
    assert_ne!(golden.embed(&mut Change("embed".parse().unwrap(), 0)).unwrap(), x);
}

#[test]
fn looking_changes_no_bit() {
    let golden = golden(&[129, 6], Mode::F32);
    let blind = cold_run(&golden, &mut NoTaps).unwrap();
    assert_eq!(cold_run(&golden, &mut Recorder::all()).unwrap(), blind);
    assert_eq!(cold_run(&golden, &mut Recorder::new(|_| false)).unwrap(), blind);
}

/// A recorded run's KV content.
struct Replay(BTreeMap<(u32, KvPart), Vec<f32>>);

impl KvView for Replay {
    fn rows(&self, seq: u32, part: KvPart) -> Option<KvRows<'_>> {
        self.0.get(&(seq, part)).map(|values| KvRows { first: 0, values })
    }
}

#[test]
fn replaying_its_own_kv_and_decisions_changes_no_bit() {
    let golden = golden(&[140, 9], Mode::F32);
    let mut x = golden.embed(&mut NoTaps).unwrap();
    for l in 0..golden.blocks().layers {
        let layer = golden.layer(l).unwrap();
        let mut seen = Recorder::all();
        let mut own = [Lane::new(&x, &mut seen)];
        layer.run(&mut own).unwrap();
        let [own] = own;
        let out = own.out.unwrap().streams;
        let (mut kv, mut choices) = (BTreeMap::new(), Choices::default());
        for ((site, seq), recorded) in &seen.taps {
            let values = |r: &karat_seam::Recorded| r.tensor.as_f32("kv").unwrap().to_vec();
            let forced = |c: &mut Choices, f: &dyn Fn(&mut LayerChoices)| f(c.by_layer.entry((l, *seq)).or_default());
            match site.tap {
                Tap::AttnKv => drop(kv.insert((*seq, KvPart::Window), values(recorded))),
                Tap::AttnCkv => drop(kv.insert((*seq, KvPart::Entries), values(recorded))),
                Tap::AttnIndexK => drop(kv.insert((*seq, KvPart::IndexKeys), values(recorded))),
                Tap::FfnIdx => {
                    let idx = recorded.tensor.as_i64("idx").unwrap();
                    forced(&mut choices, &|c| c.experts = idx.iter().map(|&e| e as u32).collect());
                }
                Tap::AttnSelected => {
                    let (mask, total) = (recorded.tensor.as_u8("mask").unwrap(), recorded.tensor.shape[1]);
                    let of =
                        |t: usize| (0..total).filter(move |w| mask[t * total + w] == 1).map(|w| w as u32).collect();
                    forced(&mut choices, &|c| c.entries = (0..recorded.tensor.rows()).map(of).collect());
                }
                _ => {}
            }
        }
        let replay = Replay(kv);
        let mut altered = Replay(replay.0.clone());
        altered.0.values_mut().for_each(|v| v.iter_mut().for_each(|v| *v += 0.5));
        let mut sees = [NoTaps; 4];
        let [a, b, c, d] = &mut sees;
        let mut lanes = [Lane::new(&x, a), Lane::new(&x, b), Lane::new(&x, c), Lane::new(&x, d)];
        lanes[0].kv = Kv::Given(&replay);
        lanes[1].routing = Routing::Forced(&choices);
        lanes[2].kv = Kv::Given(&altered);
        layer.run(&mut lanes).unwrap();
        let outs: Vec<Streams> = lanes.into_iter().map(|lane| lane.out.unwrap().streams).collect();
        assert_eq!(outs[0], out, "layer {l}: own KV");
        assert_eq!(outs[1], out, "layer {l}: own decisions");
        assert_ne!(outs[2], out, "layer {l}: another KV");
        assert_eq!(outs[3], out, "layer {l}: a lane beside others");
        x = out;
    }
}

#[test]
fn a_lane_that_goes_on_from_given_kv_has_the_bits_of_the_whole_run() {
    let golden = golden(&[300], Mode::F32);
    let mut x = golden.embed(&mut NoTaps).unwrap();
    for l in 0..golden.blocks().layers {
        let layer = golden.layer(l).unwrap();
        let mut seen = Recorder::all();
        let mut own = [Lane::new(&x, &mut seen)];
        layer.run(&mut own).unwrap();
        let [own] = own;
        let out = own.out.unwrap().streams;
        let width = x.data.width();
        for run in [1..3, 63..66, 127..129, 128..132, 133..134, 202..260, 299..300] {
            let mut kv = BTreeMap::new();
            for (tap, part) in
                [(Tap::AttnKv, KvPart::Window), (Tap::AttnCkv, KvPart::Entries), (Tap::AttnIndexK, KvPart::IndexKeys)]
            {
                let Some(recorded) = seen.get(Site::layer(l, tap), 0) else { continue };
                kv.insert((0, part), recorded.tensor.as_f32("kv").unwrap().to_vec());
            }
            let replay = Replay(kv);
            let values = &x.data.as_f32("x").unwrap()[run.start * width..run.end * width];
            let mut shape = x.data.shape.clone();
            shape[0] = run.len();
            let part = Streams { rows: x.rows[run.clone()].into(), data: Tensor::f32(shape, values.to_vec()) };
            let mut some = Recorder::all();
            let mut lanes = [Lane { kv: Kv::Given(&replay), ..Lane::new(&part, &mut some) }];
            layer.run(&mut lanes).unwrap();
            let [lane] = lanes;
            let values = &out.data.as_f32("out").unwrap()[run.start * width..run.end * width];
            assert_eq!(lane.out.unwrap().streams.data.as_f32("out").unwrap(), values, "layer {l}: {run:?}");
            // Entries that the run can make by itself are the whole run's, and no others are shown.
            for tap in [Tap::AttnCkv, Tap::AttnIndexK] {
                let (Some(whole), Some(own)) = (seen.get(Site::layer(l, tap), 0), some.get(Site::layer(l, tap), 0))
                else {
                    continue;
                };
                let width = whole.tensor.width();
                for (i, row) in own.rows.iter().enumerate() {
                    let of = |r: &karat_seam::Recorded, i: usize| {
                        r.tensor.as_f32("e").unwrap()[i * width..(i + 1) * width].to_vec()
                    };
                    assert_eq!(of(own, i), of(whole, row.pos as usize), "layer {l}: {run:?}: entry {}", row.pos);
                }
            }
        }
        // Rows that the view lacks are an error, not zeros.
        let none = Replay(BTreeMap::new());
        let part = Streams {
            rows: x.rows[200..201].into(),
            data: Tensor::f32([1, x.data.shape[1], x.data.shape[2]], vec![0.5; width]),
        };
        let mut see = NoTaps;
        let failed = layer.run(&mut [Lane { kv: Kv::Given(&none), ..Lane::new(&part, &mut see) }]);
        assert!(failed.unwrap_err().to_string().contains("lacks Window rows"));
        x = out;
    }
}

#[test]
fn an_mtp_block_keeps_the_same_promises() {
    let golden = golden(&[20], Mode::F32);
    let (x, _) = cold_run(&golden, &mut NoTaps).unwrap();
    let next: Vec<u32> = (0..20).collect();
    let mut seen = Recorder::all();
    let mut blind = NoTaps;
    let logits = golden.mtp(0, &mut [Lane::new(&x, &mut seen), Lane::new(&x, &mut blind)], &next).unwrap();
    assert_eq!(logits[0], logits[1]);
    let site = |name: &str| format!("mtp.0.{name}").parse::<Site>().unwrap();
    assert_eq!(seen.get(site("logits"), 0).unwrap().tensor, logits[0]);
    assert!(
        ["embed", "in", "attn.o", "ffn.idx", "out", "h_final", "head.collapsed"]
            .iter()
            .all(|n| seen.get(site(n), 0).is_some())
    );
    let mut change = Change(site("attn.out"), 0);
    assert_ne!(golden.mtp(0, &mut [Lane::new(&x, &mut change)], &next).unwrap()[0], logits[0]);
    let mut other = next.clone();
    other[7] = 300;
    let changed = golden.mtp(0, &mut [Lane::new(&x, &mut NoTaps)], &other).unwrap();
    let row = |t: &Tensor, r: usize| bits(t)[r * 512..(r + 1) * 512].to_vec();
    assert_eq!(row(&changed[0], 6), row(&logits[0], 6));
    assert_ne!(row(&changed[0], 7), row(&logits[0], 7));
    assert!(golden.mtp(1, &mut [Lane::new(&x, &mut NoTaps)], &next).is_err());
    assert!(golden.mtp(0, &mut [Lane::new(&x, &mut NoTaps)], &next[1..]).is_err());
    assert!(golden.mtp(0, &mut [Lane::new(&x, &mut NoTaps)], &[512; 20]).is_err());
}

#[test]
fn the_identity_covers_what_the_numbers_depend_on() {
    let a = golden(&[4, 5], Mode::F32);
    assert_eq!(a.identity(), golden(&[4, 5], Mode::F32).identity());
    assert_eq!(a.identity(), Golden::new(tiny(), requests(&[4, 5]), Mode::F32, 1).unwrap().identity());
    assert_ne!(a.identity(), golden(&[4, 5], Mode::F64).identity());
    assert_ne!(a.identity(), golden(&[5, 4], Mode::F32).identity());
    let mut files = tiny_v4_files();
    let mut bytes = files["model.safetensors"].to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    files.insert("model.safetensors".into(), bytes.into());
    let other = Arc::new(Checkpoint::from_memory("other", files).unwrap());
    assert_ne!(a.identity(), Golden::new(other, requests(&[4, 5]), Mode::F32, 2).unwrap().identity());
}

#[test]
fn bad_requests_are_refused_by_name() {
    let seqs = vec![Sequence::prompt("a", vec![1, 2]), Sequence::prompt("b", vec![3, 512])];
    let error = Golden::new(tiny(), Requests { seqs }, Mode::F32, 1).err().unwrap();
    assert_eq!(error.kind, karat_model::ErrorKind::Input);
    let text = error.to_string();
    assert!(["sequence `b`", "position 1", "512"].iter().all(|part| text.contains(part)), "{text}");
    let empty = Requests { seqs: vec![Sequence::prompt("c", vec![])] };
    assert!(Golden::new(tiny(), empty, Mode::F32, 1).err().unwrap().to_string().contains("sequence `c`"));

    let golden = golden(&[4, 3], Mode::F32);
    let x = golden.embed(&mut NoTaps).unwrap();
    let layer = golden.layer(0).unwrap();
    let refused = |order: &[usize], what: &str| {
        let rows: Arc<[RowId]> = order.iter().map(|&i| x.rows[i]).collect();
        let values = x.data.as_f32("x").unwrap();
        let width = x.data.width();
        let data = order.iter().flat_map(|&i| values[i * width..(i + 1) * width].to_vec()).collect();
        let streams = Streams { rows, data: Tensor::f32([order.len(), 4, 128], data) };
        let error = layer.run(&mut [Lane::new(&streams, &mut NoTaps)]).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refused(&[0, 2, 1, 3], "out of order");
    refused(&[1, 2, 3], "start at position 1");
    refused(&[0, 1, 4, 5, 0, 1], "comes twice");
    let narrow = Streams { rows: x.rows.clone(), data: Tensor::f32([7, 4, 64], vec![0.0; 7 * 4 * 64]) };
    assert!(layer.run(&mut [Lane::new(&narrow, &mut NoTaps)]).unwrap_err().to_string().contains("expected shape"));
    let double = Streams { rows: x.rows.clone(), data: Tensor::f64([7, 4, 128], vec![0.0; 7 * 4 * 128]) };
    assert!(layer.run(&mut [Lane::new(&double, &mut NoTaps)]).is_err());
    let mut choices = Choices::default();
    choices.by_layer.insert((0, 0), LayerChoices { experts: vec![9; 12], entries: vec![] });
    let mut see = NoTaps;
    let mut lane = Lane::new(&x, &mut see);
    lane.routing = Routing::Forced(&choices);
    assert!(layer.run(&mut [lane]).unwrap_err().to_string().contains("expert 9"));
    // The MTP block follows the layers.
    assert!(golden.layer(5).is_ok() && golden.layer(6).is_err());
}

//! Golden against the oracle: numbers that other people's code (transformers, an independent port) computed from the
//! same tiny checkpoint. Logits within 2e-5 of their max, every tap within 1e-5 of its max, every decision identical.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_reference::decode::Decoder;
use karat_reference::linalg::Isa;
use karat_reference::{Angles, Golden, Mode, NUMERICS_VERSION, Rope, Session};
use karat_seam::{Block, Data, Lane, NoTaps, Op, Path, Recorder, Requests, RowId, Sequence, Site, Tap, Tensor};
use karat_tests::{cold_run, long_rows, oracle, read_safetensors, rel_max, tiny_v4_files};
use sha2::{Digest, Sha256};

const LOGITS: f64 = 2e-5;
const TAPS: f64 = 1e-5;

fn tiny() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("tiny-v4", tiny_v4_files()).unwrap())
}

fn ids(oracle: &BTreeMap<String, Tensor>, name: &str) -> Vec<u32> {
    oracle[name].as_i64(name).unwrap().iter().map(|&v| v as u32).collect()
}

fn requests(ids: Vec<u32>) -> Requests {
    Requests { seqs: vec![Sequence::prompt("a", ids)] }
}

fn hash(tensor: &Tensor) -> String {
    let mut sha = Sha256::new();
    for v in tensor.as_f32("logits").unwrap() {
        sha.update(v.to_bits().to_le_bytes());
    }
    sha.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Rows of axis 0 that the oracle kept.
fn keep(tensor: &Tensor, rows: &[usize]) -> Tensor {
    let width = tensor.width();
    fn pick<T: Copy>(v: &[T], rows: &[usize], width: usize) -> Vec<T> {
        rows.iter().flat_map(|&r| v[r * width..(r + 1) * width].iter().copied()).collect()
    }
    let mut shape = tensor.shape.clone();
    shape[0] = rows.len();
    let data = match &tensor.data {
        Data::F32(v) => Data::F32(pick(v, rows, width)),
        Data::I64(v) => Data::I64(pick(v, rows, width)),
        Data::U8(v) => Data::U8(pick(v, rows, width)),
        Data::F64(v) => Data::F64(pick(v, rows, width)),
    };
    Tensor::new(shape, data)
}

/// Checks all taps of an oracle file; returns how many tensors and the worst relative difference.
fn compare(name: &str, rows: &[usize]) -> (usize, f64) {
    let oracle = oracle(name);
    let golden = Golden::new(tiny(), requests(ids(&oracle, "input_ids")), Mode::F32, 2).unwrap();
    let mut seen = Recorder::all();
    let (streams, logits) = cold_run(&golden, &mut seen).unwrap();
    let found = rel_max(logits.as_f32("logits").unwrap(), oracle["logits"].as_f32("logits").unwrap());
    assert!(found <= LOGITS, "logits of {name}: {found:e}");
    println!("{name}: logits {found:.2e}");

    let next = ids(&oracle, "mtp_next_ids");
    let mtp = golden.mtp(0, &mut [Lane::new(&streams, &mut NoTaps)], &next).unwrap();
    let (got, want) = match oracle.get("port.mtp_logits") {
        Some(want) => (mtp[0].clone(), want),
        None => (keep(&mtp[0], rows), &oracle["port.mtp_logits@rows"]),
    };
    let found = rel_max(got.as_f32("mtp").unwrap(), want.as_f32("mtp").unwrap());
    assert!(found <= LOGITS, "MTP logits of {name}: {found:e}");
    println!("{name}: MTP logits {found:.2e}");

    let (mut count, mut worst) = (0, 0f64);
    for (key, want) in &oracle {
        let (tap_key, cut) = key.strip_suffix("@rows").map_or((key.as_str(), false), |key| (key, true));
        let Some((_, tap_name)) = tap_key.split_once('.').filter(|(from, _)| ["hf", "port"].contains(from)) else {
            continue;
        };
        let Ok(site) = tap_name.parse::<Site>() else {
            assert_eq!(tap_name, "mtp_logits", "a tap of the oracle that we do not know");
            continue;
        };
        count += 1;
        let Some(recorded) = seen.get(site, 0) else {
            assert_eq!(want.rows(), 0, "{key} was not visited");
            continue;
        };
        let got = if cut {
            let kept: Vec<usize> = rows.iter().copied().filter(|&r| r < recorded.tensor.rows()).collect();
            keep(&recorded.tensor, &kept)
        } else {
            recorded.tensor.clone()
        };
        assert_eq!(got.shape, want.shape, "{key}");
        match (&got.data, &want.data) {
            (Data::F32(got), Data::F32(want)) if site.tap != Tap::FfnWt => {
                let found = rel_max(got, want);
                assert!(found <= TAPS, "{key}: {found:e}");
                worst = worst.max(found);
            }
            (Data::F32(_), Data::F32(_)) => {} // weights follow the order of the slots: compared with the experts below
            (Data::U8(got), Data::U8(want)) => assert_eq!(got, want, "{key}"),
            (Data::I64(got), Data::I64(want)) => {
                let k = recorded.tensor.shape[1];
                let weights =
                    |of: &BTreeMap<String, Tensor>| of[&key.replace("idx", "wt")].as_f32(key).unwrap().to_vec();
                let wt_site = Site { tap: Tap::FfnWt, ..site };
                let mine = seen.get(wt_site, 0).unwrap().tensor.as_f32(key).unwrap().to_vec();
                let sorted = |idx: &[i64], wt: &[f32]| {
                    let mut pairs: Vec<(i64, f32)> = idx.iter().copied().zip(wt.iter().copied()).collect();
                    pairs.sort_by_key(|pair| pair.0);
                    pairs
                };
                let theirs = weights(&oracle);
                for t in 0..want.len() / k {
                    let range = t * k..(t + 1) * k;
                    let a = sorted(&got[range.clone()], &mine[range.clone()]);
                    let b = sorted(&want[range.clone()], &theirs[range]);
                    for (a, b) in a.iter().zip(&b) {
                        assert_eq!(a.0, b.0, "{key}: expert of row {t}");
                        assert!((a.1 - b.1).abs() <= TAPS as f32 * 1.5, "{key}: weight of row {t}");
                    }
                }
            }
            (got, want) => panic!("{key}: {} against {}", got.dtype(), want.dtype()),
        }
    }
    (count, worst)
}

#[test]
fn short_prompt() {
    let (count, worst) = compare("short", &[]);
    println!("short: {count} taps, worst {worst:.2e}");
    assert!(count > 100, "{count}");
}

#[test]
fn long_prompt() {
    let (count, worst) = compare("long", &long_rows());
    println!("long: {count} taps, worst {worst:.2e}");
    assert!(count > 100, "{count}");
}

/// A later, faster version must give the same bits (numerics version 1), on every instruction set that this machine has.
#[test]
fn golden_bits() {
    assert_eq!(NUMERICS_VERSION, 1);
    let bits = |name: &str, isa: Isa| {
        let golden = Golden::new(tiny(), requests(ids(&oracle(name), "input_ids")), Mode::F32, 2).unwrap().on(isa);
        hash(&cold_run(&golden, &mut NoTaps).unwrap().1)
    };
    let want = [
        ("short", "b5090d31641de639c9204559136fd6ae99cf87dd2dbcab0147982c02d0fe3229"),
        ("long", "b590e1a82df5ec1bec457aad176b34166379cd56ac286b674a0606f9cf48050d"),
    ];
    for &isa in Isa::available() {
        // Plain code calls a library for each fma: the long one would take it a minute.
        for (name, want) in &want[..if isa == Isa::Scalar { 1 } else { 2 }] {
            assert_eq!(bits(name, isa), *want, "logits bits of oracle-{name} on {isa:?}");
        }
    }
}

/// The oracle's state dump, one to one, in both ways of getting there; then 40 tokens by greedy decoding.
#[test]
fn state_and_greedy_tokens() {
    let (ops, long) = (oracle("ops"), oracle("long"));
    let prompt = ids(&long, "input_ids");
    let golden = Golden::new(tiny(), requests(prompt.clone()), Mode::F32, 2).unwrap();
    let mut seen = Recorder::new(|site| site.tap.is_state());
    cold_run(&golden, &mut seen).unwrap();
    let mut session = Session::new(&golden).unwrap();
    let mut logits = session.extend(&prompt, &mut NoTaps).unwrap();
    let of_session: BTreeMap<Site, Tensor> = session.state().unwrap().into_iter().collect();
    let names = [
        ("wpos", "win_pos"),
        ("win", "win"),
        ("c.entries", "ckv"),
        ("c.kv", "pend_kvp"),
        ("c.score", "pend_score"),
        ("c.prev_kv", "prev_kvp"),
        ("c.prev_score", "prev_score"),
        ("i.entries", "index_k"),
        ("i.kv", "index_pend_kvp"),
        ("i.score", "index_pend_score"),
        ("i.prev_kv", "index_prev_kvp"),
        ("i.prev_score", "index_prev_score"),
    ];
    let mut compared = 0;
    for (key, want) in ops.iter().filter(|(key, _)| key.starts_with("state.")) {
        let (layer, theirs) = key["state.".len()..].split_once('.').unwrap();
        let (_, ours) = names.iter().find(|(name, _)| *name == theirs).unwrap_or_else(|| panic!("{key}"));
        let site: Site = format!("state/layers.{layer}.{ours}").parse().unwrap();
        let got = &seen.get(site, 0).unwrap_or_else(|| panic!("{site} was not visited")).tensor;
        assert_eq!(got.shape, want.shape, "{key}");
        assert_eq!(got, &of_session[&site], "{key}: session against cold run");
        match (&got.data, &want.data) {
            (Data::F32(got), Data::F32(want)) => assert!(rel_max(got, want) <= TAPS, "{key}: {:e}", rel_max(got, want)),
            (got, want) => assert_eq!(got, want, "{key}"),
        }
        compared += 1;
    }
    assert_eq!(compared, seen.taps.keys().filter(|(site, _)| matches!(site.block, Block::Layer(_))).count());

    let mut greedy = Vec::new();
    for _ in 0..40 {
        let row = logits.as_f32("logits").unwrap();
        let last = &row[row.len() - 512..];
        let best = (0..512).fold(0, |best, i| if last[i] > last[best] { i } else { best });
        greedy.push(best as i64);
        logits = session.extend(&[best as u32], &mut NoTaps).unwrap();
    }
    assert_eq!(greedy, ops["greedy40"].as_i64("greedy40").unwrap());
}

fn hc_of(iterations: usize, ops: &BTreeMap<String, Tensor>) -> Vec<(Tap, Tensor)> {
    let mut files = tiny_v4_files();
    let config = String::from_utf8(files["config.json"].to_vec()).unwrap();
    let edited = config.replace("\"hc_sinkhorn_iters\": 20", &format!("\"hc_sinkhorn_iters\": {iterations}"));
    files.insert("config.json".into(), edited.into_bytes().into());
    let model = Arc::new(Checkpoint::from_memory("tiny-v4", files).unwrap());
    let golden = Golden::new(model, requests(vec![0; 5]), Mode::F32, 1).unwrap();
    let rows: Vec<RowId> = (0..5).map(|pos| RowId::new(0, pos)).collect();
    golden.layer(0).unwrap().op(Op::HcAttnPre, &[(Tap::Out, ops["hc.in"].clone())], &rows).unwrap()
}

#[test]
fn hyper_connection_vectors() {
    let ops = oracle("ops");
    let checks = [(20, vec!["hc.pre", "hc.post", "hc.comb"]), (1, vec!["hc.pre", "hc.post", "hc.comb_iters1"])];
    for (iterations, keys) in checks {
        let got = hc_of(iterations, &ops);
        for (key, (tap, got)) in keys.iter().zip(&got) {
            assert_eq!(got.shape, ops[*key].shape, "{key} is {}", tap.name());
            let found = rel_max(got.as_f32(key).unwrap(), ops[*key].as_f32(key).unwrap());
            assert!(found <= 1e-6, "{key} after {iterations} iterations: {found:e}");
        }
    }
}

#[test]
fn rope_vectors() {
    let ops = oracle("ops");
    let model = tiny();
    let positions: Vec<u32> = ids(&ops, "rope.pos");
    assert!(positions.contains(&65535) && positions.contains(&1_000_000));
    for (name, rope) in [("0", Rope::plain(model.config())), ("1", Rope::yarn(model.config()))] {
        let want = ops[&format!("rope.inv_freq{name}")].as_f32("inv_freq").unwrap().to_vec();
        assert_eq!(
            rope.inv_freq.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            want.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            "inv_freq{name}"
        );
        let angles = Angles::<f32>::at(&rope, positions.iter().copied());
        for (key, back) in [("out", false), ("inv", true)] {
            let mut x = ops["rope.in"].as_f32("rope.in").unwrap().to_vec();
            for (i, heads) in x.chunks_mut(2 * 96).enumerate() {
                if back { angles.rotate_back(i, heads, 96) } else { angles.rotate(i, heads, 96) }
            }
            let want = ops[&format!("rope.{key}{name}")].as_f32(key).unwrap();
            let found = rel_max(&x, want);
            assert!(found <= 1e-6, "rope.{key}{name}: {found:e}");
        }
    }
}

#[test]
fn dequantised_weights() {
    let model = tiny();
    let mut compared = 0;
    for (key, want) in oracle("ops").iter().filter(|(key, _)| key.starts_with("dequant.")) {
        let name = key["dequant.".len()..].strip_suffix(".weight").unwrap();
        let decoder = Decoder::new(model.linear(name).unwrap()).unwrap();
        let mut got = vec![0f32; want.data.len()];
        for (n, row) in got.chunks_mut(decoder.cols()).enumerate() {
            decoder.row(n, row);
        }
        assert_eq!(got, want.as_f32(key).unwrap(), "{key}");
        compared += 1;
    }
    assert_eq!(compared, 2);
}

/// The floor: f64 with the decisions of the f32 run differs by rounding only.
#[test]
fn the_f64_mode_is_the_same_model() {
    let ids = ids(&oracle("short"), "input_ids");
    let run = |mode| cold_run(&Golden::new(tiny(), requests(ids.clone()), mode, 1).unwrap(), &mut NoTaps).unwrap().1;
    let (single, double) = (run(Mode::F32), run(Mode::F64));
    let double: Vec<f32> = double.as_f64("logits").unwrap().iter().map(|&v| v as f32).collect();
    let found = rel_max(single.as_f32("logits").unwrap(), &double);
    println!("f32 against f64: {found:.2e}");
    assert!(found > 0.0 && found < 3e-6, "{found:e}");
}

/// The trained prototype is too large to commit: its folder comes from KARAT_PROTOTYPE.
#[test]
#[ignore = "slow: needs the prototype's folder in KARAT_PROTOTYPE"]
fn the_trained_prototype_recalls_everything() {
    let Ok(dir) = std::env::var("KARAT_PROTOTYPE") else {
        println!("left out: KARAT_PROTOTYPE does not name the prototype's folder");
        return;
    };
    let dir = FilePath::new(&dir);
    let json =
        |name: &str| -> serde_json::Value { serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap() };
    // The folder also holds logits, which are no part of a checkpoint.
    let file = |name: &str| (name.to_string(), Arc::<[u8]>::from(std::fs::read(dir.join(name)).unwrap()));
    let files = [file("config.json"), file("model.safetensors")].into();
    let model = Arc::new(Checkpoint::from_memory("prototype", files).unwrap());
    let port = read_safetensors(&std::fs::read(dir.join("port-logits.safetensors")).unwrap());
    let (tokens, answers) = (json("tokens.json"), json("answers.json"));
    let (mut recalled, mut asked, mut worst_margin, mut worst_logits, mut rows) = (0, 0, 0f64, 0f64, 0);
    let mut seconds = 0.0;
    for sequence in tokens["sequences"].as_array().unwrap() {
        let name = sequence["id"].as_str().unwrap();
        let ids: Vec<u32> =
            sequence["input_ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        let golden = Golden::new(model.clone(), requests(ids.clone()), Mode::F32, 2).unwrap();
        let start = std::time::Instant::now();
        let (_, logits) = cold_run(&golden, &mut NoTaps).unwrap();
        seconds += start.elapsed().as_secs_f64();
        rows += ids.len();
        let v = logits.shape[1];
        let logits = logits.as_f32("logits").unwrap();
        if let Some(want) = port.get(&format!("{name}/logits")) {
            let found = rel_max(logits, want.as_f32(name).unwrap());
            worst_logits = worst_logits.max(found);
            assert!(found <= LOGITS, "{name}: logits {found:e}");
        }
        for answer in answers.as_array().unwrap().iter().filter(|a| a["sequence"] == name) {
            let number = |key: &str| answer[key].as_u64().unwrap() as usize;
            let mut margin = f64::INFINITY;
            for at in number("start")..number("start") + number("length") {
                let row = &logits[(at - 1) * v..at * v];
                let target = ids[at] as usize;
                let other = (0..v).filter(|&i| i != target).map(|i| row[i]).fold(f32::NEG_INFINITY, f32::max);
                margin = margin.min(f64::from(row[target]) - f64::from(other));
            }
            asked += 1;
            recalled += usize::from(margin > 0.0);
            let apart = (margin - answer["worst_margin_f32"].as_f64().unwrap()).abs();
            worst_margin = worst_margin.max(apart);
        }
    }
    println!("prototype: logits {worst_logits:.2e}, recalled {recalled} of {asked}, margins within {worst_margin:.2e}");
    println!("prototype: {rows} tokens in {seconds:.1} s = {:.0} tokens/s on 2 threads", rows as f64 / seconds);
    assert_eq!((recalled, asked), (256, 256));
    assert!(worst_margin <= 1e-3, "{worst_margin:e}");
}

//! The diff engine (goal P5): core set and full set, in memory and from mapped files, f32 and narrower, each beside what
//! reading the same bytes costs, and beside other people's comparators taking turns.

use anyhow::Result;

use super::Setting;
use super::report::{Compared, Engine, Report};
use super::turns::{Times, turns};
use super::worker::Worker;

/// Element types and places in which the engine is measured.
const INPUTS: [(&str, &str); 5] =
    [("f32", "memory"), ("bf16", "memory"), ("e4m3", "memory"), ("f32", "mapped"), ("bf16", "mapped")];
/// Share of the read bandwidth that is asked for: in f32, of values that are decoded on the way.
const CORE: [f64; 2] = [0.65, 0.26];
const FULL: f64 = 0.33;
/// Of the lesser of the rate in memory and plain reading of the mapped files.
const MAPPED: f64 = 0.80;

/// A comparator of somebody else.
struct Peer {
    /// Its name in kernels_worker.py.
    name: &'static str,
    what: &'static str,
    dtype: &'static str,
    place: &'static str,
    /// Its turn comes once.
    slow: bool,
    /// The set that is put beside it.
    ours: &'static str,
    /// Least ratio of the times.
    goal: Option<f64>,
}

const fn peer(name: &'static str, what: &'static str, ours: &'static str, goal: Option<f64>) -> Peer {
    Peer { name, what, dtype: "f32", place: "memory", slow: false, ours, goal }
}

/// The goals' ratios, and what each computes.
const PEERS: [Peer; 12] = [
    peer("numpy-full", "numpy: rel-L2, largest, cosine, mean, NaN, histogram", "full", Some(24.0)),
    peer("numpy-core", "numpy: rel-L2, largest, cosine", "core", None),
    peer("torch-full", "torch: the same as numpy's first", "full", None),
    peer("assert-close", "torch.testing.assert_close", "full", Some(28.0)),
    peer("calc-diff", "calc_diff in double, as kernel tests have it", "core", None),
    Peer { slow: true, ..peer("sglang", "SGLang's compare_tensor_pair", "full", Some(60.0)) },
    Peer { slow: true, ..peer("sglang-per-token", "the same per token", "full", Some(100.0)) },
    Peer { slow: true, ..peer("polygraphy", "Polygraphy's CompareFunc.simple", "full", Some(400.0)) },
    Peer { dtype: "bf16", ..peer("torch-full", "torch: as above, bf16 tensors", "full", None) },
    Peer { dtype: "bf16", slow: true, ..peer("sglang", "SGLang's, bf16 tensors", "full", None) },
    Peer { place: "mapped", ..peer("numpy-full", "numpy: as above, mapped files", "full", None) },
    Peer { place: "mapped", ..peer("torch-full", "torch: as above, safetensors' load_file", "full", None) },
];

/// Measures and reports them.
pub(super) fn measure(setting: &Setting<'_>, report: &mut Report, diff: &mut Worker, peer: &mut Worker) -> Result<()> {
    let mib = setting.args.mib;
    let bytes = pair_bytes(mib);
    let mut rates: Vec<(&str, &str, &str, f64)> = Vec::new();
    for (dtype, place) in INPUTS {
        println!("peers: diff engine, {dtype} in {place}");
        let rounds = setting.args.rounds.max(2);
        let time = |diff: &mut Worker, set: &str| diff.seconds(&format!("{set} {mib} {dtype} {place}"));
        // Where bytes can't be read in memory as numbers the files tell what reading them costs.
        let read = match place {
            "mapped" => format!("cat {mib} {dtype}"),
            _ => format!("read {mib} f32"),
        };
        let mut all = [Times::default(), Times::default(), Times::default()];
        // A warm-up, then core, full and plain reading in turns.
        time(diff, "core")?;
        for _ in 0..rounds {
            all[0].0.push(time(diff, "core")?);
            all[1].0.push(time(diff, "full")?);
            if place == "mapped" {
                all[2].0.push(diff.seconds(&read)?);
            }
        }
        let rate = |t: &Times| bytes / t.best() / 1e9;
        let ceiling = if place == "mapped" { rate(&all[2]) } else { report.read_peak() };
        for (set, times) in [("core", &all[0]), ("full", &all[1])] {
            let found = rate(times);
            let row = Engine { set, dtype, place, rate: found, ceiling, spread: times.worst() / times.best() };
            report.engine(row);
            let what = format!("{set} set, {dtype} in memory: share of read bandwidth");
            match (place, set, dtype) {
                ("memory", "core", "f32") => report.goal("P5", &what, found / ceiling, CORE[0], true),
                ("memory", "full", "f32") => report.goal("P5", &what, found / ceiling, FULL, true),
                ("memory", "core", _) => report.goal("P5", &what, found / ceiling, CORE[1], true),
                ("mapped", ..) => {
                    let memory = rates.iter().find(|r| r.0 == set && r.1 == dtype).map_or(f64::INFINITY, |r| r.3);
                    let what =
                        format!("{set} set, {dtype} from mapped files: of the lesser of memory and plain reading");
                    report.goal("P5", &what, found / memory.min(ceiling), MAPPED, true);
                }
                _ => {}
            }
            rates.push((set, dtype, place, found));
        }
    }
    for p in PEERS.iter().filter(|_| !setting.args.no_comparators) {
        println!("peers: comparator {}, {} in {}", p.name, p.dtype, p.place);
        let rounds = if p.slow { 1 } else { setting.args.rounds };
        let ours = || diff.seconds(&format!("{} {mib} {} {}", p.ours, p.dtype, p.place));
        let folder = setting.folder.display().to_string();
        let command = format!("compare {} {mib} {} {} {folder}", p.name, p.dtype, p.place);
        let (ours, theirs) = turns(rounds, ours, || peer.seconds(&command))?;
        let ratio = theirs.best() / ours.best();
        report.compared(Compared { what: p.what, set: p.ours, rate: bytes / theirs.best() / 1e9, ratio });
        if let Some(goal) = p.goal {
            report.goal("P5", &format!("full set, times {}", p.what), ratio, goal, true);
        }
    }
    Ok(())
}

/// Bytes of two tensors of so many MiB.
pub(super) fn pair_bytes(mib: u16) -> f64 {
    2.0 * f64::from(mib) * f64::from(1u32 << 20)
}

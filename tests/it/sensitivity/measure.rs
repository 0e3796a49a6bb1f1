//! Runs the candidates, in pieces: what was measured is kept until the sources change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use karat_audit::{Candidate, Inputs, Job, Kept, Quiet};
use karat_diff::Claims;
use karat_faults::{Bench, PLACED};
use karat_model::Checkpoint;
use karat_optimized::{History, Optimized, Plan, Stock, patches};
use karat_seam::Path as _;
use sha2::{Digest, Sha256};

use super::line::Line;

pub(super) const STOCK: &str = "stock";

/// Every candidate of the table, in its order.
pub(super) fn names() -> Vec<&'static str> {
    let patches = patches().iter().map(|p| p.name);
    std::iter::once(STOCK).chain(patches).chain(PLACED.iter().map(|p| p.id)).collect()
}

/// Answers are decoded onto the carried state.
fn plan(patches: Vec<String>) -> Plan {
    Plan { stock: Stock::Official, patches, history: History::Decoded }
}

/// What a candidate of the table does, against golden.
pub(super) fn measure(name: &str, golden: &Kept<'_>, checkpoint: &Arc<Checkpoint>, inputs: &Inputs) -> Line {
    let hear = |path: &dyn karat_seam::Path| golden.hear(&Candidate::new(name, path, Claims::Official));
    let heard = match PLACED.iter().find(|p| p.id == name) {
        Some(placed) => {
            let bench = Bench::on(karat_golden::files(), inputs.requests.clone(), plan(Vec::new()), 2).unwrap();
            bench.with_fault(placed.fault(), hear)
        }
        None => {
            let patches = if name == STOCK { Vec::new() } else { vec![name.to_string()] };
            let path = Optimized::new(checkpoint.clone(), inputs.requests.clone(), plan(patches), 2).unwrap();
            assert_eq!(path.requests(), &inputs.requests);
            hear(&path)
        }
    };
    Line::of(name, &heard.unwrap(), inputs)
}

/// All rows, those of earlier calls from their files; `None` when the time was over before the last.
pub(super) fn all(limit: Option<Duration>) -> Option<Vec<Line>> {
    let start = Instant::now();
    let folder = folder();
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(format!("{name}.json"));
    let known = |name: &&str| {
        let text = std::fs::read_to_string(file(name)).ok()?;
        Line::from_json(&serde_json::from_str(&text).ok()?)
    };
    let names = names();
    let missing: Vec<&str> = names.iter().copied().filter(|n| known(n).is_none()).collect();
    println!("{} of {} rows are to be measured", missing.len(), names.len());
    if !missing.is_empty() {
        let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
        let inputs = super::sample::whole(&checkpoint);
        let stop = AtomicBool::new(false);
        let job = Job { threads: 2, ..Job::new(checkpoint.clone(), inputs.clone(), &Quiet, &stop) };
        let golden = Kept::of(&job).unwrap();
        println!("golden over {} tokens: {:.0} s", inputs.requests.rows().len(), start.elapsed().as_secs_f64());
        for (i, name) in missing.iter().enumerate() {
            let begun = Instant::now();
            // A row takes about as long as the one before: none is begun that can't be ended.
            let each = start.elapsed() / (i as u32 + 1);
            if limit.is_some_and(|limit| start.elapsed() + each > limit) {
                println!("{} rows are left: run the command again", missing.len() - i);
                return None;
            }
            let line = measure(name, &golden, &checkpoint, &inputs);
            std::fs::write(file(name), line.to_json().to_string()).unwrap();
            let (kept, asked) = (line.all.kept, line.all.asked);
            println!("{name}: {kept} of {asked}, mean KL {:.1e}; {:.0} s", line.kl, begun.elapsed().as_secs_f64());
        }
    }
    names.iter().map(known).collect()
}

/// Where rows are kept: by what they follow from.
fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut hash = Sha256::new();
    let crates =
        ["model", "seam", "reference", "optimized", "diff", "bundle", "audit", "faults", "scenarios", "golden"];
    crates.iter().for_each(|name| add(&mut hash, &root.join(name)));
    for name in ["line", "measure", "sample"] {
        hash.update(std::fs::read(root.join(format!("tests/it/sensitivity/{name}.rs"))).unwrap());
    }
    let hex: String = hash.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect();
    root.join("target/sensitivity").join(hex)
}

/// Contents of all files below a folder, in the order of their names.
fn add(hash: &mut Sha256, folder: &Path) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        match entry.is_dir() {
            true => add(hash, &entry),
            false => hash.update(std::fs::read(&entry).unwrap()),
        }
    }
}

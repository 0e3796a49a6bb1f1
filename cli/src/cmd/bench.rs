//! `karat bench`: how fast each kernel is, beside what it errs.

use std::path::PathBuf;

use clap::Args;
use karat_bundle::{Bundle, PatchRow};
use karat_kernels::bench::{BenchRow, table};
use karat_kernels::evidence::Evidence;
use karat_model::Plain;
use serde_json::{Value, json};

use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::output::{self, json_number};

/// `karat bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Show what was measured before, perhaps elsewhere, e.g. kernels/evidence/nvidia-h200.json. Without it the GPU of this machine is
    /// measured, where this karat has CUDA
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pack", "peers", "seeds", "out"])]
    evidence: Option<PathBuf>,
    /// Compiled kernels, from cargo xtask kernels build
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
    /// Python script that times PyTorch beside them: kernels/peers/torch_peers.py of the sources; no peers without it
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Seeds of each kernel's errors
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Keep what was measured, for --evidence
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A bundle of karat audit: what each patch adds to the whole model beside what its kernel errs
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Only rows that hold this word in kernel, operation, shape or patch
    #[arg(long, value_name = "WORD")]
    filter: Option<String>,
}

pub(crate) fn run(args: &Bench, globals: Globals) -> Result<u8> {
    let (evidence, broken) = match &args.evidence {
        Some(path) => (Evidence::read(path)?, Vec::new()),
        None => measure(args, globals)?,
    };
    let audit = args.bundle.as_deref().map(karat_bundle::read).transpose()?;
    let word = args.filter.as_deref().unwrap_or_default();
    let has = |row: &BenchRow| {
        [row.image.as_str(), &row.operation, &row.shape, row.patch.unwrap_or_default()].iter().any(|s| s.contains(word))
    };
    let rows: Vec<BenchRow> = table(&evidence).into_iter().filter(has).collect();
    if rows.is_empty() {
        return Err(Failure::usage(format!("--filter {word}: no row holds that")));
    }
    if globals.json {
        output::json(&as_json(&evidence, &rows, audit.as_ref()));
    } else {
        output::page(&text(&evidence, &rows, audit.as_ref()));
    }
    if !broken.is_empty() {
        return Err(Failure::retry(&format!("parts without a result, or not all of it: {}", broken.join("; "))));
    }
    Ok(u8::from(args.evidence.is_none() && !evidence.correct()))
}

/// Measures the GPU of this machine. Gives the parts that failed, with the reason.
#[cfg(feature = "cuda")]
fn measure(args: &Bench, globals: Globals) -> Result<(Evidence, Vec<String>)> {
    use karat_kernels::cuda::Device;
    use karat_kernels::suite::{Asked, Part, Suite, part_names};
    let Some(pack) = &args.pack else {
        return Err(Failure::usage(
            "karat bench: --pack DIR is needed, what `cargo xtask kernels build` made; --evidence FILE needs no GPU",
        ));
    };
    let pack = Asked { pack, peers: args.peers.as_deref(), out: args.out.as_deref() }.check()?;
    let device =
        Device::open().map_err(|e| Failure::usage(format!("karat bench: {e}; --evidence FILE needs no GPU")))?;
    let date = super::gate::now().to_string();
    let mut suite = Suite::new(device, pack, args.peers.as_deref(), date, args.seeds)?;
    let word = args.filter.as_deref().unwrap_or_default();
    let narrows = part_names().any(|name| name.contains(word));
    let wants = |name: &str| name == "ceilings" || !narrows || name.contains(word);
    let mut broken = Vec::new();
    let mut show = |part: &Part<'_>| {
        if let Some(error) = &part.error {
            broken.push(format!("{}: {error}", part.name));
        }
        if !globals.quiet {
            output::stderr(&format!("{}: {:.1} s", part.name, part.took.as_secs_f64()));
        }
        Ok(())
    };
    suite.run(&wants, &mut show)?;
    // A file without the rows of a part that failed would look like one of a run that was asked for fewer.
    match &args.out {
        Some(path) if broken.is_empty() => {
            suite.evidence.write(path).map_err(|e| Failure::retry(&e.to_string()))?;
        }
        Some(path) => broken.push(format!("{} was not written", path.display())),
        None => (),
    }
    Ok((suite.evidence, broken))
}

/// This program measures no GPU.
#[cfg(not(feature = "cuda"))]
fn measure(_: &Bench, _: Globals) -> Result<(Evidence, Vec<String>)> {
    Err(Failure::usage(
        "karat bench: this build has no CUDA; `cargo build --release -p karat-cli --features cuda` makes one that measures the GPU of \
         its machine; --evidence FILE shows what was measured elsewhere",
    ))
}

/// Where, when and beside what.
fn origin(evidence: &Evidence) -> String {
    let (d, ceilings) = (&evidence.device, &evidence.ceilings);
    let peers: Vec<String> = evidence.peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let rate = |name: &str| ceilings.get(name).map_or_else(|| "not measured".to_string(), |v| format!("{v:.3}"));
    let beside = if peers.is_empty() { "without peers".to_string() } else { format!("beside {}", peers.join(", ")) };
    format!(
        "measured on {} ({}, {} multiprocessors, driver API {}), {}, {beside}\nceilings of that run: copy {} TB/s, mma.sync {} \
         TFLOP/s\n",
        Plain(&d.name),
        Plain(&d.arch),
        d.processors,
        d.driver,
        Plain(&evidence.date),
        rate("copy_tb_s"),
        rate("mma_tflop_s"),
    )
}

/// What an audit says of a patch; options count only where the audit had the same.
fn audited<'a>(bundle: Option<&'a Bundle>, patch: Option<&str>) -> Option<&'a PatchRow> {
    let name = patch?.split(':').next()?;
    bundle?.patches.iter().find(|row| row.patch == name)
}

fn text(evidence: &Evidence, rows: &[BenchRow], bundle: Option<&Bundle>) -> String {
    let mut out = origin(evidence);
    if !evidence.correct() {
        out.push_str("that run did not hold its own error bounds: read no speed out of it\n");
    }
    let mut last = (String::new(), String::new());
    for row in rows {
        let here = (row.operation.clone(), row.shape.clone());
        if here != last {
            out.push_str(&format!("\n{}, {}\n", Plain(&row.operation), Plain(&row.shape)));
            out.push_str(&peers(row));
            out.push_str(&format!(
                "  {:<18} {:>9} {:>10} {:>7} {:>5} {:>5} {:>8} {:>8} {:>9}  {}\n",
                "kernel",
                "us",
                "naive f32",
                "x naive",
                "copy",
                "mma",
                "error",
                "x peer",
                "per 1e-3",
                "against the least error"
            ));
            last = here;
        }
        out.push_str(&line(row));
    }
    out.push_str(&patches(rows, bundle));
    out.push_str(
        "\nx peer: times as fast as the quickest peer; per 1e-3: that for each 1e-3 of error (rel-L2 against f64, the largest of the \
         run's seeds); copy, mma: share of the ceilings; naive f32: microseconds of the counterpart with one thread an output, x naive: \
         times as fast as it.\n",
    );
    out.push_str(&untimed(rows));
    out
}

/// Why naive counterparts have no time, once a reason.
fn untimed(rows: &[BenchRow]) -> String {
    if rows.iter().all(|row| row.naive.is_none()) {
        return "Naive counterparts are in the errors, that run did not time them.\n".to_string();
    }
    let mut out = String::new();
    for row in rows {
        let Some(Err(why)) = row.naive.as_ref().map(|naive| &naive.timed) else { continue };
        let line =
            format!("not timed: naive f32 of {}, {}: {}\n", Plain(&row.operation), Plain(&row.shape), Plain(why));
        if !out.contains(&line) {
            out.push_str(&line);
        }
    }
    out
}

fn peers(row: &BenchRow) -> String {
    let shown: Vec<String> = row.peers.iter().map(|(name, us, _)| format!("{} {us:.1} us", Plain(name))).collect();
    let peers = if shown.is_empty() { "none".to_string() } else { shown.join(", ") };
    format!("  peers: {peers}\n")
}

fn line(row: &BenchRow) -> String {
    let share = |v: Option<f64>| v.map_or_else(|| "-".to_string(), |v| format!("{:.0}%", 100.0 * v));
    let number = |v: Option<f64>| v.map_or_else(|| "-".to_string(), |v| format!("{v:.1e}"));
    let times = row.quickest().map_or_else(|| "-".to_string(), |p| format!("{:.2}", p.2));
    let bought =
        row.bought().map_or_else(|| "-".to_string(), |b| if b < 1e4 { format!("{b:.2}") } else { format!("{b:.0e}") });
    let exact = row.exact.as_ref().map_or_else(String::new, |(image, times, error)| {
        format!("{times:.2} times {} for {} instead of {error:.1e}", Plain(image), number(row.error))
    });
    let line = format!(
        "  {:<18} {:>9.1} {:>10} {:>7} {:>5} {:>5} {:>8} {times:>8} {bought:>9}  {exact}",
        Plain(&row.image).to_string(),
        row.us,
        row.naive().map_or_else(|| "-".to_string(), |(us, _)| format!("{us:.1}")),
        row.naive().map_or_else(|| "-".to_string(), |(_, times)| format!("{times:.1}")),
        share(row.of_copy),
        share(row.of_mma),
        number(row.error)
    );
    format!("{}\n", line.trim_end())
}

/// A line a patch: the least and the most that it brings over the quickest peer, beside what it errs alone and in the model.
fn patches(rows: &[BenchRow], bundle: Option<&Bundle>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.image != "select") {
        if let Some(patch) = row.patch.filter(|p| !names.contains(p)) {
            names.push(patch);
        }
    }
    let mut out = String::from("\nwhat the error of each patch bought\n");
    for name in names {
        let of: Vec<&BenchRow> = rows.iter().filter(|r| r.patch == Some(name) && r.image != "select").collect();
        let error = of.iter().filter_map(|r| r.error).reduce(f64::max);
        let times: Vec<f64> = of.iter().filter_map(|r| r.quickest().map(|p| p.2)).collect();
        let error = error.map_or_else(|| "-".to_string(), |e| format!("{e:.1e}"));
        let speed = match (times.iter().copied().reduce(f64::min), times.iter().copied().reduce(f64::max)) {
            (Some(low), Some(high)) => format!("{low:.2} to {high:.2} times the quickest peer"),
            _ => "no peer was measured".to_string(),
        };
        let model = audited(bundle, Some(name)).map_or_else(String::new, |row| {
            let number = |v: Option<f64>| v.map_or_else(|| "-".to_string(), |v| format!("{v:.1e}"));
            let (own, kl) = (number(row.measured_error), number(row.added_kl));
            let options = if name.contains(':') { " (audited with that run's own options)" } else { "" };
            format!("; in the audited model {own} at its ops, {kl} nats of KL added{options}")
        });
        out.push_str(&format!("  {name:<30} error {error:>8}: {speed}{model}\n"));
    }
    out
}

fn as_json(evidence: &Evidence, rows: &[BenchRow], bundle: Option<&Bundle>) -> Value {
    let number = |v: Option<f64>| v.map(json_number);
    let one = |row: &BenchRow| {
        let of_audit = audited(bundle, row.patch);
        let peers: Vec<Value> = row
            .peers
            .iter()
            .map(
                |(name, us, times)| json!({"peer": name, "us": json_number(*us), "times_as_fast": json_number(*times)}),
            )
            .collect();
        let exact = row.exact.as_ref();
        let naive = row.naive.as_ref().map(|naive| {
            let timed = naive.timed.as_ref().ok();
            json!({"kernel": naive.image, "us": number(timed.map(|t| t.0)), "times_as_fast": number(timed.map(|t| t.1)),
                "skipped": naive.timed.as_ref().err()})
        });
        json!({
            "kernel": row.image, "operation": row.operation, "shape": row.shape, "patch": row.patch, "us": json_number(row.us),
            "drift": json_number(row.drift), "naive": naive, "peers": peers, "share_of_copy": number(row.of_copy),
            "share_of_mma": number(row.of_mma), "error": number(row.error), "naive_error": number(row.naive_error),
            "times_as_fast_per_1e-3": number(row.bought()),
            "least_error": exact.map(|(image, times, error)| json!({"kernel": image, "times_as_fast": times, "error": error})),
            "audit_error": of_audit.and_then(|r| r.measured_error).map(json_number),
            "audit_added_kl": of_audit.and_then(|r| r.added_kl).map(json_number),
        })
    };
    json!({
        "measured": {"device": evidence.device.name, "arch": evidence.device.arch, "driver": evidence.device.driver,
            "processors": evidence.device.processors, "date": evidence.date},
        "peers": evidence.peers, "ceilings": evidence.ceilings, "correct": evidence.correct(),
        "rows": rows.iter().map(one).collect::<Vec<_>>(),
    })
}

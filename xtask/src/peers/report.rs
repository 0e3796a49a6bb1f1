//! The report: what was measured, with which versions, on which machine, and which goals it meets.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

use super::fidelity::Fidelity;
use super::short;
use super::turns::Times;

/// One product.
pub(super) struct Row {
    pub(super) what: String,
    /// GFLOP/s.
    pub(super) ours: f64,
    pub(super) peers: Vec<(&'static str, f64)>,
    /// Of the FMA peak.
    pub(super) share: f64,
    /// Slowest over quickest of ours.
    pub(super) spread: f64,
}

/// One length of the model. Pairs are golden's and transformers'.
pub(super) struct ModelRow {
    pub(super) n: usize,
    pub(super) ours: Times,
    pub(super) theirs: Times,
    /// Least processor seconds of a pass.
    pub(super) cpu: [f64; 2],
    /// Largest resident size, MiB.
    pub(super) peak: [f64; 2],
    /// Seconds of a cached step.
    pub(super) decode: Option<(f64, f64)>,
}

/// One measurement of the diff engine.
pub(super) struct Engine {
    pub(super) set: &'static str,
    pub(super) dtype: &'static str,
    pub(super) place: &'static str,
    /// GB/s of both tensors' bytes.
    pub(super) rate: f64,
    /// GB/s of reading them.
    pub(super) ceiling: f64,
    /// Slowest over quickest.
    pub(super) spread: f64,
}

/// A comparator of somebody else.
pub(super) struct Compared {
    pub(super) what: &'static str,
    pub(super) set: &'static str,
    /// GB/s.
    pub(super) rate: f64,
    /// Times our speed.
    pub(super) ratio: f64,
}

struct Goal {
    name: &'static str,
    what: String,
    found: f64,
    asked: f64,
    met: bool,
    at_least: bool,
}

/// A report under construction.
pub(super) struct Report {
    date: String,
    threads: u16,
    machine: String,
    commit: String,
    /// What was not left to itself.
    held: String,
    versions: String,
    isa: String,
    fma: Vec<f64>,
    /// Read bandwidth, GB/s: our loop's and torch.dot's.
    read: (f64, f64),
    products: Vec<Row>,
    engine: Vec<Engine>,
    compared: Vec<Compared>,
    models: Vec<ModelRow>,
    fidelity: Vec<(usize, Fidelity)>,
    goals: Vec<Goal>,
}

impl Report {
    pub(super) fn new(root: &Path, threads: u16, built: Option<&Path>) -> Result<Self> {
        let said = |program: &str, args: &[&str]| -> String {
            let output = Command::new(program).args(args).current_dir(root).output();
            output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
        };
        let dirty = if said("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty() {
            ""
        } else {
            ", with local changes"
        };
        Ok(Self {
            date: date(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs()),
            threads,
            machine: machine(),
            commit: match built.and_then(|folder| std::fs::read_to_string(folder.join("commit")).ok()) {
                Some(commit) => format!("{}; programs built elsewhere and carried", commit.trim()),
                None => format!("{}{dirty}", said("git", &["rev-parse", "--short", "HEAD"])),
            },
            held: String::new(),
            versions: said("rustc", &["--version"]),
            isa: String::new(),
            fma: Vec::new(),
            read: (0.0, 0.0),
            products: Vec::new(),
            engine: Vec::new(),
            compared: Vec::new(),
            models: Vec::new(),
            fidelity: Vec::new(),
            goals: Vec::new(),
        })
    }

    pub(super) fn date(&self) -> &str {
        &self.date
    }

    pub(super) fn versions(&mut self, found: &Value, isa: &str) {
        for (name, version) in found.as_object().into_iter().flatten() {
            let _ = write!(self.versions, ", {name} {}", version.as_str().unwrap_or("?"));
        }
        isa.clone_into(&mut self.isa);
    }

    /// Says in the head of the report that something was not left to itself.
    pub(super) fn held(&mut self, what: &str) {
        self.held = format!("- {what}\n");
    }

    pub(super) fn fma(&mut self, gflops: f64) {
        self.fma.push(gflops);
    }

    /// The best that was seen in this run: the ceiling.
    pub(super) fn fma_peak(&self) -> f64 {
        self.fma.iter().copied().fold(0.0, f64::max)
    }

    pub(super) fn read(&mut self, ours: f64, dot: f64) {
        self.read = (ours, dot);
    }

    pub(super) fn read_peak(&self) -> f64 {
        self.read.0.max(self.read.1)
    }

    pub(super) fn product(&mut self, row: Row) {
        self.products.push(row);
    }

    pub(super) fn engine(&mut self, row: Engine) {
        self.engine.push(row);
    }

    pub(super) fn compared(&mut self, row: Compared) {
        self.compared.push(row);
    }

    pub(super) fn model(&mut self, row: ModelRow) {
        self.models.push(row);
    }

    pub(super) fn fidelity(&mut self, n: usize, found: Fidelity) {
        self.fidelity.push((n, found));
    }

    pub(super) fn goal(&mut self, name: &'static str, what: &str, found: f64, goal: f64, at_least: bool) {
        let met = if at_least { found >= goal } else { found <= goal };
        self.goals.push(Goal { name, what: what.to_owned(), found, asked: goal, met, at_least });
    }

    /// The whole text.
    pub(super) fn markdown(&self) -> String {
        let mut out = format!(
            "# Golden and the diff engine beside their peers, {}\n\n\
             Written by `cargo xtask peers`: one run, each pair taking turns (A B B A), {} threads each, the best of each\n\
             side. Ratios of one run hold; absolute times of two runs do not compare.\n\n\
             - machine: {}\n- commit: {}\n- versions: {}\n{}\n",
            self.date, self.threads, self.machine, self.commit, self.versions, self.held
        );
        if self.fma.is_empty() {
            out.push_str("Only the model was measured in this run.\n\n");
        } else {
            self.ceilings(&mut out);
        }
        self.model_tables(&mut out);
        self.kernel_tables(&mut out);
        out.push_str("## Goals\n\n| goal | what | found | asked | |\n|---|---|---|---|---|\n");
        for g in &self.goals {
            let sign = if g.at_least { "at least" } else { "at most" };
            let verdict = if g.met { "met" } else { "**short**" };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {sign} {} | {verdict} |",
                g.name,
                g.what,
                figure(g.found),
                figure(g.asked)
            );
        }
        self.shortfalls(&mut out);
        out
    }

    fn ceilings(&self, out: &mut String) {
        let _ = write!(
            out,
            "## Ceilings\n\n| what | found |\n|---|---|\n\
             | f32 multiply-adds in registers ({}), best of {} | {:.0} GFLOP/s (worst {:.0}) |\n\
             | reading two tensors, our loop | {:.1} GB/s |\n| reading two tensors, torch.dot | {:.1} GB/s |\n\n",
            self.isa,
            self.fma.len(),
            self.fma_peak(),
            self.fma.iter().copied().fold(f64::INFINITY, f64::min),
            self.read.0,
            self.read.1
        );
    }

    fn model_tables(&self, out: &mut String) {
        if self.models.is_empty() {
            return;
        }
        out.push_str(
            "## P1: forward passes of the mini model (12 layers, hidden 256; logits of every position)\n\n\
             | tokens | golden s | transformers s | golden tok/s | transformers tok/s | ratio | CPU s | peak MiB | decode step ms |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for m in &self.models {
            let rate = |t: &Times| m.n as f64 / t.best();
            let decode =
                m.decode.map_or("-".to_owned(), |(a, b)| format!("{:.2} / {:.1} = {:.1}x", a * 1e3, b * 1e3, b / a));
            let _ = writeln!(
                out,
                "| {} | {:.4} (to {:.4}) | {:.3} (to {:.3}) | {:.0} | {:.0} | **{:.1}x** | {:.2} / {:.2} | {:.0} / {:.0} | {decode} |",
                m.n,
                m.ours.best(),
                m.ours.worst(),
                m.theirs.best(),
                m.theirs.worst(),
                rate(&m.ours),
                rate(&m.theirs),
                m.theirs.best() / m.ours.best(),
                m.cpu[0],
                m.cpu[1],
                m.peak[0],
                m.peak[1]
            );
        }
        out.push_str(
            "\nFidelity in the same run, golden against transformers: rel-L2 of rows of logits, and decisions (entries of the\n\
             indexer, experts) with the margin that transformers had, relative to the row's largest score. A first flip is one\n\
             that no other reaches (at its row or before in a layer below, or its own entries before its experts); the others\n\
             may be its echo. A row above 1e-5 is explained by a first flip at or before it with a margin under 1e-5, and if it\n\
             is not above 1e-5 once transformers' decisions are forced on golden. In this pass, and only in it, transformers\n\
             breaks exact ties as golden does, to the lower index: torch.topk leaves them open, and with the mini model's 4\n\
             index heads a score is often exactly 0.\n\n\
             | tokens | p50 | p99.9 | max | rows above 1e-5 | unexplained | same decisions: rows above 1e-5, max | decisions | flips | first flips | no near-ties among them | their largest margin |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (n, f) in &self.fidelity {
            let _ = writeln!(
                out,
                "| {n} | {:.1e} | {:.1e} | {:.1e} | {} of {} | {} | {}, {:.1e} | {} | {} | {} | {} | {:.1e} |",
                f.p50,
                f.p999,
                f.max,
                f.far,
                f.rows,
                f.unexplained,
                f.far_forced,
                f.max_forced,
                f.decisions,
                f.flips,
                f.first_flips,
                f.no_ties,
                f.largest_margin
            );
        }
        out.push('\n');
    }

    fn kernel_tables(&self, out: &mut String) {
        if self.products.is_empty() {
            return;
        }
        out.push_str(
            "## P2: products x w^T, f32, weight packed before\n\n\
             | m x n x k | golden GFLOP/s | share of FMA peak | torch.mm | numpy | times torch | golden's slowest over best |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for r in &self.products {
            let peer = |i: usize| r.peers.get(i).map_or(f64::NAN, |(_, v)| *v);
            let _ = writeln!(
                out,
                "| {} | {:.0} | {:.0} % | {:.0} | {:.0} | {:.2}x | {:.2} |",
                r.what,
                r.ours,
                r.share * 100.0,
                peer(0),
                peer(1),
                r.ours / peer(0),
                r.spread
            );
        }
        out.push_str(
            "\n## P5: comparing two tensors\n\n\
             One pass of the diff engine. Core set: rel-L2, cosine, largest error with its place, means, biases, NaN and Inf\n\
             counts. Full set: also histograms of relative error and of ulp, zeros, saturation, every row's own sums and the\n\
             eight worst values. GB/s are both tensors' bytes over wall time; mapped files are in the page cache, and opened\n\
             and mapped within the time.\n\n\
             | set | elements | GB/s | reading alone | share | slowest over best |\n|---|---|---|---|---|---|\n",
        );
        for e in &self.engine {
            let _ = writeln!(
                out,
                "| {} | {}, {} | **{:.1}** | {:.1} | {:.0} % | {:.2} |",
                e.set,
                e.dtype,
                e.place,
                e.rate,
                e.ceiling,
                e.rate / e.ceiling * 100.0,
                e.spread
            );
        }
        if self.compared.is_empty() {
            out.push('\n');
            return;
        }
        out.push_str("\n| peer | GB/s | beside our | we are |\n|---|---|---|---|\n");
        for c in &self.compared {
            let _ = writeln!(out, "| {} | {:.3} | {} set | {:.1}x |", c.what, c.rate, c.set, c.ratio);
        }
        out.push('\n');
    }

    /// Goals that were missed, with what is known about why.
    fn shortfalls(&self, out: &mut String) {
        let missed: Vec<&Goal> = self.goals.iter().filter(|g| !g.met).collect();
        if missed.is_empty() {
            return;
        }
        out.push_str("\n## What falls short\n\n");
        for g in missed {
            let (cause, next) = short::known(g.name, &g.what).unwrap_or(("not known yet", "profile it"));
            let _ = writeln!(
                out,
                "- {} {}: {} of {}. Cause: {cause}. Next: {next}.",
                g.name,
                g.what,
                figure(g.found),
                figure(g.asked)
            );
        }
    }
}

fn figure(v: f64) -> String {
    if v == 0.0 {
        "0".to_owned()
    } else if v.abs() < 1e-3 {
        format!("{v:.1e}")
    } else if v.abs() < 10.0 {
        format!("{v:.2}")
    } else {
        format!("{v:.0}")
    }
}

/// Processor, threads and memory, as the system names them.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(':'));
        line.map_or("?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cpu = read("/proc/cpuinfo");
    let kib: f64 = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let family = format!("family {} model {}", field(&cpu, "cpu family"), field(&cpu, "model\t"));
    format!("{} ({family}), {threads} threads, {:.0} GiB", field(&cpu, "model name"), kib / f64::from(1 << 20))
}

/// Day of a Unix time, as YYYY-MM-DD in UTC (civil calendar by eras of 400 years).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests;

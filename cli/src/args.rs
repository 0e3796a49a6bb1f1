//! The command line as data.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::backend::{Computing, Patching};
use crate::examples;

/// Exit codes, for `--help`.
const EXIT: &str = "Exit codes: 0 pass, 1 fail, 2 arguments, 3 unreadable input, 4 unproven (nothing compared, other \
ids, a patch not exercised), 70 a bug in karat, 75 retry, 125 skipped, 130 interrupted.";

/// Numerical-fidelity audit of optimized LLM inference kernels against a golden f32 reference.
#[derive(Debug, Parser)]
#[command(name = "karat", version, about, after_help = EXIT, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub(crate) globals: Globals,
}

/// Options of every command.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Globals {
    /// Print the result as json.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress on stderr.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    /// Threads; all of the machine's by default. The result is the same for every number.
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

impl Globals {
    pub(crate) fn threads(self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.map_or_else(all, usize::from)
    }
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare a low-precision path, or another engine's trace, with golden layer by layer
    #[command(after_help = examples::AUDIT)]
    Audit(Audit),
    /// Audit, or take a bundle, and judge it by a policy and a baseline: the check of a continuous integration
    #[command(after_help = examples::GATE)]
    Gate(crate::cmd::gate::Gate),
    /// Put the parts of a partitioned run together
    #[command(after_help = examples::MERGE)]
    Merge(crate::cmd::merge::Merge),
    /// Ask the candidate what the conversation told it, against golden: answers lost and gained, and where
    #[command(after_help = examples::RECALL)]
    Recall(Recall),
    /// Find the smallest patch set, the first layer, op, position or history that makes a run bad
    #[command(after_help = examples::BISECT)]
    Bisect(crate::cmd::bisect::BisectArgs),
    /// Run the whole isolation plan unattended: facts, ranked suspects, what is ruled out and by what, what to do next
    #[command(after_help = examples::ISOLATE)]
    Isolate(crate::cmd::isolate::IsolateArgs),
    /// Judge a bundle again and show it, as html, markdown, JUnit, csv or for GitHub; or what moved between two
    #[command(after_help = examples::REPORT)]
    Report(Report),
    /// Record what a path computes as a karat-trace/1 folder
    #[command(after_help = examples::TRACE)]
    Trace(Trace),
    /// Compare two traces, dumps or files (.safetensors, .pt, .npy, .npz, folders of them), tensor by tensor; no model
    /// needed (exit 0 equal or within the thresholds, 1 not, 4 nothing in common)
    #[command(after_help = examples::DIFF)]
    Diff(Diff),
    /// Compare a kernel with golden and a contract on the same operands of one op (exit 0 within what the contract costs, 1 not,
    /// 75 the kernel gave no result)
    #[command(after_help = examples::OP)]
    Op(crate::cmd::op::Op),
    /// Look at, make, check and compare checkpoints
    #[command(after_help = examples::MODEL)]
    Model {
        /// What to do with a checkpoint.
        #[command(subcommand)]
        command: Model,
    },
    /// Speed beside error: each kernel next to its peers and the device's ceilings, and what its error bought
    #[command(after_help = examples::BENCH)]
    Bench(crate::cmd::bench::Bench),
    /// Check this machine and run a short self-test
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// List, render and import scenarios
    #[command(after_help = examples::SCENARIO)]
    Scenario {
        /// What to do with scenarios.
        #[command(subcommand)]
        command: Scenario,
    },
    /// List the speed patches; verify which of them a deployment asks for
    #[command(after_help = examples::PATCHES)]
    Patches(Patches),
    /// Print the shell's completions of this command line
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: crate::cmd::completions::Shell,
    },
}

/// `karat audit`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Scenarios: names of built-in ones or .toml files; tic-tac-toe by default
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    /// Checkpoint folder; without it the mini golden model
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Stock profile under the patches: official, sglang, sglang-sm120, vllm or none (f32, the control)
    #[arg(long, value_name = "PROFILE")]
    pub(crate) stock: Option<String>,
    /// Speed patches: all (the default set), none, or names with commas between (NAME:option=value sets an option)
    #[arg(long, value_name = "LIST")]
    pub(crate) patches: Option<String>,
    /// Leave this patch out (repeatable)
    #[arg(long, value_name = "PATCH")]
    pub(crate) without: Vec<String>,
    /// How the conversation is served: cold, decoded or chunked:TOKENS; or all, or names with commas (cold, warm, chunked,
    /// after-abort, after-evict, after-transfer, decoded, batched, graph-replayed, speculative) to compare histories
    #[arg(long, value_name = "HISTORY")]
    pub(crate) histories: Option<String>,
    /// Tokens a page where histories are compared: a multiple of the model's compression ratios; 256 for the released model
    #[arg(long, value_name = "TOKENS", requires = "histories")]
    pub(crate) page: Option<usize>,
    /// Where golden is computed.
    #[command(flatten)]
    pub(crate) computing: Computing,
    /// Where speed patches are computed.
    #[command(flatten)]
    pub(crate) patching: Patching,
    /// Token ids instead of scenarios: {"sequences":[{"id":"a","input_ids":[1,2]}]}
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Compare only taps whose names match, e.g. layers.*.attn.o,logits
    #[arg(long, value_name = "GLOB")]
    pub(crate) taps: Option<String>,
    /// Run only the first N layers
    #[arg(long, value_name = "N")]
    pub(crate) layers: Option<u16>,
    /// Measure golden's own noise (f32 against f64) for every row; always on where f32 is claimed
    #[arg(long)]
    pub(crate) floor: bool,
    /// Run the candidate twice and measure how far the two runs are apart: a tolerance under 10 of that proves nothing
    #[arg(long, conflicts_with = "candidate")]
    pub(crate) rerun: bool,
    /// When an op is at fault, write it with its operands, weights and expected results here, and a torch script
    #[arg(long, value_name = "DIR", conflicts_with = "partition")]
    pub(crate) repro: Option<PathBuf>,
    /// Judge this karat-trace/1 folder instead of the optimized path
    #[arg(long, value_name = "TRACE_DIR", requires = "claims")]
    pub(crate) candidate: Option<PathBuf>,
    /// Number formats that the trace or server claims: f32, bf16 (traces only), official, sglang or vllm
    #[arg(long, value_name = "FORMATS")]
    pub(crate) claims: Option<String>,
    /// A trace of the same engine once more, for its own noise
    #[arg(long, value_name = "TRACE_DIR", requires = "candidate")]
    pub(crate) rerun_trace: Option<PathBuf>,
    /// Of a trace of sampled positions: golden runs these alone, on the trace's KV pages, not the whole conversation; pages are
    /// judged where sampled rows made them
    #[arg(long, requires = "candidate")]
    pub(crate) no_cold_run: bool,
    /// Take nothing from the cache of earlier runs and leave nothing there (as KARAT_NO_CACHE=1 does)
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Bytes of the streams between layers that wait in memory (500MB, 2GiB), the others in a temporary file (in TMPDIR); by
    /// default a quarter of the memory that is available at the start
    #[arg(long, value_name = "SIZE")]
    pub(crate) hold: Option<String>,
    /// Run only part I of N of the conversations; karat merge puts the parts together
    #[arg(long, value_name = "I/N")]
    pub(crate) partition: Option<String>,
    /// Write the bundle (csv and json) here
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Most likely ids that a running server tells of each position
    #[arg(long, value_name = "K", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=2000))]
    #[arg(help_heading = "A running server")]
    pub(crate) top_logprobs: u16,
    /// A running server in the place of the optimized path.
    #[command(flatten)]
    pub(crate) connect: crate::cmd::live::Connect,
}

/// Which path to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathName {
    /// The golden reference.
    Golden,
    /// The stock profile without patches.
    Stock,
    /// The stock profile with patches.
    Optimized,
}

/// What `karat trace` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Capture {
    /// Values.
    Full,
    /// A line a row.
    Sketch,
    /// Nothing.
    Off,
}

/// `karat recall`.
#[derive(Debug, Args)]
pub(crate) struct Recall {
    /// Scenarios: names of built-in ones or .toml files; by default the built-in ones, without the long ones
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    /// Every built-in scenario, the long ones too: many minutes
    #[arg(long, conflicts_with = "scenarios")]
    pub(crate) all: bool,
    /// Checkpoint folder; without it the mini golden model
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Stock profile under the patches: official, sglang, sglang-sm120, vllm or none (f32, the control)
    #[arg(long, value_name = "PROFILE")]
    pub(crate) stock: Option<String>,
    /// Speed patches, all of them at once: all (the default set), none, or names with commas between
    #[arg(long, value_name = "LIST")]
    pub(crate) patches: Option<String>,
    /// Leave this patch out (repeatable)
    #[arg(long, value_name = "PATCH")]
    pub(crate) without: Vec<String>,
    /// Run golden alone: what it recalls, and by which margins
    #[arg(long, conflicts_with_all = ["stock", "patches", "without"])]
    pub(crate) golden: bool,
    /// Share of answers whose loss must be ruled out (upper 95 % bound), in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub(crate) margin: f64,
    /// End the run as soon as a sequential test of the margin has decided (wrong one time in 20 at most)
    #[arg(long, conflicts_with = "golden")]
    pub(crate) stop_early: bool,
    /// Ask only part I of N of the conversations; karat merge puts the parts together
    #[arg(long, value_name = "I/N", conflicts_with_all = ["stop_early", "endpoint"])]
    pub(crate) partition: Option<String>,
    /// Write a bundle here
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Where golden is computed.
    #[command(flatten)]
    pub(crate) computing: Computing,
    /// A running server in the place of the low-precision path.
    #[command(flatten)]
    pub(crate) connect: crate::cmd::live::Connect,
    /// How conversations are held with it.
    #[command(flatten)]
    pub(crate) holding: crate::cmd::live::Holding,
}

/// `karat report`.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The folder that --out wrote
    pub(crate) bundle: PathBuf,
    /// Another one, of a later run: says what moved between the two, beyond noise (exit 1 worse, 4 can't be compared)
    pub(crate) other: Option<PathBuf>,
    /// How the tolerance of this tap came about, e.g. layers.3.attn.o
    #[arg(long, value_name = "TAP", conflicts_with = "other")]
    pub(crate) explain: Option<String>,
    /// Write one page that needs no network and no scripts
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "report.html")]
    pub(crate) html: Option<PathBuf>,
    /// Write an engineering report
    #[arg(long, visible_alias = "md", value_name = "FILE", num_args = 0..=1, default_missing_value = "report.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write JUnit XML: a test case each gate
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "junit.xml")]
    pub(crate) junit: Option<PathBuf>,
    /// Write one csv of everything that was judged
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "report.csv")]
    pub(crate) csv: Option<PathBuf>,
    /// Add to $GITHUB_STEP_SUMMARY (stdout without it) and print annotations
    #[arg(long)]
    pub(crate) github: bool,
}

/// `karat trace`.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Scenarios: names of built-in ones or .toml files; tic-tac-toe by default
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    /// Which path to record
    #[arg(long, value_enum)]
    pub(crate) path: PathName,
    /// Stock profile: official or none
    #[arg(long, value_name = "PROFILE")]
    pub(crate) stock: Option<String>,
    /// Speed patches: all, none, or names with commas between
    #[arg(long, value_name = "LIST")]
    pub(crate) patches: Option<String>,
    /// Checkpoint folder; without it the mini golden model
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Token ids instead of scenarios
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// One more scenario
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,
    /// Record only taps whose names match, e.g. layers.*.out,logits
    #[arg(long, value_name = "GLOB")]
    pub(crate) taps: Option<String>,
    /// Record N positions of each sequence at equal distances and the KV pages that they read, for a query-sampled audit
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<u32>,
    /// What is kept of each row: full (its values), sketch (norm, largest value, 16 signed sums, hash: 88 bytes), or off (nothing: the
    /// run alone, to be timed)
    #[arg(long, value_enum, default_value_t = Capture::Full, conflicts_with = "sample")]
    pub(crate) capture: Capture,
    /// The new trace folder
    #[arg(long, value_name = "DIR", required_unless_present = "capture")]
    pub(crate) out: Option<PathBuf>,
    /// Where golden is computed.
    #[command(flatten)]
    pub(crate) computing: Computing,
}

/// `karat diff`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Trace folder, file or folder of .safetensors, .pt, .npy, .npz (SGLang dumps too): what B is measured against
    pub(crate) a: PathBuf,
    /// The same for the candidate
    pub(crate) b: PathBuf,
    /// Show this many tensors, the worst first; all with 0
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Mapping file (TOML, karat-map/1): other names, axes, shards and chunks; built-in maps without it
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    /// Compare only tensors whose names fit this pattern (a regular expression, found anywhere in the name)
    #[arg(long, value_name = "REGEX")]
    pub(crate) filter: Option<String>,
    /// What passes, as in SGLang's comparator: a number R for `rel <= R`, or pairs of a pattern of the whole name and a
    /// condition over rel, max_abs and mean_abs ('.*expert.*' 'rel <= 0.0085 or max_abs <= 1e-3'); the first pattern
    /// that fits counts. Without it every difference fails
    #[arg(long = "diff-threshold", value_name = "R | REGEX CONDITION", num_args = 1..)]
    pub(crate) threshold: Vec<String>,
    /// Tensors of one side alone, or unreadable, that don't count: a pattern of the whole name (`^$`: none). By default
    /// all are only listed
    #[arg(long, value_name = "REGEX")]
    pub(crate) allow_skipped_pattern: Option<String>,
    /// Tensors whose failure doesn't count: a pattern of the whole name
    #[arg(long, value_name = "REGEX")]
    pub(crate) allow_failed_pattern: Option<String>,
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) out: Option<String>,
}

/// `karat model`.
#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Config, layers, dtypes and sizes of a checkpoint
    Inspect {
        /// Checkpoint folder; without it the default model
        dir: Option<PathBuf>,
    },
    /// Make a checkpoint in the released format with seeded random weights
    New {
        /// default or mini
        #[arg(long, value_name = "NAME", default_value = "default")]
        geometry: String,
        /// Seed of the weights
        #[arg(long, value_name = "N", default_value_t = crate::model::SEED)]
        seed: u64,
        /// Format of the routed experts: mxfp4 (as released) or nvfp4, of which golden is the NVFP4 bytes dequantised
        #[arg(long, value_name = "FORMAT", default_value = "mxfp4")]
        experts: String,
        /// The new folder
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Check that every tensor is used exactly once and every value is finite and plausible
    Verify {
        /// Checkpoint folder; without it the default model
        dir: Option<PathBuf>,
    },
    /// Compare two checkpoints by decoded values, whatever their naming, sharding and encoding
    Diff {
        /// Checkpoint folder
        a: PathBuf,
        /// Checkpoint folder
        b: PathBuf,
    },
    /// Take the prompt texts out of a release's Python encoder file, without running it
    Encoding {
        /// The Python file
        file: PathBuf,
        /// The encoding.json to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// `karat doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Check the plumbing of this proxy instead: karat stands behind it, at --listen, in the model's place
    #[arg(long, value_name = "URL", requires = "listen")]
    pub(crate) proxy: Option<String>,
    /// Where the proxy finds its model: HOST:PORT
    #[arg(long, value_name = "HOST:PORT", requires = "proxy")]
    pub(crate) listen: Option<String>,
    /// Environment variable that holds the key which the proxy wants
    #[arg(long, value_name = "VARIABLE", default_value = "KARAT_API_KEY")]
    pub(crate) key_env: String,
    /// Say instead what an audit of the model with this config.json would take: bytes, time and memory, a prediction with its
    /// arithmetic
    #[arg(long, value_name = "CONFIG", conflicts_with = "proxy")]
    pub(crate) plan: Option<PathBuf>,
    /// What is planned for.
    #[command(flatten)]
    pub(crate) plan_of: PlanOf,
}

/// The audit that `karat doctor --plan` is about.
#[derive(Debug, Args)]
pub(crate) struct PlanOf {
    /// With --plan: conversations
    #[arg(long = "plan-conversations", value_name = "N", default_value_t = 24, requires = "plan")]
    pub(crate) conversations: usize,
    /// With --plan: tokens of each conversation
    #[arg(long = "plan-tokens", value_name = "N", default_value_t = 16_384, requires = "plan")]
    pub(crate) tokens: usize,
    /// With --plan: speed patches
    #[arg(long = "plan-patches", value_name = "N", default_value_t = 8, requires = "plan")]
    pub(crate) patches: usize,
}

/// `karat scenario`.
#[derive(Debug, Subcommand)]
pub(crate) enum Scenario {
    /// Names and titles of the built-in scenarios
    List {
        /// Only those with this text in name or title
        #[arg(long, value_name = "TEXT")]
        grep: Option<String>,
    },
    /// The prompt as text, with its ids and turns
    Render {
        /// A built-in name or a .toml file
        scenario: String,
        /// Which conversation of a scenario that makes several
        #[arg(long, value_name = "N", default_value_t = 0)]
        number: usize,
        /// Checkpoint folder with tokenizer.json and encoding.json; without it the default model
        #[arg(long, value_name = "DIR")]
        model: Option<PathBuf>,
    },
    /// Write the conversations of a scenario down, one file each
    Generate {
        /// A built-in name or a .toml file
        scenario: String,
        /// The new folder
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Checkpoint folder with tokenizer.json and encoding.json; without it the default model
        #[arg(long, value_name = "DIR")]
        model: Option<PathBuf>,
    },
    /// Conversations of a file or a server's log; compares the prompts that the server made of them with golden's
    /// (exit 0 equal, 1 not, 4 nothing to compare)
    Import(crate::cmd::import::Import),
}

/// `karat patches`.
#[derive(Debug, Args)]
pub(crate) struct Patches {
    /// Say which patches a deployment asks for, which of them can be in effect there, and what contradicts what
    /// (exit 0 nothing contradictory, 1 contradictory or inert, 4 nothing to be seen)
    #[arg(long)]
    pub(crate) verify: bool,
    /// Process environment: /proc/PID/environ, or the output of env (repeatable)
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) env: Vec<PathBuf>,
    /// systemd unit text: a unit file, systemctl cat or systemctl show (repeatable)
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) unit: Vec<PathBuf>,
    /// The answer of SGLang's /server_info, saved to a file (repeatable)
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) server_info: Vec<PathBuf>,
    /// Launch command or script (repeatable)
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) command: Vec<PathBuf>,
    /// Server log or journal (repeatable)
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) log: Vec<PathBuf>,
    /// A running process of this machine: its environment, command line and loaded libraries
    #[arg(long, value_name = "N", requires = "verify")]
    pub(crate) pid: Option<u32>,
    /// Map the hunks of a unified diff against upstream to ops and patches; with --verify, as one more source
    #[arg(long, value_name = "FILE")]
    pub(crate) from_diff: Option<PathBuf>,
}

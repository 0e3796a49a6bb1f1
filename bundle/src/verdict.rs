//! The verdict and its exit code.

use serde::{Deserialize, Serialize};

use crate::json;

macro_rules! verdicts {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal exit $exit:literal,)+) => {
        /// What a run ends in. Declared in order of precedence: of several that apply, the first is the verdict.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[derive(Serialize, Deserialize)]
        pub enum Verdict {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
            /// Everything compared is within its tolerance.
            #[default]
            #[serde(rename = "pass")]
            Pass,
        }

        impl Verdict {
            /// Every verdict, the strongest first.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+ Self::Pass];

            /// The word in csv, json and on the terminal.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ Self::Pass => "pass" }
            }

            /// The verdict with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }

            /// Exit code of the command.
            pub fn exit_code(self) -> u8 {
                match self { $(Self::$name => $exit,)+ Self::Pass => 0 }
            }
        }
    };
}

verdicts! {
    /// A file is unreadable, truncated or inconsistent.
    Input = "input" exit 3,
    /// Arguments, policy or config contradict each other.
    Usage = "usage" exit 2,
    /// A retryable failure of the surroundings: time-out, rate limit, device lost.
    Infra = "infra" exit 75,
    /// Runs of the same thing disagree.
    Flaky = "flaky" exit 75,
    /// Over tolerance.
    Fail = "fail" exit 1,
    /// Worse than the baseline beyond noise.
    Regressed = "regressed" exit 1,
    /// Nothing compared, ids differ, a patch was not exercised, or the test could not have seen an error.
    Unproven = "unproven" exit 4,
    /// For `git bisect run`.
    Skipped = "skipped" exit 125,
    /// Better than the baseline: asks for a new one.
    Improved = "improved" exit 0,
}

/// Something that was found out and bears on the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The verdict that it alone would lead to.
    pub verdict: Verdict,
    /// One sentence.
    pub reason: String,
}

impl Finding {
    /// A finding.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into() }
    }
}

/// The first bad place in op order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstBad {
    /// Scenario, or the token file's name.
    pub scenario: String,
    /// Sequence id.
    pub sequence: String,
    /// How the rows came about.
    pub history: String,
    /// prefill or decode.
    pub phase: String,
    /// stock, stock+PATCH, stock+all, or trace.
    pub patch_set: String,
    /// Layer number, or embed, head, mtp.N.
    pub layer: String,
    /// Op that writes the tap.
    pub op: String,
    /// Tap.
    pub tap: String,
    /// Part of the tap; empty for the whole.
    pub part: String,
    /// Position of the largest error.
    pub position: Option<u64>,
    /// Unit of `injected` and `tolerance`.
    pub gate: String,
    /// Injected error.
    #[serde(with = "json::number")]
    pub injected: f64,
    /// Largest error that passes.
    #[serde(with = "json::number")]
    pub tolerance: f64,
}

impl FirstBad {
    /// The place alone, whatever the numbers.
    pub(crate) fn place(&self) -> [&str; 9] {
        let Self { scenario, sequence, history, phase, patch_set, layer, op, tap, part, .. } = self;
        [scenario, sequence, history, phase, patch_set, layer, op, tap, part].map(String::as_str)
    }
}

/// A place that may be at fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    /// stock, stock+PATCH, stock+all, or trace.
    pub patch_set: String,
    /// Layer number, or embed, head, mtp.N.
    pub layer: String,
    /// Op.
    pub op: String,
    /// Tap.
    pub tap: String,
    /// Injected error over its tolerance.
    #[serde(with = "json::number")]
    pub over_tolerance: f64,
}

/// What a second look at the first bad place found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Examination {
    /// One sentence: what, where, since when, how sure, how it looks.
    pub summary: String,
    /// Where along depth errors over predictions begin to be others.
    pub change_point: Option<ChangePoint>,
    /// The op whose own error its roundings don't explain; empty when no op was looked at.
    pub op: String,
    /// Its worst tap.
    pub tap: String,
    /// rel-L2 of the op on the operands that it was given; for a decision the share of rows that decide otherwise.
    #[serde(with = "json::number")]
    pub op_error: f64,
    /// What its roundings cost.
    #[serde(with = "json::number")]
    pub op_predicted: f64,
    /// Share of the inherited error of the bad layer that other decisions bring; negative when forcing them adds to it.
    pub routing_share: Option<f64>,
    /// KV as an input of the bad layer, where the candidate shows its own.
    pub kv: Option<KvShares>,
    /// Every signature that was tested.
    pub signatures: Vec<SignatureTest>,
    /// Mean KL(golden || candidate), nats.
    #[serde(with = "json::number")]
    pub kl: f64,
    /// The same with golden's op in the place of the suspected one.
    #[serde(with = "json::number")]
    pub kl_with_golden_op: f64,
    /// Suspected layers, those first that take most of the KL with them when golden's stands in their place.
    pub effects: Vec<Effect>,
}

/// Attention's result `attn.out` on golden's and the candidate's streams x, x' and KV rows KV, KV': rel-L2, all with the
/// candidate's decisions. A bad cache is told from a bad kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvShares {
    /// R(x') against R(x), each with KV of its own: what came in with the streams.
    #[serde(with = "json::number")]
    pub stream: f64,
    /// R(x, KV') against R(x): what the candidate's cache brings by itself.
    #[serde(with = "json::number")]
    pub cache: f64,
    /// R(x', KV') against R(x).
    #[serde(with = "json::number")]
    pub both: f64,
    /// C(x') against R(x', KV'): what reads the cache.
    #[serde(with = "json::number")]
    pub kernel: f64,
    /// `cache` or `kernel`, where rows and pages were judged apart (a query-sampled audit); else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fault: String,
}

/// A place where a series changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangePoint {
    /// Layer number, or embed, head.
    pub layer: String,
    /// Tap.
    pub tap: String,
    /// Standard errors over the rest.
    #[serde(with = "json::number")]
    pub statistic: f64,
    /// Bound on the chance that noise alone gives as much anywhere.
    #[serde(with = "json::number")]
    pub chance: f64,
}

/// A signature that was tested.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureTest {
    /// Name.
    pub name: String,
    /// Share of the squared error that it explains.
    #[serde(with = "json::number")]
    pub share: f64,
    /// The finding in words, when it fits.
    pub fits: Option<String>,
}

/// What swapping a layer does to the final distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Layer number.
    pub layer: String,
    /// Mean KL that goes away when golden's layer stands in its place (fix-one).
    #[serde(with = "json::number")]
    pub removed: f64,
    /// Mean KL that golden gets when this layer alone stands in its place (break-one).
    #[serde(with = "json::number")]
    pub alone: f64,
}

/// `verdict.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// Exit code of the command.
    pub exit_code: u8,
    /// First bad place in op order, if any.
    pub first_bad: Option<FirstBad>,
    /// First bad tap of each layer and patch set, the worst first.
    pub suspects: Vec<Suspect>,
    /// What the error looks like; `null` when no signature fits, or none was tested.
    pub signature: Option<String>,
    /// A second look at the first bad place, when the verdict is fail.
    #[serde(default)]
    pub examination: Option<Examination>,
    /// Why, the strongest first.
    pub reasons: Vec<String>,
    /// What to do now.
    pub next_step: String,
    /// Passes of all rows through all layers of one path that this took.
    #[serde(with = "json::number")]
    pub forward_equivalents: f64,
}

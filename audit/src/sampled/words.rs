//! Cache or kernel: what a failed query-sampled audit says.

use karat_bundle::{Bundle, Examination, Verdict};
use karat_seam::{Site, Tap};

use super::golden::{Found, SampledGolden};
use super::judge::ranges;

/// Says of a failed run whether its first bad place is in the cache or in a kernel, and on what grounds.
pub(crate) fn examine(bundle: &mut Bundle, path: &SampledGolden<'_>) {
    let Some(bad) = bundle.verdict.first_bad.clone().filter(|_| bundle.verdict.verdict == Verdict::Fail) else {
        return;
    };
    let now = path.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut found = Examination::default();
    let here = |f: &&Found| f.l.to_string() == bad.layer && path.golden_id(f.seq) == bad.sequence;
    let layer = now.found.iter().find(here);
    found.kv = layer.and_then(|f| f.shares.clone());
    let tap = Tap::from_name(&bad.tap);
    let reads = found.kv.as_ref().map_or_else(String::new, |kv| {
        format!(
            "; in attention the pages alone bring {:.1e}, the streams {:.1e}, and golden on both is {:.1e} from what the candidate made of them",
            kv.cache, kv.stream, kv.kernel
        )
    });
    if let Some((layer, tap)) = layer.zip(tap.filter(|tap| tap.is_state())) {
        let site = Site::layer(layer.l, tap);
        let judged = layer.judged.iter().find(|j| j.tap == tap);
        if let Some(judged) = judged.filter(|j| j.is_made_wrong()) {
            found.summary = format!(
                "kernel: what makes {site} errs: {} of its {} rows that the sampled streams make are not what golden makes of \
                 them (off by up to {:.1e} of their size, {:.1e} is explained){reads}",
                judged.made_bad,
                judged.made,
                judged.worst().map_or(f64::NAN, |w| w.1),
                judged.limit.beside
            );
            found.kv.iter_mut().for_each(|kv| kv.fault = "kernel".to_string());
            (found.op, found.tap) = (String::new(), String::new());
            bundle.verdict.examination = Some(found);
            return;
        }
        let rows = judged.map_or_else(String::new, |j| ranges(&j.bad));
        let kind = if tap == Tap::StateWin { "positions" } else { "entries" };
        let sizes = judged.map_or_else(String::new, |j| {
            let worst = j.worst().map_or(f64::NAN, |w| w.1);
            format!("off by up to {worst:.1e} of their size, {:.1e} is explained", j.limit.beside)
        });
        let when = if layer.read_before { "; the sampled rows read them before they went bad" } else { "" };
        found.summary = format!(
            "cache: {site}, {kind} {rows} are not what this conversation leaves there ({sizes}); no op on the way to them differs{when}{reads}"
        );
        found.kv.iter_mut().for_each(|kv| kv.fault = "cache".to_string());
        bundle.verdict.next_step = format!(
            "look at what writes, moves or frees these pages; if their rows were computed by another path than the sampled ones, \
             capture {kind} {rows} of the layer's input as well"
        );
    } else {
        let cache = layer.map_or(0, |f| f.judged.iter().map(|j| j.bad.len()).sum::<usize>());
        let pages = match cache {
            0 => "its pages there hold what the conversation leaves in them".to_string(),
            n => format!("{n} rows of its pages there are bad as well"),
        };
        let at = bad.position.map(|p| format!(", worst at position {p}")).unwrap_or_default();
        let reads = if bad.layer.parse::<u16>().is_ok() { format!("; {pages}{reads}") } else { String::new() };
        found.summary = format!(
            "kernel: {} of {} ({}) errs on the candidate's own streams and pages{at}{reads}",
            bad.op,
            if reads.is_empty() { bad.layer.clone() } else { format!("layer {}", bad.layer) },
            bad.tap
        );
        found.kv.iter_mut().for_each(|kv| kv.fault = "kernel".to_string());
    }
    (found.op, found.tap) = (String::new(), String::new());
    bundle.verdict.examination = Some(found);
}

impl SampledGolden<'_> {
    fn golden_id(&self, seq: u32) -> &str {
        self.trace.requests().seqs.get(seq as usize).map_or("", |s| s.id.as_str())
    }
}

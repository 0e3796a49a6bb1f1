//! `karat doctor`: what this machine has, and whether golden and the f32 control agree on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Inputs, Job, Quiet, Subject};
use karat_bundle::{Bundle, Verdict};
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Stock};
use karat_seam::{Requests, Sequence};
use serde_json::json;

use crate::args::{Doctor, Globals};
use crate::failure::Result;
use crate::{cache, output};

/// Rows of the self-test: past the mini geometry's window, one long group and several short ones.
const ROWS: u32 = 40;

pub(crate) fn run(args: &Doctor, globals: Globals) -> Result<u8> {
    if let Some(config) = &args.plan {
        return super::plan::run(config, &args.plan_of, globals);
    }
    if let (Some(proxy), Some(listen)) = (&args.proxy, &args.listen) {
        return super::live::proxy(proxy, listen, &args.key_env, globals);
    }
    let features = features();
    let driver = gpu_driver();
    let gpu = karat_kernels::probe();
    let sums: Vec<String> = karat_kernels::mma::declared()?.iter().map(karat_kernels::mma::Declared::line).collect();
    let place = cache::place(false)?;
    let bundle = self_test(globals)?;
    let verdict = bundle.verdict.verdict;
    if globals.json {
        output::json(&json!({
            "version": env!("CARGO_PKG_VERSION"), "cpu_features": features, "threads": globals.threads(),
            "gpu": gpu, "gpu_driver": driver, "gpu_used": false, "accumulation": sums, "self_test": verdict.name(), "exit_code": bundle.verdict.exit_code,
            "reasons": bundle.verdict.reasons, "cache": cache::json(place.as_ref()),
        }));
        return Ok(bundle.verdict.exit_code);
    }
    let gpu = match &driver {
        Some(version) => format!("{gpu}; driver {version}; audits compute on the CPU unless --backend cuda is given"),
        None => format!("{gpu}; audits compute on the CPU unless --backend cuda is given"),
    };
    let mut text = format!("karat {}\n", env!("CARGO_PKG_VERSION"));
    text.push_str(&format!("cpu: {} threads, {}\n", globals.threads(), features.join(" ")));
    text.push_str(&format!("gpu: {gpu}\n"));
    sums.iter().for_each(|line| text.push_str(&format!("accumulation: {line}\n")));
    text.push_str(&format!("cache: {}\n", cache::line(place.as_ref())));
    let what = "golden against the f32 control, mini geometry, random weights";
    text.push_str(&format!("self-test: {} ({what}, {ROWS} rows)\n", verdict.name()));
    if verdict != Verdict::Pass {
        bundle.verdict.reasons.iter().for_each(|r| text.push_str(&format!("  {r}\n")));
    }
    output::stdout(&text);
    Ok(bundle.verdict.exit_code)
}

fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let has = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ];
        has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

/// Version of the NVIDIA driver, where Linux tells.
fn gpu_driver() -> Option<String> {
    let text = std::fs::read_to_string(Path::new("/proc/driver/nvidia/version")).ok()?;
    text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit())).map(ToString::to_string)
}

fn self_test(globals: Globals) -> Result<Bundle> {
    let checkpoint = Arc::new(Checkpoint::from_memory("self-test", new_model(Geometry::Mini, 0))?);
    let vocab = checkpoint.config().vocab_size as u32;
    let ids: Vec<u32> = (0..ROWS).map(|i| (i * 89 + 7) % vocab).collect();
    let requests = Requests { seqs: vec![Sequence::prompt("self-test", ids)] };
    let stop = AtomicBool::new(false);
    let job = Job {
        random_weights: true,
        floor: true,
        threads: globals.threads(),
        ..Job::new(
            checkpoint,
            Inputs { requests, scenarios: vec!["self-test".to_string()], ..Inputs::default() },
            &Quiet,
            &stop,
        )
    };
    let control = Subject { stock: Stock::None, patches: Vec::new(), history: History::Cold };
    Ok(karat_audit::audit(&job, &control)?)
}

//! `karat patches --verify` and `--from-diff`.

use std::io::Read;
use std::path::Path;

use karat_deployment::{Kind, Source, diff_text, map_diff, report_text, verify};
use karat_model::Error;
use karat_optimized::patches;
use serde_json::json;

use crate::args::{Globals, Patches};
use crate::failure::{Failure, Result};
use crate::output;

/// Far above any journal that is worth reading whole.
const MAX_BYTES: u64 = 1 << 30;

pub(super) fn run(args: &Patches, globals: Globals) -> Result<u8> {
    let sources = sources(args)?;
    if sources.is_empty() {
        let what = "nothing to verify: give --env, --unit, --server-info, --command, --log, --pid or --from-diff";
        return Err(Failure::usage(what));
    }
    let contracts: Vec<&str> = patches().iter().map(|p| p.name).collect();
    let conflicts: Vec<(&str, &str)> =
        patches().iter().flat_map(|p| p.conflicts.iter().map(|other| (p.name, *other))).collect();
    let report = verify(&sources, &contracts, &conflicts)?;
    let exit = report.verdict.exit_code();
    if globals.json {
        let mut data = serde_json::to_value(&report).unwrap_or_default();
        data["exit_code"] = json!(exit);
        output::json(&data);
    } else {
        let text = report_text(&report);
        let (verdict, rest) = text.split_once(':').unwrap_or((&text, ""));
        output::stdout(&format!("{}:{rest}", output::Style::of_stdout().verdict(exit, verdict)));
    }
    Ok(exit)
}

/// `--from-diff` alone.
pub(super) fn diff(file: &Path, globals: Globals) -> Result<u8> {
    let mapped = map_diff(&file.display().to_string(), &read(file)?)?;
    let exit = mapped.exit_code();
    if globals.json {
        let unknown: Vec<_> = mapped.unknown().collect();
        output::json(&json!({"hunks": mapped.hunks, "unknown": unknown, "exit_code": exit}));
    } else {
        output::stdout(&diff_text(&mapped));
    }
    Ok(exit)
}

fn sources(args: &Patches) -> Result<Vec<Source>> {
    let mut out = Vec::new();
    let files = [
        (Kind::Unit, args.unit.as_slice()),
        (Kind::Command, &args.command),
        (Kind::Environment, &args.env),
        (Kind::Log, &args.log),
        (Kind::ServerInfo, &args.server_info),
        (Kind::Diff, args.from_diff.as_slice()),
    ];
    for (kind, file) in files.into_iter().flat_map(|(kind, files)| files.iter().map(move |file| (kind, file))) {
        let label = file.display().to_string();
        if kind == Kind::ServerInfo && (label.starts_with("http://") || label.starts_with("https://")) {
            let url = without_credentials(&label);
            let what = format!(
                "--server-info {url}: this build fetches nothing; save it first, e.g. `curl -s {url} > info.json`"
            );
            return Err(Failure::usage(what));
        }
        out.push(Source { kind, bytes: read(file)?, label });
    }
    if let Some(pid) = args.pid {
        let file = |name: &str| format!("/proc/{pid}/{name}");
        let load = |kind, name: &str| -> Result<Source> {
            Ok(Source { kind, bytes: read(Path::new(&file(name)))?, label: file(name) })
        };
        out.push(load(Kind::Environment, "environ")?);
        out.push(load(Kind::Process, "cmdline")?);
        out.extend(load(Kind::Maps, "maps").ok());
    }
    Ok(out)
}

/// A URL without `user:password@` and without its query.
fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.find('/').unwrap_or(rest.len());
            let start = rest[..host].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[start..])
        }
        None => url.to_owned(),
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let label = file.display().to_string();
    let unreadable = |e: std::io::Error| Error::input("the file can't be read").at(&label).found(e);
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    opened.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let expected = format!("at most {MAX_BYTES} bytes");
        let error = Error::input("the file is too large to be read whole").at(label).expected(expected).found("more");
        return Err(error.hint("cut out the lines since the last start").into());
    }
    Ok(bytes)
}

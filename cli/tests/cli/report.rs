//! `karat report` as people run it.

use std::fs;
use std::path::Path;

use crate::support::{Ran, karat, karat_in, workplace};

const RUN: [&str; 8] =
    ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "chunked-prefill:size=8", "--quiet"];

/// A workplace with a bundle.
fn with_bundle() -> tempfile::TempDir {
    let dir = workplace();
    karat(dir.path(), &[&RUN[..], &["--out", "bundle"]].concat()).expect(0);
    dir
}

fn text(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

#[test]
fn every_format_is_written_and_says_the_verdict() {
    let dir = with_bundle();
    let at = dir.path();
    let ran = karat(at, &["report", "bundle", "--html", "--md", "--junit", "j.xml", "--csv"]).expect(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("pass: all "), "{}", ran.stdout);
    assert_eq!(lines[1..], ["written: report.html", "written: report.md", "written: j.xml", "written: report.csv"]);
    assert!(text(at, "report.html").starts_with("<!DOCTYPE html>"));
    assert!(text(at, "report.md").starts_with("# karat: pass\n"));
    assert!(text(at, "j.xml").contains("<testcase classname=\"karat\" name=\"verdict\"/>"));
    assert!(text(at, "j.xml").contains("name=\"layers.0.attn.o@prefill\""));
    assert!(text(at, "report.csv").starts_with("kind,scenario,"));
    assert!(karat(at, &["report", "bundle", "--junit", "-"]).expect(0).stdout.starts_with("<?xml"));
    // Without a format: as the audit showed it.
    let shown = karat(at, &["report", "bundle"]).expect(0).stdout;
    assert!(shown.starts_with("pass: all ") && shown.contains("layer  inherit"), "{shown}");
    // Nothing half-written is left, and what can't be written is told.
    let names: Vec<String> = fs::read_dir(at).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|n| !n.contains("partial")), "{names:?}");
    let folder = karat(at, &["report", "bundle", "--html", "mini"]).expect(2);
    assert!(folder.error().contains("mini: is a folder"), "{}", folder.stderr);
    assert!(karat(at, &["report", "nowhere", "--html"]).expect(3).error().contains("nowhere"));
}

#[test]
fn a_step_of_a_workflow_gets_summary_and_annotations() {
    let dir = with_bundle();
    let at = dir.path();
    let summary = at.join("summary.md");
    fs::write(&summary, "before\n").unwrap();
    let args = ["report", "bundle", "--github"];
    let ran = karat_in(at, &args, &[("GITHUB_STEP_SUMMARY", &summary.display().to_string())]).expect(0);
    assert!(ran.stdout.starts_with("::notice title=karat%3A pass::all "), "{}", ran.stdout);
    let written = text(at, "summary.md");
    assert!(written.starts_with("before\n# karat: pass\n") && written.contains("## Nearest to tolerance"), "{written}");
    let alone: Ran = karat_in(at, &args, &[("GITHUB_STEP_SUMMARY", "")]).expect(0);
    assert!(alone.stdout.starts_with("# karat: pass"), "{}", alone.stdout);
}

#[test]
fn what_moved_between_two_runs() {
    let dir = with_bundle();
    let at = dir.path();
    let same = karat(at, &["report", "bundle", "bundle"]).expect(0);
    assert!(
        same.stdout.starts_with("pass: beyond noise 0 of ") && same.stdout.contains("are worse, 0 better"),
        "{}",
        same.stdout
    );
    // The same run with FP8 caches: other patch sets are no metrics of both, and stock's stay.
    let other = ["--patches", "none", "--out", "stock"];
    karat(at, &[&RUN[..5], &other[..], &["--quiet"]].concat()).expect(0);
    let less = karat(at, &["report", "bundle", "stock", "--json"]).expect(4).json();
    assert_eq!((less["verdict"].as_str(), less["changes"].as_array().map(Vec::len)), (Some("unproven"), Some(0)));
    assert!(less["sentence"].as_str().unwrap().contains("the second lacks"), "{less}");
    let more = karat(at, &["report", "stock", "bundle", "--markdown", "moved.md"]).expect(0);
    assert!(
        more.stdout.contains("written: moved.md") && text(at, "moved.md").starts_with("# karat: pass"),
        "{}",
        more.stdout
    );
    // Another scenario.
    fs::rename(at.join("other.json"), at.join("ids.json")).unwrap();
    karat(at, &[&RUN[..], &["--out", "elsewhere"]].concat());
    let unlike = karat(at, &["report", "bundle", "elsewhere"]).expect(4);
    assert!(unlike.stdout.contains("another scenarios"), "{}", unlike.stdout);
    assert!(karat(at, &["report", "bundle", "stock", "--html"]).expect(2).error().contains("--html"));
}

fn left_out(what: &str) {
    std::io::Write::write_all(&mut std::io::stderr(), format!("left out: {what}\n").as_bytes()).unwrap();
}

/// The same on a terminal of 60 columns, where `script` can make one.
fn on_a_terminal(dir: &Path, no_color: &str) -> Option<String> {
    let mut command = std::process::Command::new("script");
    command.args(["-qec", "\"$KARAT\" report bundle", "/dev/null"]).current_dir(dir).stdin(std::process::Stdio::null());
    command.env("KARAT", env!("CARGO_BIN_EXE_karat")).env("COLUMNS", "60").env("NO_COLOR", no_color);
    command.env_remove("GITHUB_ACTIONS");
    let ran = command.output().ok().filter(|ran| ran.status.success())?;
    Some(String::from_utf8_lossy(&ran.stdout).replace('\r', ""))
}

#[test]
fn a_terminal_has_colours_and_a_width_and_a_file_has_neither() {
    let dir = with_bundle();
    let filed = karat(dir.path(), &["report", "bundle"]).expect(0).stdout;
    let columns = |text: &str| text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    assert!(!filed.contains('\u{1b}') && columns(&filed) > 80, "{filed}");
    let Some(shown) = on_a_terminal(dir.path(), "") else { return left_out("a terminal: script can't make one") };
    assert!(shown.contains("\u{1b}[1;32mpass"), "{shown}");
    let plain = on_a_terminal(dir.path(), "1").expect("as before");
    assert!(!plain.contains('\u{1b}') && columns(&plain) <= 60, "{plain}");
    // Folded, nothing is lost.
    let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(words(&plain), words(&filed));
}

#[test]
fn completions_know_every_command_and_bash_offers_them() {
    let dir = tempfile::tempdir().unwrap();
    let help = karat(dir.path(), &["--help"]).expect(0).stdout;
    let scripts = ["bash", "zsh", "fish"].map(|shell| karat(dir.path(), &["completions", shell]).expect(0).stdout);
    for line in help.lines().filter_map(|l| l.strip_prefix("  ")).filter(|l| l.starts_with(|c: char| c.is_lowercase()))
    {
        let command = line.split_whitespace().next().unwrap();
        assert!(scripts.iter().all(|s| s.contains(&format!(" {command}"))), "{command}");
    }
    let offered = |words: &str| {
        let script = format!(
            "{}\nCOMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _karat; echo ${{COMPREPLY[@]}}",
            scripts[0]
        );
        let ran = std::process::Command::new("bash").args(["-c", &script]).output();
        ran.ok().map(|out| String::from_utf8(out.stdout).unwrap())
    };
    let Some(top) = offered("karat") else { return left_out("completions in bash: there is none") };
    assert!(top.contains("audit") && top.contains("--json") && !top.contains("--junit"), "{top}");
    assert!(offered("karat report bundle").unwrap().contains("--junit"));
    assert_eq!(offered("karat model").unwrap().split_whitespace().next(), Some("inspect"));
    assert!(offered("karat completions").unwrap().contains("fish"));
}

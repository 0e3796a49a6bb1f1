//! `--endpoint` and `doctor --proxy` from the command line: exit codes, and what is written down.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use karat_endpoint::proxy::Upstream;
use karat_endpoint::serve::{Answer, Request, Serving};
use serde_json::json;

use crate::support::karat;

fn serving(handler: fn(&Request, &mut Answer) -> std::io::Result<()>) -> Serving {
    Serving::start("127.0.0.1:0", Arc::new(handler)).unwrap()
}

#[test]
fn what_contradicts_itself_is_usage_and_no_secret_is_shown() {
    for (args, part) in [
        (vec!["recall", "--endpoint", "http://u:s3cret@h"], "environment"),
        (vec!["recall", "--endpoint", "http://h", "--stock", "official"], "--stock"),
        (vec!["recall", "--endpoint", "http://h", "--api", "other"], "--api"),
        (vec!["recall", "--endpoint", "http://h", "--route", "generate"], "SGLang"),
        (vec!["recall", "--endpoint", "http://h", "--extra", "s3cret"], "--extra"),
        (vec!["audit", "--endpoint", "http://h", "--api", "vllm"], "--claims"),
        (vec!["audit", "--endpoint", "http://h", "--api", "vllm", "--claims", "bf16"], "--claims"),
        (vec!["audit", "--claims", "f32"], "--claims"),
        (vec!["doctor", "--proxy", "http://127.0.0.1:1", "--listen", "no-address"], "--listen"),
    ] {
        let out = karat(Path::new("."), &args).expect(2);
        assert!(out.stderr.contains(part) && !out.stderr.contains("s3cret"), "{args:?}: {}", out.stderr);
    }
}

#[test]
fn a_server_that_is_gone_or_over_its_limit_is_infra() {
    let limited = serving(|_, answer| answer.json(429, &json!({"error": {"message": "slow down"}})));
    let url = limited.url();
    for url in ["http://127.0.0.1:1", &url] {
        let args = ["recall", "turn-two", "--endpoint", url, "--retries", "0", "--json", "--quiet"];
        assert_eq!(karat(Path::new("."), &args).expect(75).json()["exit_code"], 75);
        let claims = ["--api", "sglang", "--claims", "f32", "--retries", "0", "--model-name", "m"];
        karat(Path::new("."), &[&["audit", "turn-two", "--endpoint", url][..], &claims].concat()).expect(75);
    }
}

#[test]
fn other_ids_give_no_numeric_verdict() {
    // A server that puts a token of its own in front.
    let other = serving(|request, answer| {
        if request.path != "/generate" {
            return answer.json(404, &json!({}));
        }
        let mut ids = vec![json!([null, 1, null])];
        ids.extend(request.json()["input_ids"].as_array().into_iter().flatten().map(|id| json!([-1.0, id, null])));
        answer.json(200, &json!({"meta_info": {"input_token_logprobs": ids, "input_top_logprobs": []}}))
    });
    let url = other.url();
    let args =
        ["audit", "--endpoint", &url, "--api", "sglang", "--claims", "f32", "--model-name", "m", "--json", "--quiet"];
    let said = karat(Path::new("."), &args).expect(4).json();
    assert!(said["reasons"][0].as_str().unwrap().contains("ids differ"), "{said}");
    assert_eq!(said["judged_rows"], 0);
}

#[test]
fn a_proxy_that_leads_elsewhere_is_told() {
    let elsewhere = Upstream::start("127.0.0.1:0").unwrap();
    let out = karat(Path::new("."), &["doctor", "--proxy", &elsewhere.url(), "--listen", "127.0.0.1:0"]).expect(2);
    assert!(out.stderr.contains("nothing came through"), "{}", out.stderr);
}

/// True once no process has this id.
fn is_gone(pid: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let there = Command::new("kill").args(["-0", pid]).stderr(Stdio::null()).status().unwrap().success();
        if !there {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Arguments of a run that starts `sleep` as its server, and the file that gets its process id.
fn toggled(dir: &Path, url: &str) -> (Vec<String>, std::path::PathBuf) {
    let (file, pid) = (dir.join("ab.toml"), dir.join("pid"));
    let mut toml = std::fs::File::create(&file).unwrap();
    let command = format!("echo $$ > '{}'; exec sleep 1000", pid.display());
    writeln!(toml, "format = \"karat-ab/1\"\ncommand = [\"sh\", \"-c\", \"\"\"{command}\"\"\"]").unwrap();
    let args = ["recall", "turn-two", "--endpoint", url, "--retries", "0", "--toggles", "none", "--quiet", "--ab"];
    (args.iter().map(ToString::to_string).chain([file.display().to_string()]).collect(), pid)
}

#[test]
fn a_server_that_was_started_ends_with_the_run_whatever_ends_it() {
    // Over its limit: infra, and ended.
    let asked = Arc::new(AtomicUsize::new(0));
    let health = move |request: &Request, answer: &mut Answer| match request.path.as_str() {
        "/health" if asked.fetch_add(1, Ordering::Relaxed) == 0 => answer.json(503, &json!({})),
        "/health" => answer.json(200, &json!({})),
        _ => answer.json(429, &json!({"error": {"message": "slow down"}})),
    };
    let limited = Serving::start("127.0.0.1:0", Arc::new(health)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (args, pid) = toggled(dir.path(), &limited.url());
    karat(Path::new("."), &args.iter().map(String::as_str).collect::<Vec<_>>()).expect(75);
    assert!(is_gone(std::fs::read_to_string(pid).unwrap().trim()));
    // Interrupted, once while the server is waited for, twice while a request hangs.
    for presses in [1, 2] {
        let hung = Arc::new(AtomicBool::new(false));
        let (asked, hangs) = (AtomicUsize::new(0), hung.clone());
        let handler = move |request: &Request, answer: &mut Answer| {
            if request.path == "/health" {
                let is_well = presses == 2 && asked.fetch_add(1, Ordering::Relaxed) > 0;
                return answer.json(if is_well { 200 } else { 503 }, &json!({}));
            }
            hangs.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(3));
            answer.json(200, &json!({}))
        };
        let hanging = Serving::start("127.0.0.1:0", Arc::new(handler)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (args, pid) = toggled(dir.path(), &hanging.url());
        let mut child = Command::new(env!("CARGO_BIN_EXE_karat")).args(&args).stderr(Stdio::null()).spawn().unwrap();
        let ready = || pid.metadata().is_ok_and(|m| m.len() > 0) && (presses == 1 || hung.load(Ordering::Relaxed));
        while !ready() {
            std::thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..presses {
            Command::new("kill")
                .args([if presses == 1 { "-TERM" } else { "-INT" }, &child.id().to_string()])
                .status()
                .unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{presses}");
        assert!(is_gone(std::fs::read_to_string(pid).unwrap().trim()), "{presses}");
    }
}

#[test]
fn a_proxy_over_its_limit_is_infra() {
    let karat_behind = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let limited = serving(|_, answer| answer.json(429, &json!({"error": {"message": "slow down"}})));
    karat(Path::new("."), &["doctor", "--proxy", &limited.url(), "--listen", &karat_behind]).expect(75);
}

//! `--endpoint` and `doctor --proxy` from the command line: exit codes, and what is written down.

use std::path::Path;
use std::sync::Arc;

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

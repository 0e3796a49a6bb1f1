use crate::Kind;
use crate::rules::tests::{fails, setting, verify_one};

const INFO: &str = r#"{
  "model_path": "/srv/model",
  "tp_size": 2,
  "moe_runner_backend": "auto",
  "api_key": "s3cret",
  "enable_fp32_lm_head": false,
  "launch_command": "python -m sglang.launch_server --tp 2 --moe-runner-backend auto",
  "internal_states": [{"moe_runner_backend": "triton", "env_vars": {"SGLANG_DSV4_FP4_DEQUANT": "1"}}],
  "version": "0.5.23"
}"#;

#[test]
fn the_scheduler_s_own_state_counts_most() {
    let report = verify_one(Kind::ServerInfo, INFO);
    let runner = setting(&report, "moe_runner_backend");
    assert_eq!(runner.value.as_deref(), Some("triton"));
    assert_eq!(runner.evidence[0].source, Kind::Scheduler);
    assert_eq!(runner.evidence[0].text, "internal_states[0].moe_runner_backend: triton");
    assert!(report.conflicts.is_empty(), "auto that became triton is no conflict: {:?}", report.conflicts);
    assert_eq!(setting(&report, "version").value.as_deref(), Some("0.5.23"));
    assert_eq!(setting(&report, "version").evidence[0].line, 9);
    assert_eq!(setting(&report, "SGLANG_DSV4_FP4_DEQUANT").value.as_deref(), Some("true"));
    assert!(!serde_json::to_string(&report).unwrap().contains("s3cret"));
}

#[test]
fn ranks_that_differ_are_a_conflict() {
    let text = r#"{"version":"1","internal_states":[{"chunked_prefill_size":8192},{"chunked_prefill_size":4096}]}"#;
    let report = verify_one(Kind::ServerInfo, text);
    assert_eq!(report.conflicts[0].setting, "chunked_prefill_size");
}

#[test]
fn other_json_and_cut_json_are_errors() {
    let error = fails(Kind::ServerInfo, "{\"version\": \"0.5.23\",\n \"tp_size\"");
    assert!(error.place == "f:2" && error.what.contains("cut"), "{error}");
    assert!(fails(Kind::ServerInfo, "[1, 2]").what.contains("no answer"));
    assert!(fails(Kind::ServerInfo, "{\"detail\": \"Not Found\"}").what.contains("no answer"));
}

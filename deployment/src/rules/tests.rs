use karat_model::{Error, ErrorKind};
use proptest::prelude::*;

use crate::report::Report;
use crate::{Kind, Requested, Setting, Source, State, report_text, verify};

pub(crate) fn source(kind: Kind, text: &str) -> Source {
    Source { kind, label: "f".into(), bytes: text.as_bytes().to_vec() }
}

pub(crate) fn verify_one(kind: Kind, text: &str) -> Report {
    verify_all(&[(kind, text)])
}

pub(crate) fn verify_all(sources: &[(Kind, &str)]) -> Report {
    let sources: Vec<Source> = sources.iter().map(|(kind, text)| source(*kind, text)).collect();
    verify(&sources, &["bf16-mhc"], &[]).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn fails(kind: Kind, text: &str) -> Error {
    let error = verify(&[source(kind, text)], &[], &[]).expect_err(text);
    assert_eq!(error.kind, ErrorKind::Input, "{error}");
    error
}

pub(crate) fn setting<'a>(report: &'a Report, name: &str) -> &'a Setting {
    report.settings.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name} in {:?}", report.settings))
}

pub(crate) fn state(report: &Report, patch: &str) -> (Requested, State) {
    let row = report.patches.iter().find(|r| r.patch == patch).unwrap_or_else(|| panic!("{patch}"));
    (row.requested, row.state)
}

pub(crate) fn has_note(report: &Report, start: &str) -> bool {
    report.notes.iter().any(|n| n.text.contains(start))
}

const SM120: &str = "x device_name=NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition.json\n";
const H200: &str = "x device_name=NVIDIA_H200.json\n";
const INFO: &str =
    r#"{"version": "0.5.23", "tp_size": 1, "moe_runner_backend": "triton", "kv_cache_dtype": "fp8_e4m3"}"#;
const TOPK: &str = "--- a/srt/layers/moe/hash_topk.py\n+++ b/srt/layers/moe/hash_topk.py\n@@ -1 +1 @@ def forward(self):\n-    pass\n+    topk_weights = topk_weights * self.routed_scaling_factor\n";
const HC_PRE: &str = "--- a/srt/models/deepseek_v4.py\n+++ b/srt/models/deepseek_v4.py\n@@ -1 +1 @@ def hc_pre(self):\n-    F.linear(x, hc_fn)\n+    F.linear(x.bfloat16(), hc_fn.bfloat16())\n";

/// The suspected patch that turned out not to be active.
#[test]
fn routed_scaling_in_hash_top_k_is_inert_under_triton() {
    let report = verify_all(&[(Kind::Diff, TOPK), (Kind::Command, "sglang serve --moe-runner-backend triton")]);
    assert_eq!(state(&report, "routed-scaling-in-topk"), (Requested::Yes, State::Inert));
    assert_eq!(report.verdict.exit_code(), 1);
    let row = report.patches.iter().find(|r| r.patch == "routed-scaling-in-topk").unwrap();
    let claim = row.why.iter().find(|c| c.rule == "routed-scaling-inert-under-triton").unwrap();
    assert_eq!(claim.evidence[0].text, "--moe-runner-backend triton");
    assert!(
        report_text(&report).starts_with("fail: routed-scaling-in-topk is requested and inert\n"),
        "{}",
        report_text(&report)
    );
    // Inert whether or not it is asked for; nobody's fault then.
    let report = verify_one(Kind::Command, "sglang serve --moe-runner-backend triton");
    assert_eq!(state(&report, "routed-scaling-in-topk"), (Requested::Unknown, State::Inert));
    assert_eq!(report.verdict.exit_code(), 0);
    // Without the backend, unknown and never inactive.
    let report = verify_one(Kind::Diff, TOPK);
    assert_eq!(state(&report, "routed-scaling-in-topk"), (Requested::Yes, State::Unknown));
    assert_eq!(report.verdict.exit_code(), 4);
    // A backend that folds the factor asks for it by itself.
    let report = verify_one(Kind::Command, "sglang serve --moe-runner-backend flashinfer_trtllm_routed");
    assert_eq!(state(&report, "routed-scaling-in-topk"), (Requested::Yes, State::CanBeActive));
    // NVFP4 through ModelOpt folds it whatever the runner is called: the rule is lifted.
    let report = verify_all(&[
        (Kind::Diff, TOPK),
        (Kind::Command, "sglang serve --moe-runner-backend triton --quantization modelopt_fp4"),
    ]);
    assert_eq!(state(&report, "routed-scaling-in-topk"), (Requested::Yes, State::CanBeActive));
}

#[test]
fn the_bf16_line_of_hc_pre_can_be_active_on_sm120_and_stands_behind_tilelang_elsewhere() {
    let env = "PATH=/bin\n";
    let all =
        |log| verify_all(&[(Kind::Diff, HC_PRE), (Kind::Environment, env), (Kind::ServerInfo, INFO), (Kind::Log, log)]);
    let report = all(SM120);
    assert_eq!(state(&report, "bf16-mhc"), (Requested::Yes, State::CanBeActive));
    assert_eq!(state(&report, "tf32-mhc"), (Requested::No, State::Off), "off by default on sm_120");
    assert_eq!(state(&all(H200), "bf16-mhc"), (Requested::Yes, State::Unknown));
    assert_eq!(state(&all(H200), "tf32-mhc"), (Requested::ByDefault, State::CanBeActive));
    // No setting shows an edit of the source.
    let report = verify_all(&[(Kind::Environment, env), (Kind::ServerInfo, INFO), (Kind::Log, SM120)]);
    assert_eq!(state(&report, "bf16-mhc"), (Requested::Unknown, State::Unknown));
}

#[test]
fn a_toggle_is_judged_by_the_architecture() {
    let env = "PATH=/bin\nSGLANG_MMA_FLASHMLA=1\n";
    assert_eq!(state(&verify_all(&[(Kind::Environment, env)]), "mma-sparse-mla"), (Requested::Yes, State::Unknown));
    let on = |log| verify_all(&[(Kind::Environment, env), (Kind::Log, log)]);
    assert_eq!(state(&on(SM120), "mma-sparse-mla"), (Requested::Yes, State::CanBeActive));
    assert_eq!(state(&on(H200), "mma-sparse-mla"), (Requested::Yes, State::Inert));
    assert_eq!(on(H200).verdict.exit_code(), 1);
    let off = "PATH=/bin\nMMA_FLASHMLA=0\n";
    assert_eq!(state(&verify_one(Kind::Environment, off), "mma-sparse-mla"), (Requested::No, State::Off));
    // A source that has the kernel asks for it, unless the switch is seen to be off.
    let kernel = "--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n a\n+if env(\"MMA_FLASHMLA\"):\n";
    let patched = |env| verify_all(&[(Kind::Diff, kernel), (Kind::Environment, env), (Kind::Log, SM120)]);
    assert_eq!(state(&patched("PATH=/bin\n"), "mma-sparse-mla"), (Requested::Yes, State::CanBeActive));
    assert_eq!(state(&patched(off), "mma-sparse-mla"), (Requested::No, State::Off));
    // Not set: what a fork does then is not public.
    let unset = verify_one(Kind::Environment, "PATH=/bin\n");
    assert_eq!(state(&unset, "mma-sparse-mla"), (Requested::Unknown, State::Unknown));
}

#[test]
fn another_engine_reads_no_sglang_variable() {
    let text = "SGLANG_DSV4_COMPRESS_STATE_DTYPE=bf16 vllm serve /srv/model --tensor-parallel-size 2";
    let report = verify_one(Kind::Command, text);
    assert_eq!(state(&report, "bf16-compressor-state"), (Requested::Yes, State::Inert));
    assert_eq!(state(&report, "tp-allreduce"), (Requested::Yes, State::CanBeActive));
    let alone = verify_one(Kind::Command, "SGLANG_DSV4_COMPRESS_STATE_DTYPE=bf16 numactl true");
    assert_eq!(state(&alone, "bf16-compressor-state"), (Requested::Yes, State::CanBeActive), "no engine is seen");
}

#[test]
fn the_torch_indexer_stands_behind_the_tilelang_one() {
    let report = |env: &str| verify_all(&[(Kind::Environment, env), (Kind::ServerInfo, INFO), (Kind::Log, SM120)]);
    let asked = report("PATH=/bin\nSGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1\n");
    assert_eq!(state(&asked, "fp8-indexer:product=bf16"), (Requested::Yes, State::Inert));
    let both = report("PATH=/bin\nSGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1\nSGLANG_OPT_USE_TILELANG_INDEXER=0\n");
    // The FP4 indexer could still come first: the arguments that were seen say nothing of it, so its default holds.
    assert_eq!(state(&both, "fp8-indexer:product=bf16"), (Requested::Yes, State::CanBeActive));
}

#[test]
fn patches_of_one_kernel_contradict_each_other() {
    let env = "PATH=/bin\nSGLANG_MMA_FLASHMLA=1\nSGLANG_SM120_FLASHMLA_BACKEND=flashinfer\n";
    let report = verify_all(&[(Kind::Environment, env), (Kind::Log, SM120)]);
    assert_eq!(report.verdict.exit_code(), 1);
    assert_eq!(report.contradictions[0].between, ["fp8-q-sparse-mla", "mma-sparse-mla"]);
    assert_eq!(report.contradictions[0].rule, "one-decode-attention");
    // One of them by default only: said, not failed.
    let env = "PATH=/bin\nSGLANG_MMA_FLASHMLA=1\n";
    let report = verify_all(&[(Kind::Environment, env), (Kind::ServerInfo, INFO), (Kind::Log, SM120)]);
    assert_eq!(report.verdict.exit_code(), 0);
    let row = report.patches.iter().find(|r| r.patch == "mma-sparse-mla").unwrap();
    assert!(row.why.iter().any(|c| c.says.contains("fp8-q-sparse-mla is on by default")), "{row:?}");
    // A pair that only the registry knows.
    let sources = [source(Kind::Command, "sglang serve --tp 2 --chunked-prefill-size 4096")];
    let report = verify(&sources, &[], &[("tp-allreduce", "chunked-prefill")]).unwrap();
    assert_eq!((report.verdict.exit_code(), report.contradictions[0].rule.as_str()), (1, "registry"));
}

#[test]
fn settings_that_cannot_hold_together_are_named_with_both_lines() {
    let text = "SGLANG_DSV4_FP4_DEQUANT=1 sglang serve --moe-runner-backend triton";
    let report = verify_one(Kind::Command, text);
    let clash = report.contradictions.iter().find(|c| c.rule == "dequant-needs-auto-runner").unwrap();
    assert_eq!(clash.evidence.len(), 2);
    let auto = verify_one(Kind::Command, "SGLANG_DSV4_FP4_DEQUANT=1 sglang serve --moe-runner-backend auto");
    assert!(auto.contradictions.is_empty(), "{:?}", auto.contradictions);
}

#[test]
fn sources_that_disagree_are_named_with_the_one_that_counts() {
    let unit = "[Service]\nEnvironment=SGLANG_DSV4_FP4_DEQUANT=0\nExecStart=sglang serve --tp 2\n";
    let report = verify_all(&[(Kind::Environment, "PATH=/bin\nSGLANG_DSV4_FP4_DEQUANT=1\n"), (Kind::Unit, unit)]);
    let conflict = &report.conflicts[0];
    assert_eq!((conflict.setting.as_str(), conflict.wins.value.as_deref()), ("SGLANG_DSV4_FP4_DEQUANT", Some("true")));
    assert_eq!((conflict.wins.evidence.source, conflict.others[0].evidence.source), (Kind::Environment, Kind::Unit));
    assert!(conflict.why.starts_with("environment is nearest to the running process"), "{}", conflict.why);
}

#[test]
fn every_patch_is_unknown_where_nothing_is_seen() {
    let report = verify_one(Kind::Environment, "LANG=C\n");
    assert!(report.patches.iter().all(|r| r.state == State::Unknown));
    assert_eq!(report.verdict.exit_code(), 4);
    assert!(report.patches.iter().all(|r| !r.why.is_empty()), "and each says why");
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Unit,
        Kind::Command,
        Kind::Process,
        Kind::Environment,
        Kind::Maps,
        Kind::Log,
        Kind::ServerInfo,
        Kind::Diff,
    ])
}

/// Texts near enough to the real thing to get past the first line.
fn nearly() -> impl Strategy<Value = String> {
    let pieces = vec![
        "[Service]\n",
        "ExecStart=",
        "Environment=",
        "SGLANG_MMA_FLASHMLA=1",
        "sglang serve ",
        "--tp ",
        "--moe-runner-backend=",
        "\\\n",
        "'",
        "\"",
        "docker run -e ",
        "-v a:b/indexer.py ",
        "server_args=ServerArgs(",
        "{'tp_size': ",
        "{\"version\": ",
        "\"tp_size\": 2",
        "}",
        ")",
        ", ",
        "=",
        "\n",
        "\0",
        "--- a/x\n",
        "+++ b/x\n",
        "@@ -1 +1 @@",
        "@@ -1,2 +3,4 @@ def hc_pre(\n",
        "-a\n",
        "+b\n",
        "diff --git a/x b/x\n",
        "HF_TOKEN=",
        "é\u{202e}",
        "bash -c ",
        "Use ",
        " as MoE runner backend for",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|p| p.concat())
}

fn lawful(kind: Kind, bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let sources = [Source { kind, label: "f".into(), bytes }];
    match verify(&sources, &[], &[]) {
        Ok(report) => {
            let text = report_text(&report);
            prop_assert!(text.starts_with(report.verdict.name()) && [0, 1, 4].contains(&report.verdict.exit_code()));
            prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            for row in &report.patches {
                let seen = row.why.iter().any(|c| !c.evidence.is_empty());
                prop_assert!(row.state == State::Unknown || seen, "{} is {:?} without evidence", row.patch, row.state);
            }
        }
        Err(error) => {
            prop_assert_eq!(error.kind, ErrorKind::Input);
            prop_assert!(error.place.starts_with('f') && !error.what.is_empty(), "{}", error);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_give_a_report_or_an_error_with_its_place(kind in any_kind(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        lawful(kind, bytes)?;
    }

    #[test]
    fn texts_that_are_nearly_right_too(kind in any_kind(), text in nearly()) {
        lawful(kind, text.into_bytes())?;
    }

    #[test]
    fn a_secret_never_leaves(kind in any_kind(), before in nearly(), secret in "s3[A-Za-z0-9]{14}", after in nearly()) {
        for line in [format!("HF_TOKEN={secret}"), format!("--api-key {secret}"), format!("\"api_key\": \"{secret}\""), format!("abort api_key='{secret}'")] {
            let bytes = format!("{before}\n{line}\n{after}").into_bytes();
            let said = match verify(&[Source { kind, label: "f".into(), bytes }], &[], &[]) {
                Ok(report) => serde_json::to_string(&report).unwrap() + &report_text(&report),
                Err(error) => error.to_string(),
            };
            prop_assert!(!said.contains(&secret), "{said}");
        }
    }
}

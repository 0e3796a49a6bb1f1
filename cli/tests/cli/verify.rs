//! `karat patches --verify` and `--from-diff` on files as people have them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Ran, karat, karat_in};

const UNIT: &str = r#"[Service]
User=sglang
Environment=SGLANG_MMA_FLASHMLA=0 "HF_TOKEN=hf_s3cretvalue"
ExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path /srv/dsv4-flash \
  --moe-runner-backend triton --tp 2 --chunked-prefill-size 8192 --api-key s3cretvalue
"#;

const ENV: &str = "PATH=/usr/bin\nSGLANG_MMA_FLASHMLA=1\nHF_TOKEN=hf_s3cretvalue\nSGLANG_OPT_USE_FUSED_HASH_TOPK=1\n";

const INFO: &str = r#"{"model_path": "/srv/dsv4-flash", "tp_size": 2, "moe_runner_backend": "triton", "kv_cache_dtype": "fp8_e4m3",
"chunked_prefill_size": 8192, "api_key": "s3cretvalue", "internal_states": [{"moe_runner_backend": "triton"}], "version": "0.5.23"}"#;

const LOG: &str = "\
[21:00:02 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file not found at /opt/configs/E=256,N=1024,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition.json
[21:03:10] Request is disconnected from the client side (type 1). Abort request obj.rid='a1'
[21:03:11 TP0] Decode batch, #running-req: 1, #retracted-req: 0, api_key=s3cretvalue aborted
  File \"/srv/patched/sglang/srt/models/deepseek_v4.py\", line 3363, in hc_pre
";

const DIFF: &str = r"diff --git a/python/sglang/srt/models/deepseek_v4.py b/python/sglang/srt/models/deepseek_v4.py
--- a/python/sglang/srt/models/deepseek_v4.py
+++ b/python/sglang/srt/models/deepseek_v4.py
@@ -3360,3 +3360,3 @@ def hc_pre(
                 x_flat.square().mean(-1, keepdim=True) + self.rms_norm_eps
-            mixes = (F.linear(x_flat, hc_fn) * rsqrt).unsqueeze(1)
+            mixes = (F.linear(x_flat.bfloat16(), hc_fn.bfloat16()).float() * rsqrt).unsqueeze(1)
             return x_flat, mixes
diff --git a/python/sglang/srt/layers/moe/hash_topk.py b/python/sglang/srt/layers/moe/hash_topk.py
--- a/python/sglang/srt/layers/moe/hash_topk.py
+++ b/python/sglang/srt/layers/moe/hash_topk.py
@@ -262,2 +262,3 @@ def forward(
         if self.apply_routed_scaling_factor_on_output:
+            self.scaled = True
             topk_weights = topk_weights * self.routed_scaling_factor
diff --git a/python/sglang/srt/layers/moe/hash_topk.py b/python/sglang/srt/layers/moe/hash_topk.py
--- a/python/sglang/srt/layers/moe/hash_topk.py
+++ b/python/sglang/srt/layers/moe/hash_topk.py
@@ -20,1 +20,1 @@ class HashTopK(nn.Module):
-        apply_routed_scaling_factor_on_output=False,
+        apply_routed_scaling_factor_on_output=True,
diff --git a/python/sglang/srt/managers/scheduler.py b/python/sglang/srt/managers/scheduler.py
--- a/python/sglang/srt/managers/scheduler.py
+++ b/python/sglang/srt/managers/scheduler.py
@@ -1,1 +1,1 @@ def run(
-        batch = self.next()
+        batch = self.next_batch()
";

const ALL: [&str; 11] = [
    "--unit",
    "u.service",
    "--env",
    "environ",
    "--server-info",
    "info.json",
    "--log",
    "server.log",
    "--from-diff",
    "p.diff",
    "--quiet",
];

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in
        [("u.service", UNIT), ("environ", ENV), ("info.json", INFO), ("server.log", LOG), ("p.diff", DIFF)]
    {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn run(dir: &Path, args: &[&str]) -> Ran {
    karat(dir, &[&["patches", "--verify"][..], args].concat())
}

fn row<'a>(data: &'a serde_json::Value, patch: &str) -> &'a serde_json::Value {
    data["patches"].as_array().unwrap().iter().find(|r| r["patch"] == patch).unwrap()
}

/// The story: a bf16 line in hc_pre, an MMA kernel behind a toggle, and a suspected patch that is not active.
#[test]
fn the_story_s_deployment() {
    let dir = place();
    let ran = run(dir.path(), &ALL).expect(1);
    assert!(ran.stdout.starts_with("fail: routed-scaling-in-topk is requested and inert\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("routed-scaling-inert-under-triton: the triton MoE runner"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("/srv/patched/sglang/srt/models/deepseek_v4.py: ran (a traceback names it)"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("s3cretvalue") && ran.stderr.is_empty(), "{}{}", ran.stdout, ran.stderr);
    let json = run(dir.path(), &[&ALL[..], &["--json"]].concat()).expect(1);
    assert!(!json.stdout.contains("s3cretvalue"), "{}", json.stdout);
    let data = json.json();
    let state = |patch| (row(&data, patch)["requested"].clone(), row(&data, patch)["state"].clone());
    assert_eq!(state("bf16-mhc"), ("yes".into(), "can-be-active".into()));
    assert_eq!(state("mma-sparse-mla"), ("yes".into(), "can-be-active".into()));
    assert_eq!(state("routed-scaling-in-topk"), ("yes".into(), "inert".into()));
    assert_eq!(state("bf16-indexer"), ("unknown".into(), "unknown".into()));
    assert_eq!((&data["exit_code"], &data["verdict"]), (&1.into(), &"fail".into()));
    // The unit says 0, the process was started with 1.
    let conflict = &data["conflicts"][0];
    assert_eq!((&conflict["setting"], &conflict["wins"]["value"]), (&"MMA_FLASHMLA".into(), &"true".into()), "{data}");
    assert_eq!(conflict["others"][0]["evidence"]["line"], 3);
    let abort = data["journal"].as_array().unwrap().iter().find(|w| w["word"] == "abort").unwrap();
    assert_eq!((&abort["count"], &abort["first"][0]["line"]), (&2.into(), &2.into()));
    let retract = data["journal"].as_array().unwrap().iter().find(|w| w["word"] == "retract").unwrap();
    assert_eq!(retract["count"], 0, "#retracted-req: 0 is harmless");
}

/// What docs/verify.md shows is what these files give.
#[test]
fn the_worked_example_is_true() {
    let dir = place();
    let said = run(dir.path(), &ALL).expect(1).stdout;
    let docs = include_str!("../../../docs/verify.md");
    assert!(docs.contains(&said), "docs/verify.md should show:\n{said}");
}

#[test]
fn exit_codes_of_lesser_deployments() {
    let dir = place();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("run.sh", "sglang serve --moe-runner-backend triton");
    let text = run(dir.path(), &["--command", "run.sh"]).expect(0).stdout;
    assert!(text.starts_with("pass: ") && text.contains("unknown is not inactive"), "{text}");
    write("part", "LANG=C\n");
    let text = run(dir.path(), &["--env", "part"]).expect(4).stdout;
    assert!(text.starts_with("unproven: "), "{text}");
    write("both", "PATH=/bin\nSGLANG_DSV4_FP4_DEQUANT=1\n");
    let text = run(dir.path(), &["--env", "both", "--command", "run.sh"]).expect(1).stdout;
    assert!(text.contains("contradiction: SGLANG_DSV4_FP4_DEQUANT, moe_runner_backend"), "{text}");
}

#[test]
fn what_cannot_be_asked_exits_2() {
    let dir = place();
    let ran = run(dir.path(), &[]).expect(2);
    assert!(ran.error().contains("nothing to verify"), "{}", ran.stderr);
    let ran = run(dir.path(), &["--server-info", "http://me:s3cretvalue@host:30000/server_info"]).expect(2);
    assert!(ran.error().contains("curl -s http://host:30000/server_info"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("s3cretvalue"), "{}", ran.stderr);
    let ran = karat(dir.path(), &["patches", "--env", "environ"]).expect(2);
    assert!(ran.stderr.contains("--verify"), "{}", ran.stderr);
}

#[test]
fn broken_files_exit_3_with_one_message() {
    let dir = place();
    let cases = [
        ("--env", "hf_s3cretvalue\n", "x: line 1"),
        ("--unit", "[Service]\nnonsense s3cretvalue\n", "x:2"),
        ("--server-info", "{\"version\": ", "x:1"),
        ("--command", "sglang serve 's3cretvalue", "x:1"),
        ("--log", " \n", "x: "),
        ("--from-diff", "import s3cretvalue\n", "x:1"),
    ];
    for (flag, text, place) in cases {
        std::fs::write(dir.path().join("x"), text).unwrap();
        let ran = run(dir.path(), &[flag, "x"]).expect(3);
        assert!(ran.error().starts_with(place) && ran.stdout.is_empty(), "{flag}: {}", ran.stderr);
        assert!(!ran.stderr.contains("s3cretvalue"), "{flag}: {}", ran.stderr);
    }
    let ran = run(dir.path(), &["--env", "absent"]).expect(3);
    assert!(ran.error().starts_with("absent: "), "{}", ran.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn a_running_process_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .env_clear()
        .envs([("PATH", "/bin"), ("SGLANG_DSV4_COMPRESS_STATE_DTYPE", "bfloat16"), ("HF_TOKEN", "hf_s3cretvalue")])
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let args = ["patches", "--verify", "--pid", &pid, "--json"];
    // Until it has started, the process has the environment of this one.
    let mut ran = karat_in(dir.path(), &args, &[]);
    for _ in 0..50 {
        if ran.stdout.contains("SGLANG_DSV4_COMPRESS_STATE_DTYPE=bfloat16") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        ran = karat_in(dir.path(), &args, &[]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // `sleep` is no engine: what it has not set proves nothing.
    let data = ran.expect(4).json();
    assert_eq!(row(&data, "bf16-compressor-state")["state"], "can-be-active", "{data}");
    assert_eq!(row(&data, "fp8-lm-head")["state"], "off", "not set in a whole environment");
    assert!(!data.to_string().contains("s3cretvalue"), "{data}");
}

#[test]
fn a_diff_alone_is_mapped() {
    let dir = place();
    let text = karat(dir.path(), &["patches", "--from-diff", "p.diff"]).expect(0).stdout;
    assert!(text.starts_with("diff: 4 hunks, 1 of them in no table\n"), "{text}");
    assert!(text.contains("known as bf16-mhc") && text.contains("known as routed-scaling-in-topk"), "{text}");
    assert!(text.contains("python/sglang/srt/managers/scheduler.py, run: [p.diff:"), "{text}");
    let data = karat(dir.path(), &["patches", "--from-diff", "p.diff", "--json"]).expect(0).json();
    assert_eq!(data["hunks"][0]["ops"], serde_json::json!(["hc_attn.pre", "hc_ffn.pre"]));
    assert_eq!(data["unknown"].as_array().unwrap().len(), 1);
    let cut = &DIFF[..DIFF.len() - 60];
    std::fs::write(dir.path().join("cut.diff"), cut).unwrap();
    let ran = karat(dir.path(), &["patches", "--from-diff", "cut.diff"]).expect(3);
    assert!(ran.error().contains("no whole unified diff") && ran.error().starts_with("cut.diff:"), "{}", ran.stderr);
    std::fs::write(dir.path().join("other.diff"), "--- a/x.c\n+++ b/x.c\n@@ -1 +1 @@\n-a\n+b\n").unwrap();
    karat(dir.path(), &["patches", "--from-diff", "other.diff"]).expect(4);
}

/// The tables' names are the registry's and the graph's.
#[test]
fn the_tables_name_patches_and_ops_that_exist() {
    let registry: BTreeSet<&str> = karat_optimized::patches().iter().map(|p| p.name).collect();
    let planned = karat_deployment::planned_names();
    for name in karat_deployment::change_names() {
        assert!(
            registry.contains(name) || planned.contains(name),
            "{name} is no patch of the registry, and not planned"
        );
    }
    for (name, option) in karat_deployment::change_options() {
        let patch = karat_optimized::patches().iter().find(|p| p.name == name);
        let known = |p: &&karat_optimized::Patch| p.options.iter().any(|o| option.split('=').next() == Some(o.name));
        assert!(patch.is_none_or(known), "{name} has no option {option}");
    }
    let stale: Vec<&&str> = planned.intersection(&registry).collect();
    assert!(
        stale.is_empty(),
        "the registry has {stale:?} now: take them off `planned` in deployment/data/changes.toml"
    );
    let ops: BTreeSet<&str> = karat_seam::OpSpec::graph().iter().map(|spec| spec.name).collect();
    let unknown: Vec<&str> = karat_deployment::op_names().into_iter().filter(|name| !ops.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no ops of the graph");
}

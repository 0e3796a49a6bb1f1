use crate::Kind;
use crate::rules::tests::{has_note, setting, verify_one};

const LOG: &str = "\
[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/srv/m', tp_size=2, moe_runner_backend='auto', api_key='s3cret')
[2026-11-29 10:00:01] Use triton as MoE runner backend for DeepseekV4ForCausalLM.
[2026-11-29 10:00:02 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file not found at /opt/E=256,N=512,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition.json
[2026-11-29 10:00:03 TP0] max_total_num_tokens=81920, chunked_prefill_size=8192, max_prefill_tokens=16384, context_len=65536
  File \"/srv/patched/sglang/srt/models/deepseek_v4.py\", line 3363, in hc_pre
/opt/venv/lib/sglang/srt/layers/moe/hash_topk.py:12: UserWarning: slow
";

#[test]
fn the_dump_the_lines_and_the_files() {
    let report = verify_one(Kind::Log, LOG);
    let value = |name| setting(&report, name).value.clone().unwrap();
    assert_eq!(value("moe_runner_backend"), "triton");
    assert_eq!(value("arch"), "sm_120");
    assert_eq!(value("chunked_prefill_size"), "8192");
    assert_eq!(value("triton_moe_kernel"), "true");
    assert_eq!(setting(&report, "tp_size").evidence[0].text, "tp_size=2");
    let copies = |name| report.files.iter().find(|f| f.file == name).unwrap().copies.clone();
    assert_eq!(copies("models/deepseek_v4.py")[0].path, "/srv/patched/sglang/srt/models/deepseek_v4.py");
    assert_eq!(copies("models/deepseek_v4.py")[0].evidence.line, 5);
    assert_eq!(copies("moe/hash_topk.py")[0].path, "/opt/venv/lib/sglang/srt/layers/moe/hash_topk.py");
    assert!(copies("dsv4/compressor.py").is_empty());
    assert!(!serde_json::to_string(&report).unwrap().contains("s3cret"));
}

#[test]
fn a_cut_dump_says_where_it_ends() {
    let report = verify_one(Kind::Log, "x server_args={'tp_size': 2, 'moe_runner_backend': 'tri\n");
    assert!(has_note(&report, "cut after tp_size"), "{:?}", report.notes);
    assert!(report.settings.iter().all(|s| s.name != "moe_runner_backend"));
}

#[test]
fn colours_hide_no_word() {
    let lines = "\u{1b}[31mRetracted\u{1b}[0m 2 requests\n\u{1b}[1;33mx #033[0mNaN#033[0m \u{1b}[";
    let report = verify_one(Kind::Log, lines);
    let words = report.journal.unwrap();
    let count = |word: &str| words.iter().find(|w| w.word == word).unwrap();
    assert_eq!((count("retract").count, count("nan").count), (1, 1));
    assert_eq!(count("retract").first[0].text, "Retracted 2 requests");
}

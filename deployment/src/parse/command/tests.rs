use crate::Kind;
use crate::rules::tests::{fails, has_note, setting, verify_all, verify_one};

#[test]
fn a_script_with_its_own_variables() {
    let text = "#!/bin/bash\nexport SGLANG_OPT_FP8_WO_A_GEMM=1\nOTHER=x ls\nSGLANG_DSV4_FP4_DEQUANT=true numactl -N 0 \\\n  python -m sglang.launch_server \\\n  --enable-fp32-lm-head --tensor-parallel-size 4 --moe-runner-backend=auto\n";
    let report = verify_one(Kind::Command, text);
    assert_eq!(setting(&report, "SGLANG_OPT_FP8_WO_A_GEMM").value.as_deref(), Some("true"));
    assert_eq!(setting(&report, "SGLANG_DSV4_FP4_DEQUANT").evidence[0].line, 4);
    assert_eq!(setting(&report, "enable_fp32_lm_head").value.as_deref(), Some("true"));
    let tp = setting(&report, "tp_size");
    assert_eq!(
        (tp.value.as_deref(), tp.evidence[0].line, tp.evidence[0].text.as_str()),
        (Some("4"), 6, "--tensor-parallel-size 4")
    );
}

#[test]
fn a_flag_given_twice_is_named_and_the_last_counts() {
    let report = verify_one(Kind::Command, "sglang serve --moe-runner-backend triton --moe-runner-backend marlin");
    assert_eq!(setting(&report, "moe_runner_backend").value.as_deref(), Some("marlin"));
    let conflict = &report.conflicts[0];
    assert_eq!(conflict.others[0].value.as_deref(), Some("triton"));
    assert!(conflict.why.contains("the last counts"), "{}", conflict.why);
}

#[test]
fn arguments_alone_and_commands_without_any() {
    let report = verify_one(Kind::Command, "--moe-runner-backend triton");
    assert_eq!(setting(&report, "moe_runner_backend").value.as_deref(), Some("triton"));
    let report = verify_one(Kind::Command, "ls -l");
    assert!(has_note(&report, "no command of SGLang or vLLM"), "{:?}", report.notes);
    assert_eq!(report.verdict.exit_code(), 4);
    let report = verify_one(Kind::Command, "sglang serve --moe-runner-backend");
    assert!(has_note(&report, "--moe-runner-backend has no value"), "{:?}", report.notes);
}

#[test]
fn a_process_command_line_has_nul_between_words() {
    let report = verify_one(Kind::Process, "python\0-m\0sglang.launch_server\0--tp\x002\0--served-model-name\0a b\0");
    let tp = setting(&report, "tp_size");
    assert_eq!((tp.value.as_deref(), tp.evidence[0].line), (Some("2"), 4));
}

/// What a process of something else has not set says nothing about a server.
#[test]
fn another_process_proves_nothing() {
    let environment = "PATH=/bin\0HOME=/\0";
    let of = |command| verify_all(&[(Kind::Environment, environment), (Kind::Process, command)]);
    let report = of("bash\0-c\0sleep 1\0");
    assert_eq!(report.verdict.exit_code(), 4, "{:?}", report.notes);
    assert!(crate::report_text(&report).starts_with("unproven: the process is none of an engine's"));
    assert_eq!(of("python\0-m\0sglang.launch_server\0").verdict.exit_code(), 0);
    let named = of("sglang::scheduler_TP0\0");
    assert_eq!((named.verdict.exit_code(), has_note(&named, "named itself")), (0, true));
}

#[test]
fn a_cut_command_is_an_error() {
    let error = fails(Kind::Command, "sglang serve \\\n --model-path \"/srv/a b");
    assert!(error.place == "f:2" && error.what.contains("cut"), "{error}");
    assert!(fails(Kind::Command, "# only a comment").what.contains("empty"));
}

use crate::Kind;
use crate::rules::tests::{fails, has_note, setting, verify_one};

#[test]
fn environment_and_command_with_their_lines() {
    let text = "\
# /etc/systemd/system/sglang.service
[Service]
Environment=SGLANG_DSV4_FP4_DEQUANT=0 \"SGLANG_MMA_FLASHMLA=1\"
Environment=SGLANG_DSV4_FP4_DEQUANT=1
EnvironmentFile=-/etc/sglang.env
ExecStart=/opt/venv/bin/python -m sglang.launch_server \\
  --model-path /srv/model \\
# a comment inside
  --moe-runner-backend triton --tp=2
";
    let report = verify_one(Kind::Unit, text);
    assert_eq!(setting(&report, "SGLANG_DSV4_FP4_DEQUANT").value.as_deref(), Some("true"), "the last line counts");
    assert_eq!(report.conflicts[0].others[0].evidence.line, 3);
    assert_eq!(setting(&report, "MMA_FLASHMLA").evidence[0].text, "SGLANG_MMA_FLASHMLA=1");
    let runner = setting(&report, "moe_runner_backend");
    assert_eq!((runner.value.as_deref(), runner.evidence[0].line), (Some("triton"), 9));
    assert_eq!(setting(&report, "tp_size").value.as_deref(), Some("2"));
    assert_eq!(setting(&report, "engine").value.as_deref(), Some("sglang"));
    assert!(has_note(&report, "EnvironmentFile="), "{:?}", report.notes);
}

#[test]
fn an_empty_assignment_starts_the_list_again() {
    let text = "[Service]\nEnvironment=SGLANG_DSV4_FP4_DEQUANT=1\nExecStart=/bin/false --tp 8\n# drop-in\n[Service]\nEnvironment=\nExecStart=\nExecStart=sglang serve --tp 4\n";
    let report = verify_one(Kind::Unit, text);
    assert!(report.settings.iter().all(|s| s.name != "SGLANG_DSV4_FP4_DEQUANT"));
    assert_eq!(setting(&report, "tp_size").value.as_deref(), Some("4"));
    assert!(report.conflicts.is_empty(), "{:?}", report.conflicts);
}

#[test]
fn variables_of_the_unit_do_not_reach_a_container() {
    let text = "[Service]\nEnvironment=SGLANG_DSV4_FP4_DEQUANT=1 SGLANG_LM_HEAD_FP8=1\nExecStart=/usr/bin/docker run --rm -e SGLANG_LM_HEAD_FP8 -e SGLANG_OPT_FP8_WO_A_GEMM=0 -v /srv/mine/deepseek_v4.py:/sgl/models/deepseek_v4.py:ro image python3 -m sglang.launch_server --tp 2\n";
    let report = verify_one(Kind::Unit, text);
    assert!(report.settings.iter().all(|s| s.name != "SGLANG_DSV4_FP4_DEQUANT"));
    assert!(has_note(&report, "SGLANG_DSV4_FP4_DEQUANT: set for the container tool"), "{:?}", report.notes);
    assert_eq!(setting(&report, "SGLANG_LM_HEAD_FP8").value.as_deref(), Some("true"), "handed on by name");
    assert_eq!(setting(&report, "SGLANG_OPT_FP8_WO_A_GEMM").value.as_deref(), Some("false"));
    let file = report.files.iter().find(|f| f.file == "models/deepseek_v4.py").unwrap();
    assert_eq!(
        (file.copies[0].path.as_str(), file.copies[0].how),
        ("/sgl/models/deepseek_v4.py", "mounted over the installed one")
    );
}

#[test]
fn variables_are_expanded_and_shells_are_followed() {
    let text = "[Service]\nEnvironment=RUNNER=triton\nExecStart=/bin/bash -c 'export SGLANG_DSV4_FP4_DEQUANT=1 && exec sglang serve --moe-runner-backend ${RUNNER} --tp $TP'\n";
    let report = verify_one(Kind::Unit, text);
    assert_eq!(setting(&report, "moe_runner_backend").value.as_deref(), Some("triton"));
    assert_eq!(setting(&report, "SGLANG_DSV4_FP4_DEQUANT").value.as_deref(), Some("true"));
    assert!(has_note(&report, "tp_size: its value is a variable"), "{:?}", report.notes);
}

#[test]
fn systemctl_show_is_read_too() {
    let text = "Type=simple\nEnvironment=MMA_FLASHMLA=1\nExecStart={ path=/usr/bin/sglang ; argv[]=/usr/bin/sglang serve --tp 2 ; ignore_errors=no ; pid=7 }\n";
    let report = verify_one(Kind::Unit, text);
    assert_eq!(setting(&report, "tp_size").value.as_deref(), Some("2"));
}

#[test]
fn what_is_no_unit_names_its_line() {
    assert_eq!(fails(Kind::Unit, "[Service]\nExecStart=a\nhello world\n").place, "f:3");
    assert_eq!(fails(Kind::Unit, "a=1\n").place, "f");
    assert_eq!(fails(Kind::Unit, "[Service]\n\nExecStart=a 'b\n").place, "f:3");
}

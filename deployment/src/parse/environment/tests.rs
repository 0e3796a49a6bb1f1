use crate::rules::tests::{fails, setting, verify_one};
use crate::{Kind, Requested, State};

use crate::rules::tests::state;

#[test]
fn a_proc_environ_is_whole_and_env_output_too_when_it_has_a_path() {
    let nul = verify_one(Kind::Environment, "A=1\0SGLANG_DSV4_FP4_DEQUANT=yes\0MULTI=a\nb\0");
    assert_eq!(setting(&nul, "SGLANG_DSV4_FP4_DEQUANT").value.as_deref(), Some("true"));
    assert_eq!(setting(&nul, "SGLANG_DSV4_FP4_DEQUANT").evidence[0].line, 2);
    // Not set in a whole environment: not asked for. In a part of one: unknown.
    assert_eq!(state(&nul, "fp8-lm-head"), (Requested::No, State::Off));
    let text = verify_one(Kind::Environment, "PATH=/bin\nX=1\n");
    assert_eq!(state(&text, "fp8-lm-head"), (Requested::No, State::Off));
    let part = verify_one(Kind::Environment, "SGLANG_DSV4_FP4_DEQUANT=1\n");
    assert_eq!(state(&part, "fp8-lm-head"), (Requested::Unknown, State::Unknown));
}

#[test]
fn lines_of_export_and_values_over_several_lines() {
    let text = "# saved\ndeclare -x PATH=\"/bin\"\nexport SGLANG_DSV4_COMPRESS_STATE_DTYPE='bf16'\nNOTE=a\nSGLANG not a variable\n";
    let report = verify_one(Kind::Environment, text);
    assert_eq!(setting(&report, "SGLANG_DSV4_COMPRESS_STATE_DTYPE").value.as_deref(), Some("bf16"));
    assert_eq!(state(&report, "bf16-compressor-state"), (Requested::Yes, State::CanBeActive));
}

#[test]
fn what_is_no_environment_names_the_place_and_shows_no_text() {
    let error = fails(Kind::Environment, "hf_s3cret\nA=1\n");
    assert!(error.place == "f: line 1" && !error.to_string().contains("s3cret"), "{error}");
    let error = fails(Kind::Environment, "A=1\0hf_s3cret\0");
    assert!(error.place == "f: entry 2" && !error.to_string().contains("s3cret"), "{error}");
    assert!(fails(Kind::Environment, "# nothing\n").what.contains("no variable"));
    assert!(fails(Kind::Environment, " \n").what.contains("empty"));
}

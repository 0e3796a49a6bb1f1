use super::*;

fn counts(lines: &[&str]) -> Vec<(&'static str, usize)> {
    let mut scan = Scan::default();
    lines.iter().enumerate().for_each(|(i, line)| scan.line("log", i + 1, line));
    scan.done().into_iter().filter(|w| w.count > 0).map(|w| (w.word, w.count)).collect()
}

#[test]
fn words_count_at_their_boundaries() {
    let lines =
        ["logits are NaN at row 3", "finance nanobind info banana", "x=nan,", "shape-mismatch", "KV overflowed."];
    assert_eq!(counts(&lines), [("nan", 2), ("mismatch", 1), ("overflow", 1)]);
}

#[test]
fn harmless_lines_do_not_count() {
    let lines = [
        "sglang serve --watchdog-timeout 300 --enable-nan-detection",
        "abort_on_priority_when_disabled eviction_policy max_overflow",
        "nan check passed",
        "resource_tracker: There appear to be 1 leaked semaphore objects",
        "Decode batch, #retracted-req: 0, token usage: 0.01",
        "Config file not found at x.json. Fallback to triton version 3.4.0",
    ];
    assert_eq!(counts(&lines), []);
    // What is left beside a harmless text still counts.
    assert_eq!(counts(&["no nan before, nan after"]), [("nan", 1)]);
    assert_eq!(counts(&["--watchdog-timeout=300 hit: timed out"]), [("timeout", 1)]);
}

#[test]
fn lines_as_servers_write_them() {
    let lines = [
        "INFO: 10.0.0.1:5 - \"POST /abort_request HTTP/1.1\" 200 OK",
        "KV cache pool is full. Retract requests. #retracted_reqs: 2",
        "Parameter model.layers.3.self_attn.wkv not found in params_dict",
        "UserWarning: Invalid value for SGLANG_X: \"on\" is not a valid boolean value, using default \"True\"",
        "torch.OutOfMemoryError: CUDA out of memory",
    ];
    let expected =
        [("abort", 1), ("retract", 1), ("disabled", 1), ("not loaded", 1), ("invalid", 1), ("out of memory", 1)];
    assert_eq!(counts(&lines), expected);
}

#[test]
fn the_first_lines_are_kept_without_secrets() {
    let mut scan = Scan::default();
    (1..=9).for_each(|i| scan.line("log", i, &format!("abort {i} api_key=s3cret")));
    let abort = scan.done().into_iter().find(|w| w.word == "abort").unwrap();
    assert_eq!((abort.count, abort.first.len()), (9, 3));
    assert_eq!((abort.first[2].line, abort.first[2].text.as_str()), (3, "abort 3 api_key=<hidden>"));
}

use std::fs;

use super::{Identity, Measured, Replay, Seen};
use crate::bisect::search::Answer;

fn identity(model: &str) -> Identity {
    [("model", model), ("patches", "a,b")].map(|(k, v)| (k.to_string(), v.to_string())).into()
}

fn measured(seen: Seen) -> Measured {
    Measured { seen, note: "n".into(), cost: 0.5 }
}

#[test]
fn answers_come_back_in_order_and_a_cut_line_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let mut replay = Replay::open(&path, &identity("m")).unwrap();
    assert_eq!(replay.take("q"), None);
    let all = [Seen::Answer(Answer::Bad), Seen::Answer(Answer::Skip), Seen::Value(1.25e-7), Seen::Value(f64::INFINITY)];
    all.iter().for_each(|s| replay.keep("q", &measured(s.clone())).unwrap());
    drop(replay);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"question\":\"q\",\"ans")).unwrap();
    let mut again = Replay::open(&path, &identity("m")).unwrap();
    for seen in all {
        assert_eq!(again.take("q"), Some(measured(seen)));
    }
    assert_eq!(again.take("q"), None);
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "what was cut is gone");
}

#[test]
fn another_search_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    Replay::open(&path, &identity("m")).unwrap();
    let error = Replay::open(&path, &identity("other")).unwrap_err().to_string();
    assert!(error.contains("its model differs") && error.contains("`other`") && error.contains("`m`"), "{error}");
    let mut more = identity("m");
    more.insert("stock".into(), "none".into());
    let error = Replay::open(&path, &more).unwrap_err().to_string();
    assert!(error.contains("its stock differs") && error.contains("found nothing"), "{error}");
}

#[test]
fn what_is_no_replay_file_is_told_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    Replay::open(&path, &identity("m")).unwrap();
    let head = fs::read_to_string(&path).unwrap();
    for (body, place) in [
        ("{}\n".to_string(), "line 1"),
        ("no json\n".to_string(), "line 1"),
        (head.replace("replay/1", "replay/9"), "line 1"),
        (format!("{head}[]\n"), "line 2"),
        (format!("{head}{{\"question\":\"q\"}}\n"), "line 2"),
        (format!("{head}{{\"question\":\"q\",\"answer\":\"perhaps\"}}\n"), "line 2"),
        (format!("{head}{{\"question\":\"q\",\"answer\":\"bad\",\"value\":1}}\n"), "line 2"),
        (format!("{head}{{\"question\":\"q\",\"value\":\"much\"}}\n"), "line 2"),
        (format!("{head}{{\"question\":\"q\",\"value\":1,\"cost\":-1}}\n"), "line 2"),
    ] {
        fs::write(&path, &body).unwrap();
        let error = Replay::open(&path, &identity("m")).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("r.jsonl"), "{body}: {error}");
    }
    assert!(Replay::open(dir.path(), &identity("m")).is_err(), "a folder is none");
}

use std::path::Path;

use crate::support::{karat, workplace};

/// A judge that is bad when both b and d are in, and writes down what it was asked.
const PAIR: &str = "echo \"$KARAT_PATCHES\" >> asked; case \",{patches},\" in *,b,*) case \",$KARAT_PATCHES,\" in *,d,*) exit 1;; esac;; esac";

fn asked(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("asked")).map_or(0, |text| text.lines().count())
}

fn bisect(dir: &Path, args: &[&str]) -> crate::support::Ran {
    karat(dir, &[&["bisect", "--quiet"], args].concat())
}

#[test]
fn a_command_finds_the_pair_and_is_not_run_again_with_a_replay_file() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--patches", "a,b,c,d,e,f,g,h", "--check", PAIR, "--replay", "r.jsonl", "--out", "o"];
    let ran = bisect(dir.path(), &args).expect(1);
    assert!(ran.stdout.starts_with("found: b and d together make it bad"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|l| l.chars().count() <= 100), "{}", ran.stdout);
    let runs = asked(dir.path());
    assert!(runs <= 11 && ran.stdout.contains(&format!("{runs} runs of the command")), "{}", ran.stdout);
    // The set without patches has a name that `--patches` takes.
    assert!(std::fs::read_to_string(dir.path().join("asked")).unwrap().lines().any(|l| l == "none"));
    let again = bisect(dir.path(), &[&args[..], &["--json"]].concat()).expect(1).json();
    assert_eq!(asked(dir.path()), runs, "nothing ran again");
    assert_eq!(again["stages"][0]["found"], serde_json::json!(["b", "d"]));
    assert_eq!((&again["work"]["commands"], &again["work"]["replayed"]), (&0.into(), &runs.into()));
    assert_eq!(again["exit_code"], 1);
    let written = std::fs::read_to_string(dir.path().join("o").join("bisect.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), again);
    // The same file for another command.
    let other = ["--patches", "a,b,c,d,e,f,g,h", "--check", "exit 0", "--replay", "r.jsonl"];
    assert!(bisect(dir.path(), &other).expect(2).error().contains("its command differs"));
}

#[test]
fn exit_codes_are_those_of_git_bisect_run() {
    let dir = tempfile::tempdir().unwrap();
    let check = |command: &str| bisect(dir.path(), &["--patches", "a,b,c,d", "--check", command]);
    let good = check("exit 0").expect(0);
    assert!(good.stdout.starts_with("nothing bad: with all patches it is good"), "{}", good.stdout);
    let without = check("exit 1").expect(1);
    assert!(without.stdout.contains("it is bad without any of the patches"), "{}", without.stdout);
    let skipped = check("exit 125").expect(125);
    assert!(skipped.stdout.starts_with("undecided: "), "{}", skipped.stdout);
    // c is bad, and c alone can't be tested: what else is needed is not known.
    let unsure = "test {patches} = c && exit 125; case {patches} in *c*) exit 1;; esac";
    assert!(check(unsure).expect(125).stdout.contains("could not be tested"));
    for (command, words) in [
        ("exit 4", "ended with exit code 4: expected 0 (good), 1 (bad) or 125 (skip)"),
        ("no-such-command-here", "exit code 127"),
        ("kill -9 $$", "was ended by a signal"),
    ] {
        let ran = check(command).expect(2);
        assert!(ran.error().contains(words) && ran.error().contains("patches a,b,c,d"), "{}", ran.stderr);
    }
}

/// Every fifth answer is the wrong one.
#[test]
fn a_noisy_command_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let noisy = "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; bad=0; case {patches} in *c*) bad=1;; esac; \
                 test $((n % 5)) = 3 && bad=$((1-bad)); exit $bad";
    let args = ["--patches", "a,b,c,d", "--check", noisy, "--noise", "0.25", "--error", "0.01", "--json"];
    let data = bisect(dir.path(), &args).expect(1).json();
    assert_eq!(data["stages"][0]["found"], serde_json::json!(["c"]), "{data}");
    let (answers, questions) = (data["work"]["answers"].as_u64().unwrap(), data["work"]["questions"].as_u64().unwrap());
    assert!(answers >= 4 * questions, "{data}");
}

#[test]
fn numbers_of_a_model_find_nothing_in_a_sound_path_and_say_where_its_error_comes_from() {
    let dir = workplace();
    let model = ["--model", "mini", "--tokens", "ids.json"];
    let data = bisect(dir.path(), &[&model[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(
        (&data["stages"][0]["over"], &data["stages"][0]["ended"]),
        (&"patches".into(), &"nothing".into()),
        "{data}"
    );
    let layers = bisect(dir.path(), &[&model[..], &["--over", "layers", "--replay", "r"]].concat()).expect(0);
    assert!(layers.stdout.starts_with("where it comes from: "), "{}", layers.stdout);
    assert!(layers.stdout.contains("half of what it is in all"), "{}", layers.stdout);
    assert!(layers.stdout.lines().all(|l| l.chars().count() <= 100), "{}", layers.stdout);
    let again = bisect(dir.path(), &[&model[..], &["--over", "layers", "--replay", "r"]].concat()).expect(0);
    assert!(again.stdout.contains("0.0 forward-equivalents"), "{}", again.stdout);
    // Every patch set is over a limit of nothing: stock's own rounding is.
    let strict = bisect(dir.path(), &[&model[..], &["--metric", "kl", "--limit", "0"]].concat()).expect(1);
    assert!(strict.stdout.contains("bad without any of the patches"), "{}", strict.stdout);
    let histories = bisect(dir.path(), &[&model[..], &["--over", "histories", "--stock", "vllm"]].concat()).expect(0);
    assert!(histories.stdout.contains("stock vllm, D9: wo_a in bf16 (assumed)"), "{}", histories.stdout);
    assert!(histories.stdout.contains("bit for bit the path's own cold run"), "{}", histories.stdout);
    let other = karat(
        dir.path(),
        &["bisect", "--quiet", "--model", "mini", "--tokens", "other.json", "--over", "layers", "--replay", "r"],
    );
    assert!(other.expect(2).error().contains("its scenario differs"));
}

#[test]
fn arguments_that_contradict_each_other_are_refused() {
    let dir = workplace();
    let cases: [(&[&str], &str); 13] = [
        (&["--check", "true", "--over", "layers"], "--check judges patch sets"),
        (&["--check", " "], "the command is empty"),
        (&["--check", "true", "--patches", "a,a"], "named twice"),
        (&["--check", "true", "--patches", "a;b"], "--patches"),
        (&["--check", "true", "--patches", "a,,b"], "--patches"),
        (&["--check", "true", "--patches", "a,b", "--without", "c"], "--without"),
        (&["--check", "true", "--noise", "0.5"], "--noise"),
        (&["--check", "true", "--noise", "0.1", "--error", "1"], "--error"),
        (&["--layer", "1"], "--over ops"),
        (&["--metric", "speed", "--limit", "1"], "unknown metric"),
        (&["--metric", "kl"], "needs --limit"),
        (&["--metric", "kl", "--limit=-1"], "--limit"),
        (&["--metric", "recall", "--limit", "0", "--model", "mini", "--tokens", "ids.json"], "ask nothing"),
    ];
    for (args, words) in cases {
        let ran = bisect(dir.path(), args).expect(2);
        assert!(ran.error().contains(words), "{args:?}: {}", ran.stderr);
    }
    for args in [&["--noise", "0.1"][..], &["--limit", "1"], &["--check", "true", "--stock", "none"], &["--over", "x"]]
    {
        let ran = bisect(dir.path(), args).expect(2);
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: "), "{args:?}: {}", ran.stderr);
    }
    std::fs::write(dir.path().join("r"), "nonsense\n").unwrap();
    let ran = bisect(dir.path(), &["--check", "true", "--replay", "r"]).expect(3);
    assert!(ran.error().contains("r: line 1: this is no replay file"), "{}", ran.stderr);
}

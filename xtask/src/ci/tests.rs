use std::path::Path;
use std::time::{Duration, Instant};

use super::readme::{commands, is_test};
use super::step::Outcome;
use super::{COUNTS, Found, Step, TESTS};

const README: &str = "\
# Title\n\
```sh\n\
cargo run --release -- audit   # the story\n\
# a comment alone\n\
cargo run --release -- diff \\\n\
    a b\n\
```\n\
```text\n\
cargo run -- not a command\n\
```\n\
  ```sh\n\
  cargo test --workspace\n\
  ```\n";

fn steps(in_ci: bool, nextest: bool, valgrind: bool) -> Vec<Step> {
    super::steps(README, Path::new("xtask"), Found { in_ci, nextest, valgrind })
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn readme_commands_are_the_lines_of_its_sh_blocks() {
    let want = ["cargo run --release -- audit", "cargo run --release -- diff a b", "cargo test --workspace"];
    assert_eq!(commands(README), want);
}

#[test]
fn every_readme_command_but_the_test_command_is_a_step() {
    let all = steps(true, false, true);
    let readme: Vec<&str> = all.iter().filter(|s| s.name == "readme").map(|s| s.command.as_str()).collect();
    assert_eq!(readme, ["cargo run --release -- audit", "cargo run --release -- diff a b"]);
    let warm = all.iter().find(|s| s.name == "audit-warm").expect("the default audit is timed warm");
    assert_eq!((warm.command.as_str(), warm.budget), ("cargo run --release -- audit", Duration::from_mins(1)));
}

#[test]
fn instructions_are_counted_behind_the_release_build_where_valgrind_is() {
    let place = |of: &[Step], name: &str| of.iter().position(|s| s.name == name);
    let all = steps(true, false, true);
    assert!(place(&all, COUNTS) > place(&all, "readme"));
    assert_eq!(place(&steps(true, false, false), COUNTS), None);
}

#[test]
fn slow_tests_run_in_ci_with_either_runner() {
    let command = |in_ci, nextest| {
        let all = steps(in_ci, nextest, true);
        all.into_iter().find(|s| s.name == TESTS).expect("there is a test step").command
    };
    assert!(command(true, false).ends_with("-- --include-ignored"));
    assert!(command(true, true).ends_with("--run-ignored all"));
    assert!(!command(false, false).contains("ignored") && !command(false, true).contains("ignored"));
}

#[test]
fn the_committed_readme_has_one_audit_and_one_test_command() {
    let text = std::fs::read_to_string(here().join("../README.md")).expect("README.md is committed");
    let all = commands(&text);
    assert_eq!(all.iter().filter(|c| super::readme::is_audit(c)).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|c| is_test(c)).count(), 1, "{all:?}");
}

#[test]
fn a_step_tells_success_from_failure_and_passes_its_environment() {
    let minute = Duration::from_mins(1);
    let outcome = |step: Step, stop| step.run(here(), stop).expect("bash starts").0;
    for stop in [false, true] {
        assert_eq!(outcome(Step::new("a", minute, "true"), stop), Outcome::Passed);
        assert_eq!(outcome(Step::new("a", minute, "exit 3"), stop), Outcome::Failed(Some(3)));
        assert_eq!(outcome(Step::new("a", minute, "false | true"), stop), Outcome::Failed(Some(1)), "pipefail");
        assert_eq!(outcome(Step::new("a", minute, "test \"$X\" = y").with_env("X", "y"), stop), Outcome::Passed);
    }
}

#[test]
fn a_step_over_its_budget_fails_and_is_ended_with_its_children() {
    let start = Instant::now();
    let budget = Duration::from_millis(100);
    // bash doesn't exec the last command of a list: sleep is a grandchild.
    let (outcome, took) = Step::new("a", budget, "sleep 30; true").run(here(), true).expect("bash starts");
    assert_eq!(outcome, Outcome::OverBudget);
    assert!(took >= budget && start.elapsed() < Duration::from_secs(20), "took {took:?}");
    let (outcome, _) = Step::new("a", budget, "sleep 0.2").run(here(), false).expect("bash starts");
    assert_eq!(outcome, Outcome::OverBudget, "at a terminal it runs to its end, and still fails");
}

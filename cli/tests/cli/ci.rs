//! The examples of docs/ci.md, run as they stand: a mini model behind the program's name, a stub of cargo, a real git.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{karat, workplace};

const DOC: &str = include_str!("../../../docs/ci.md");

/// What the program is run on here; `$KARAT_CHANGE` is the change under test.
const WRAPPER: &str = "#!/bin/sh
case $1 in gate) set -- \"$@\" --model \"$WORK/mini\" --tokens \"$WORK/ids.json\" $(cat change);; esac
exec \"$KARAT\" \"$@\"
";

/// The block of this language after a heading.
fn block(language: &str, heading: &str) -> String {
    let after = DOC.split_once(heading).expect("the heading").1;
    let block = after.split_once(&format!("```{language}\n")).expect("a block").1;
    block.split_once("\n```").expect("its end").0.to_string()
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a shell command in `at` with the stub of cargo on the path.
fn shell(work: &Path, at: &Path, script: &str) -> (i32, String) {
    let path = format!("{}:{}", work.join("bin").display(), std::env::var("PATH").unwrap());
    let ran = Command::new("sh")
        .args(["-c", script])
        .current_dir(at)
        .env("PATH", path)
        .env("WORK", work)
        .env("KARAT", env!("CARGO_BIN_EXE_karat"))
        .env("KARAT_NO_CACHE", "1")
        .env("POLICY", work.join("karat.toml"))
        .env("GITHUB_STEP_SUMMARY", work.join("summary.md"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("HOME", work)
        .output()
        .unwrap();
    let text = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (ran.status.code().unwrap_or(-1), text)
}

/// A workplace with the wrapper in a repository of its own, and a policy that tells f32 from low precision.
fn repository() -> tempfile::TempDir {
    let dir = workplace();
    let at = dir.path();
    executable(&at.join("bin/cargo"), "#!/bin/sh\n[ ! -e broken ]\n");
    executable(&at.join("repo/target/release/karat"), WRAPPER);
    let policy = "format = \"karat-policy/1\"\n[[limit]]\nname = \"kl\"\nmetric = \"kl_max\"\nmax = 1e-6\n";
    fs::write(at.join("karat.toml"), policy).unwrap();
    fs::write(at.join("repo/.gitignore"), "/target\n/judge.sh\n").unwrap();
    dir
}

const GOOD: &str = "--stock none --patches none";
const BAD: &str = "--stock official --patches none";

/// The steps of the workflow: exit code of the job, and what each step said.
fn workflow(work: &Path, at: &Path) -> (i32, Vec<(String, i32, String)>) {
    let (mut code, mut said) = (0, Vec::new());
    let yaml = block("yaml", "## A workflow");
    for step in yaml.split("\n      - ").skip(1) {
        let value = |key: &str| step.lines().find_map(|l| l.trim().strip_prefix(key)).map(str::trim);
        let Some(command) = value("run:") else { continue };
        if code == 0 || value("if:") == Some("always()") {
            let (exit, text) = shell(work, at, command);
            code = if code == 0 { exit } else { code };
            said.push((value("name:").unwrap_or_default().to_string(), exit, text));
        }
    }
    (code, said)
}

#[test]
fn the_workflow_gates_a_kernel_change() {
    let dir = repository();
    let (work, at) = (dir.path(), dir.path().join("repo"));
    fs::copy(work.join("karat.toml"), at.join("karat.toml")).unwrap();
    fs::write(at.join("change"), GOOD).unwrap();
    let lock = "./target/release/karat gate --quiet --policy karat.toml --baseline karat.lock --update-baseline";
    let (exit, text) = shell(work, &at, lock);
    assert_eq!(exit, 0, "{text}");

    let (code, steps) = workflow(work, &at);
    assert_eq!(code, 0, "{steps:?}");
    assert_eq!(steps.iter().map(|s| s.0.as_str()).collect::<Vec<_>>(), ["Build", "Gate", "Report"]);
    assert!(steps[2].2.contains("::notice title=karat%3A pass::"), "{}", steps[2].2);
    let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    assert!(read("junit.xml").contains("failures=\"0\" errors=\"0\""));
    for file in ["report.html", "report.md", "junit.xml", "bundle"] {
        assert!(block("yaml", "## A workflow").contains(file) && at.join(file).exists(), "{file} is kept");
        let _ = fs::remove_dir_all(at.join(file)).or_else(|_| fs::remove_file(at.join(file)));
    }

    // The change: the job fails by the gate, and the report is there all the same.
    fs::write(at.join("change"), BAD).unwrap();
    let (code, steps) = workflow(work, &at);
    assert_eq!((code, steps[1].1, steps[2].1), (1, 1, 1), "{steps:?}");
    assert!(steps[2].2.contains("::error title=karat%3A fail::"), "{}", steps[2].2);
    assert!(read("report.md").starts_with("# karat: fail"));
    assert!(read("junit.xml").contains("<failure type=\"fail\""));
    assert!(fs::read_to_string(work.join("summary.md")).unwrap().contains("# karat: fail"));

    // A commit that does not build fails before the gate, and there is nothing to report.
    fs::remove_dir_all(at.join("bundle")).unwrap();
    fs::write(at.join("broken"), "").unwrap();
    let (code, steps) = workflow(work, &at);
    assert_eq!((code, steps.len(), steps[1].1), (1, 2, 3), "{steps:?}");
}

#[test]
fn git_bisect_finds_the_commit() {
    let dir = repository();
    let (work, at) = (dir.path(), dir.path().join("repo"));
    let git = |args: &str| {
        let (exit, text) =
            shell(work, &at, &format!("git -c user.name=t -c user.email=t@t -c commit.gpgsign=false {args}"));
        assert_eq!(exit, 0, "{args}: {text}");
        text
    };
    git("init -q");
    for (n, change) in [(1, GOOD), (2, GOOD), (3, GOOD), (4, BAD), (5, BAD), (6, BAD)] {
        fs::write(at.join("change"), change).unwrap();
        fs::write(at.join("other"), n.to_string()).unwrap();
        // One commit on the way does not build.
        let broken = at.join("broken");
        let _ = if n == 3 { fs::write(&broken, "") } else { fs::remove_file(&broken) };
        git("add -A");
        git(&format!("commit -q -m number-{n}"));
    }
    let script = block("sh", "## The commit that broke it").replace("BAD GOOD", "HEAD HEAD~5");
    let (exit, text) = shell(work, &at, &script);
    // Number 3 can't be told from number 4: git names both, and says so.
    assert!(text.contains("number-4") || text.contains("first bad commit could be any of"), "{exit} {text}");
    let log = git("bisect log");
    assert!(log.contains("# good: ") && log.contains("number-2") && log.contains("number-4"), "{log}");
}

#[test]
fn help_has_examples_and_names_the_formats() {
    let dir = tempfile::tempdir().unwrap();
    let help = karat(dir.path(), &["report", "--help"]).expect(0).stdout;
    for words in
        ["--html [<FILE>]", "--markdown [<FILE>]", "--junit [<FILE>]", "--csv [<FILE>]", "--github", "Examples:"]
    {
        assert!(help.contains(words), "{words}: {help}");
    }
}

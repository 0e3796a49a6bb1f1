//! The examples of docs/machines.md, run as they stand: engines are stubs, the model is a mini one.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{karat, workplace};

const DOC: &str = include_str!("../../../docs/machines.md");

/// What every part audits, and the whole.
const RUN: &str = "--model \"$WORK/mini\" --tokens \"$WORK/ids.json\" --stock none --patches none";

/// The `n`-th block of this language after a heading.
fn block(language: &str, heading: &str, n: usize) -> String {
    let after = DOC.split_once(heading).expect("the heading").1;
    let block = after.split(&format!("```{language}\n")).nth(n + 1).expect("a block");
    block.split_once("\n```").expect("its end").0.to_string() + "\n"
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a script in `at`: exit code and all that it said.
fn shell(work: &Path, at: &Path, script: &str, environment: &[(&str, &str)]) -> (i32, String) {
    let path = format!("{}:{}", work.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(at).env("PATH", path).env("WORK", work);
    command.env("KARAT", env!("CARGO_BIN_EXE_karat")).env("KARAT_NO_CACHE", "1").env_remove("GITHUB_STEP_SUMMARY");
    let ran = command.envs(environment.iter().copied()).output().unwrap();
    let text = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (ran.status.code().unwrap_or(-1), text)
}

/// Several conversations, the whole run of them, and `karat` on the path with what it is to audit.
fn place() -> tempfile::TempDir {
    let dir = workplace();
    let at = dir.path();
    let one = |n: u32| serde_json::json!({"id": format!("c{n}"), "input_ids": (0..9 + n).map(|i| (i * 37 + n) % 500).collect::<Vec<_>>()});
    let all: Vec<_> = (0..7).map(one).collect();
    fs::write(at.join("ids.json"), serde_json::json!({"sequences": all}).to_string()).unwrap();
    let wrapper = format!("#!/bin/sh\ncase $1 in audit) set -- \"$@\" {RUN};; esac\nexec \"$KARAT\" \"$@\"\n");
    executable(&at.join("bin/karat"), &wrapper);
    executable(&at.join("bin/cargo"), "#!/bin/sh\n");
    let policy = karat(at, &["gate", "--print-policy"]).expect(0).stdout;
    fs::write(at.join("karat.toml"), policy).unwrap();
    let (exit, text) = shell(at, at, "karat audit --quiet --out alone", &[]);
    assert_eq!(exit, 0, "{text}");
    dir
}

/// The tables and verdict are those of the run that was never parted.
fn is_whole(at: &Path, bundle: &Path) {
    for name in ["taps.csv", "tokens.csv", "flips.csv", "recall.csv", "patches.csv", "verdict.json"] {
        let read = |path: &Path| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!(read(bundle), read(&at.join("alone")), "{name}");
    }
}

/// A key's value in a block of yaml.
fn value<'a>(yaml: &'a str, key: &str) -> Option<&'a str> {
    yaml.lines().find_map(|l| l.trim().strip_prefix(key)).map(str::trim)
}

/// Runs the steps of a job in a checkout of its own; artifacts lie in one folder.
fn job(work: &Path, name: &str, steps: &str, part: &str) {
    let at = work.join(name);
    executable(&at.join("target/release/karat"), &fs::read_to_string(work.join("bin/karat")).unwrap());
    fs::copy(work.join("karat.toml"), at.join("karat.toml")).unwrap();
    for step in steps.split("\n      - ").skip(1) {
        let step = step.replace("${{ matrix.part }}", part);
        let script =
            match value(&step, "uses:").or_else(|| step.strip_prefix("uses: ").map(|s| s.lines().next().unwrap())) {
                None => value(&step, "run:").expect("a step does something").to_string(),
                Some(action) if action.starts_with("actions/checkout") => continue,
                Some(action) if action.starts_with("actions/upload-artifact") => {
                    let (name, path) = (value(&step, "name:").unwrap(), value(&step, "path:").unwrap());
                    format!("mkdir -p \"$WORK/artifacts\" && cp -r {path} \"$WORK/artifacts/{name}\"")
                }
                Some(action) => {
                    assert!(action.starts_with("actions/download-artifact"), "{action}");
                    format!("cp -r \"$WORK\"/artifacts/{} .", value(&step, "pattern:").unwrap())
                }
            };
        let (exit, text) = shell(work, &at, &script, &[]);
        assert_eq!(exit, 0, "{script}: {text}");
    }
}

#[test]
fn a_matrix_of_jobs_makes_the_run() {
    let dir = place();
    let work = dir.path();
    let yaml = block("yaml", "## GitHub Actions", 0);
    let (first, second) = yaml.split_once("\n  gate:\n").unwrap();
    let parts: Vec<&str> = value(first, "part: [").unwrap().trim_end_matches(']').split(", ").collect();
    assert!(first.contains(&format!("}}}}/{} ", parts.len())), "as many parts as jobs");
    for part in &parts {
        job(work, &format!("job-{part}"), first, part);
    }
    job(work, "job-gate", second, "");
    is_whole(work, &work.join("job-gate/bundle"));
    assert!(fs::read_to_string(work.join("job-gate/junit.xml")).unwrap().contains("failures=\"0\" errors=\"0\""));
}

/// Slurm as far as the example needs it: tasks one after the other, then what depends on them.
const SBATCH: &str = "#!/bin/sh
for script; do :; done
case $1 in --dependency=afterok:77) test -f ended-well || exit 9 ;; esac
tasks=$(sed -n 's/^#SBATCH --array=1-//p' \"$script\")
[ -n \"$tasks\" ] || exec sh \"$script\"
echo 77
for task in $(seq \"$tasks\"); do
  SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$tasks SLURM_CPUS_PER_TASK=$(sed -n 's/^#SBATCH --cpus-per-task=//p' \"$script\") \\
    sh \"$script\" >&2 || exit 1
done
touch ended-well
";

#[test]
fn an_array_of_tasks_makes_the_run() {
    let dir = place();
    let work = dir.path();
    executable(&work.join("bin/sbatch"), SBATCH);
    for (n, name) in ["parts.sh", "whole.sh"].iter().enumerate() {
        fs::write(work.join(name), block("sh", "## Slurm", n)).unwrap();
    }
    let (exit, text) = shell(work, work, &block("sh", "## Slurm", 2), &[]);
    assert_eq!(exit, 0, "{text}");
    is_whole(work, &work.join("whole"));
    // A part that can't run ends its task badly, and nothing is merged.
    fs::remove_dir_all(work.join("whole")).unwrap();
    fs::remove_file(work.join("ended-well")).unwrap();
    fs::remove_dir_all(work.join("part-2")).unwrap();
    fs::write(work.join("ids.json"), "{").unwrap();
    let (exit, text) = shell(work, work, &block("sh", "## Slurm", 2), &[]);
    assert!(exit != 0 && text.contains("ids.json") && !work.join("whole").exists(), "{exit} {text}");
}

#[test]
fn an_indexed_job_makes_the_run() {
    let dir = place();
    let work = dir.path();
    let yaml = block("yaml", "## Kubernetes", 0);
    let completions: u32 = value(&yaml, "completions:").unwrap().parse().unwrap();
    assert_eq!(value(&yaml, "value: \""), Some(&*format!("{completions}\"")), "PARTS");
    let (_, script) = yaml.split_once("- |\n").unwrap();
    let (script, _) = script.split_once("          volumeMounts:").unwrap();
    let data = work.join("data");
    fs::create_dir(&data).unwrap();
    let here = |script: &str| script.replace("/data/", &format!("{}/", data.display()));
    for index in (0..completions).rev() {
        let environment = [("JOB_COMPLETION_INDEX", &*index.to_string()), ("PARTS", &*completions.to_string())];
        let (exit, text) = shell(work, work, &here(script), &environment);
        assert_eq!(exit, 0, "{text}");
    }
    let (exit, text) = shell(work, work, &here(&block("sh", "## Kubernetes", 0)), &[]);
    assert_eq!(exit, 0, "{text}");
    is_whole(work, &data.join("whole"));
}

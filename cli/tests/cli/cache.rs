//! The cache as a user meets it.

use std::fs;
use std::path::Path;

use crate::support::{Ran, karat_in, workplace};

const TABLES: [&str; 6] = ["taps.csv", "tokens.csv", "flips.csv", "recall.csv", "patches.csv", "histories.csv"];

fn audit(dir: &Path, out: &str, more: &[&str], environment: &[(&str, &str)]) -> Ran {
    audit_of(dir, "bf16-mhc", out, more, environment)
}

fn audit_of(dir: &Path, patches: &str, out: &str, more: &[&str], environment: &[(&str, &str)]) -> Ran {
    let base = ["audit", "--model", "mini", "--tokens", "ids.json", "--patches", patches, "--layers", "3", "--quiet"];
    let args = [&base[..], &["--out", out], more].concat();
    karat_in(dir, &args, environment)
}

fn tables(dir: &Path, bundle: &str) -> Vec<Vec<u8>> {
    TABLES.iter().map(|name| fs::read(dir.join(bundle).join(name)).unwrap()).collect()
}

fn used(dir: &Path, bundle: &str) -> karat_bundle::CacheUse {
    karat_bundle::read(&dir.join(bundle)).unwrap().run.cache
}

#[test]
fn an_unchanged_audit_computes_nothing_and_says_so() {
    let dir = workplace();
    let dir = dir.path();
    let cache = dir.join("cache");
    let environment = [("KARAT_CACHE_DIR", cache.to_str().unwrap())];
    let plain = audit(dir, "plain", &["--no-cache"], &environment);
    assert!(!cache.exists() && !plain.stdout.contains("cache:"), "{}", plain.stdout);
    let first = audit(dir, "first", &[], &environment).expect(plain.exit);
    assert!(first.stdout.contains("cache: 0 of 8 comparisons and 0 of 4 golden blocks"), "{}", first.stdout);
    let again = audit(dir, "again", &[], &environment).expect(plain.exit);
    assert!(again.stdout.contains("cache: 8 of 8 comparisons and 4 of 4 golden blocks"), "{}", again.stdout);
    assert!(again.stdout.contains(" 0 forward passes"), "{}", again.stdout);
    for bundle in ["first", "again"] {
        assert_eq!(tables(dir, bundle), tables(dir, "plain"), "{bundle}");
    }
    assert_eq!(used(dir, "again").comparisons, 8);
    // Other threads, the same results; another set of taps, another comparison.
    audit(dir, "threads", &["--threads", "1"], &environment).expect(plain.exit);
    assert_eq!(used(dir, "threads").comparisons, 8);
    audit(dir, "taps", &["--taps", "layers.*.attn.in"], &environment);
    assert_eq!((used(dir, "taps").comparisons, used(dir, "taps").golden), (0, 4), "golden is the same");
    let doctor = karat_in(dir, &["doctor", "--json"], &environment).expect(0).json();
    assert_eq!(doctor["cache"]["dir"], environment[0].1);
    assert!(doctor["cache"]["entries"].as_u64().unwrap() > 8, "{doctor}");
}

/// In passes of one layer: golden on x, then of each of two patch sets the candidate, golden on its x', and noise of the size of
/// its plan's roundings. Of the three layers only the second has an indexer, and no row is computed in decode: what leaves it is
/// the same under every patch of index scores in decode.
#[test]
fn plans_that_round_alike_share_a_pass_and_a_changed_patch_runs_what_it_changes() {
    let dir = workplace();
    let dir = dir.path();
    let cache = dir.join("cache");
    let environment = [("KARAT_CACHE_DIR", cache.to_str().unwrap())];
    let passes = |out: &str| {
        let bundle = karat_bundle::read(&dir.join(out)).unwrap();
        // The mini geometry has four layers.
        (bundle.verdict.forward_equivalents * 4.0).round() as u32
    };
    audit_of(dir, "fp8-indexer", "first", &[], &environment);
    assert_eq!(passes("first"), 3 + 2 * 3 + 2 * 3 + 3 + 1);
    audit_of(dir, "fp8-indexer:scale=pow2", "option", &[], &environment);
    assert_eq!(passes("option"), 3, "one layer");
    audit_of(dir, "bf16-indexer", "other", &[], &environment);
    assert_eq!(passes("other"), 3, "one layer, under another name");
    for (patches, out) in [("fp8-indexer:scale=pow2", "option"), ("bf16-indexer", "other")] {
        audit_of(dir, patches, "plain", &["--no-cache"], &[]);
        assert_eq!(tables(dir, "plain"), tables(dir, out), "{patches}");
        fs::remove_dir_all(dir.join("plain")).unwrap();
    }
}

/// Each of the default patches in another's place, after a run with the defaults: the tables are those of the same run without
/// a cache, byte for byte, also of two runs at once that share what the first left.
#[test]
fn a_default_patch_exchanged_has_the_tables_of_a_run_without_a_cache() {
    let dir = workplace();
    let dir = dir.path();
    let ids: Vec<u32> = (0..40).map(|i| (i * 53 + 7) % 500).collect();
    let tokens = serde_json::json!({"sequences": [{"id": "a", "input_ids": ids, "generated_from": 30}]});
    fs::write(dir.join("ids.json"), tokens.to_string()).unwrap();
    let cache = dir.join("cache");
    let environment = [("KARAT_CACHE_DIR", cache.to_str().unwrap())];
    let run = |patches: &str, out: &str, more: &[&str]| {
        let base = ["audit", "--model", "mini", "--tokens", "ids.json", "--quiet", "--patches", patches, "--out", out];
        karat_in(dir, &[&base[..], more].concat(), &environment)
    };
    let first = run("all", "first", &[]);
    run("all", "plain", &["--no-cache"]).expect(first.exit);
    assert_eq!(tables(dir, "first"), tables(dir, "plain"));
    for (n, patches) in [
        "tf32-mhc,fp8-indexer,mma-sparse-mla",
        "bf16-mhc,bf16-indexer,mma-sparse-mla",
        "bf16-mhc,fp8-indexer,fp8-q-sparse-mla",
    ]
    .into_iter()
    .enumerate()
    {
        let [plain, one, other] = ["plain", "one", "other"].map(|who| format!("{who}{n}"));
        let (a, b) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| run(patches, &other, &[]));
            (run(patches, &one, &[]), beside.join().unwrap())
        });
        let exit = run(patches, &plain, &["--no-cache"]).exit;
        assert_eq!((a.exit, b.exit), (exit, exit), "{patches}");
        let derivations = |out: &str| fs::read(dir.join(out).join("derivations.csv")).unwrap();
        for out in [&one, &other] {
            assert_eq!(tables(dir, out), tables(dir, &plain), "{patches}");
            assert_eq!(derivations(out), derivations(&plain), "{patches}");
        }
        // Of five sets stock and those of the two patches that stayed are known in every block.
        for used in [used(dir, &one), used(dir, &other)] {
            assert!(used.comparisons >= 3 * used.comparisons_asked / 5, "{patches}: {used:?}");
        }
    }
}

/// An audit is killed wherever it is, as soon as there are so many entries; the same command again finds what was
/// finished, and the tables are the same. Threads keep entries in no fixed order, so a kill may come before golden's
/// first block is whole: then once more, a little later.
#[test]
fn a_killed_audit_goes_on() {
    let dir = workplace();
    let dir = dir.path();
    let plain = audit(dir, "plain", &["--no-cache"], &[]);
    for least in 3..40 {
        let cache = dir.join(format!("cache{least}"));
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_karat"))
            .args(["audit", "--model", "mini", "--tokens", "ids.json", "--patches", "bf16-mhc", "--layers", "3"])
            .args(["--quiet", "--out", "killed"])
            .current_dir(dir)
            .env("KARAT_CACHE_DIR", &cache)
            .env_remove("KARAT_NO_CACHE")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
        // A file that is being written is no entry yet.
        let whole = |file: &Path| file.extension().is_some_and(|e| e == "entry");
        let entries = || {
            let files = list(&cache).iter().flat_map(|l| list(l)).flat_map(|shelf| list(&shelf)).collect::<Vec<_>>();
            files.iter().filter(|file| whole(file)).count()
        };
        while entries() < least && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        let killed = child.wait().unwrap().code().is_none();
        let out = format!("again{least}");
        let environment = [("KARAT_CACHE_DIR", cache.to_str().unwrap())];
        let again = audit(dir, &out, &[], &environment).expect(plain.exit);
        assert_eq!(tables(dir, &out), tables(dir, "plain"));
        assert!(!again.stdout.contains("damaged"), "{}", again.stdout);
        if killed && used(dir, &out).golden >= 1 {
            return;
        }
    }
    panic!("no audit was killed between golden's first block and its end");
}

/// Streams between layers that wait in a file: every table has the bytes of the run that held them, with and without a cache,
/// and nothing is left of the file.
#[test]
fn states_that_wait_in_a_file_change_no_byte() {
    let dir = workplace();
    let dir = dir.path();
    let (cache, temporary) = (dir.join("cache"), dir.join("tmp"));
    fs::create_dir(&temporary).unwrap();
    let environment = [("KARAT_CACHE_DIR", cache.to_str().unwrap()), ("TMPDIR", temporary.to_str().unwrap())];
    let plain = audit(dir, "plain", &["--no-cache", "--hold", "1GiB"], &environment);
    audit(dir, "away", &["--no-cache", "--hold", "0"], &environment).expect(plain.exit);
    audit(dir, "both", &["--hold", "0"], &environment).expect(plain.exit);
    let derivations = |out: &str| fs::read(dir.join(out).join("derivations.csv")).unwrap();
    let run = |out: &str| karat_bundle::read(&dir.join(out)).unwrap().run;
    for out in ["away", "both"] {
        assert_eq!(tables(dir, out), tables(dir, "plain"), "{out}");
        assert_eq!(derivations(out), derivations("plain"), "{out}");
        // 40 rows of golden's and of two patch sets' streams, behind the embedding and each of three layers; a row of bf16 values takes
        // two bytes a value.
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.join("mini/config.json")).unwrap()).unwrap();
        let row = config["hidden_size"].as_u64().unwrap() * config["hc_mult"].as_u64().unwrap();
        let least = 4 * 3 * 40 * 2 * row;
        assert!((least..3 * least).contains(&run(out).spilled_bytes), "{out}: {} of {least}", run(out).spilled_bytes);
    }
    assert_eq!(run("plain").spilled_bytes, 0);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "a temporary file is left");
    let parts = run("away").wall_s.parts.unwrap();
    let sum: f64 = parts.named().iter().map(|(_, seconds)| seconds).sum();
    assert!((sum - run("away").wall_s.total).abs() < 1e-6, "{parts:?} are not the whole");
    let bad = audit(dir, "bad", &["--hold", "much"], &environment).expect(2);
    assert!(bad.error().contains("--hold: expected a size"), "{}", bad.stderr);
}

#[test]
fn processes_share_a_cache_and_survive_what_is_in_it() {
    let dir = workplace();
    let dir = dir.path();
    let cache = dir.join("cache");
    let environment = [("KARAT_CACHE_DIR", cache.to_str().unwrap())];
    // Two at once, on an empty folder.
    let both: Vec<Ran> = std::thread::scope(|scope| {
        let start = |out| scope.spawn(move || audit(dir, out, &[], &environment));
        [start("a"), start("b")].map(|run| run.join().unwrap()).into()
    });
    assert_eq!(both[0].exit, both[1].exit);
    assert_eq!(tables(dir, "a"), tables(dir, "b"));
    // Every entry damaged.
    let list = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    for entry in list(&cache).iter().flat_map(|l| list(l)).flat_map(|shelf| list(&shelf)) {
        let file = fs::read(&entry).unwrap();
        fs::write(&entry, &file[..file.len() / 2]).unwrap();
    }
    let damaged = audit(dir, "damaged", &[], &environment).expect(both[0].exit);
    let said: Vec<&str> = damaged.stdout.split_whitespace().collect();
    assert!(said.join(" ").contains("damaged and computed again"), "{}", damaged.stdout);
    assert_eq!(tables(dir, "damaged"), tables(dir, "a"));
    // A place that is no folder: the audit runs, and says why nothing is kept.
    fs::write(dir.join("file"), b"").unwrap();
    let off = audit(dir, "off", &[], &[("KARAT_CACHE_DIR", "file")]).expect(both[0].exit);
    assert!(off.stdout.contains("cache: off, "), "{}", off.stdout);
    assert_eq!(tables(dir, "off"), tables(dir, "a"));
    // A bound that is no size is a mistake of the user's.
    let bad = audit(dir, "bad", &[], &[environment[0], ("KARAT_CACHE_LIMIT", "much")]).expect(2);
    assert!(bad.error().contains("KARAT_CACHE_LIMIT"), "{}", bad.stderr);
}

#[test]
fn the_folder_follows_the_environment() {
    let dir = workplace();
    let dir = dir.path();
    let at = dir.to_str().unwrap();
    let place = |environment: &[(&str, &str)]| {
        let said = karat_in(dir, &["doctor"], environment).expect(0).stdout;
        said.lines().find(|l| l.starts_with("cache: ")).unwrap().to_string()
    };
    assert!(place(&[("XDG_CACHE_HOME", at)]).starts_with(&format!("cache: {at}/karat, 0 entries")));
    assert!(place(&[("HOME", at)]).starts_with(&format!("cache: {at}/.cache/karat, ")));
    assert!(place(&[("HOME", at), ("XDG_CACHE_HOME", "relative")]).starts_with(&format!("cache: {at}/.cache")));
    assert!(place(&[("HOME", at), ("KARAT_CACHE_LIMIT", "500MB")]).ends_with("of 500.0 MB"));
    assert_eq!(place(&[("HOME", at), ("KARAT_NO_CACHE", "1")]), "cache: off");
    assert_eq!(place(&[]), "cache: off");
}

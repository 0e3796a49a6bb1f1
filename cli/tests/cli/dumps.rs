//! `karat diff` on other engines' dumps. Fixtures: `xtask/oracle/import_fixtures.py`.

use std::path::Path;

use crate::support::{Ran, karat};

fn diff(a: &str, b: &str, more: &[&str]) -> Ran {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/import");
    karat(&fixtures, &[&["diff", a, b][..], more].concat())
}

#[test]
fn a_pt_file_is_the_safetensors_file_of_its_tensors() {
    let ran = diff("dict.pt", "expected.safetensors", &["--top", "0"]).expect(0).stdout;
    assert!(ran.starts_with("0 of 17 tensors differ"), "{ran}");
    assert!(
        ran.contains("only A: parameter") && ran.contains("not read of A: complex (element type torch.complex64)"),
        "{ran}"
    );
    diff("dict.pt", "expected.safetensors", &["--allow-skipped-pattern", "^$"]).expect(1);
    let allowed = "complex|parameter|nested.*|ordered.*|[eiu](5m2|16)";
    diff("dict.pt", "expected.safetensors", &["--allow-skipped-pattern", allowed]).expect(0);
    diff("c.npy", "fortran.npy", &[]).expect(0);
    diff("bare.pt", "dict.pt", &[]).expect(4);
}

#[test]
fn thresholds_and_patterns_decide() {
    // bf16 of numbers that are up to 1.8: an error of 2^-9 of each at most, so rel is some 1e-6.
    let map = tempfile::NamedTempFile::new().unwrap();
    let rule = "format = \"karat-map/1\"\n[[tensor]]\nside = \"a\"\nfrom = \"value\"\nto = \"plain\"\n";
    std::fs::write(map.path(), rule).unwrap();
    let with = |more: &[&str]| {
        diff("bare.pt", "expected.safetensors", &[&["--map", map.path().to_str().unwrap()][..], more].concat())
    };
    let data = with(&["--json"]).expect(1).json();
    assert_eq!((&data["compared"], &data["tensors"][0]["of_a"][0]), (&1.into(), &"value".into()), "{data}");
    with(&["--diff-threshold", "1e-4"]).expect(0);
    with(&["--diff-threshold", "1e-9"]).expect(1);
    with(&["--diff-threshold", "pl.*", "rel <= 1e-9 or max_abs < 0.01"]).expect(0);
    with(&["--allow-failed-pattern", "plain"]).expect(0);
    with(&["--filter", "other"]).expect(4);
    assert!(with(&["--diff-threshold", "x", "rel < 1"]).expect(2).error().contains("fits no pattern"));
    std::fs::write(map.path(), "format = \"karat-map/1\"\n[[tensor]]\nfrom = 1").unwrap();
    assert!(with(&[]).expect(3).error().contains("line 3"));
}

#[test]
fn hostile_files_are_refused_by_name() {
    assert!(diff("foreign.pt", "dict.pt", &[]).expect(3).error().contains("__main__.Foreign"));
    assert!(diff("legacy.pt", "dict.pt", &[]).expect(3).error().contains("torch before 1.6"));
    assert!(diff("big.npy", "c.npy", &[]).expect(3).error().contains("big-endian"));
}

#[test]
fn sketches_are_compared_as_any_other_dump_and_off_keeps_nothing() {
    let dir = crate::support::workplace();
    let base = ["trace", "--model", "mini", "--tokens", "ids.json", "--quiet", "--path"];
    let run = |more: &[&str]| crate::support::karat(dir.path(), &[&base[..], more].concat());
    for (path, out) in [("golden", "g"), ("golden", "again"), ("stock", "s")] {
        let ran = run(&[path, "--capture", "sketch", "--out", out]).expect(0);
        assert!(ran.stdout.contains("40 rows as sketches"), "{}", ran.stdout);
    }
    let diff = |b: &str| crate::support::karat(dir.path(), &["diff", "g", b, "--json", "--top", "0"]);
    let same = diff("again").expect(0).json();
    assert!(same["differing"] == 0 && same["compared"].as_u64().unwrap() > 500, "{}", same["compared"]);
    // The distance that sums tell of two runs is the one that their values have.
    let sums = diff("s").expect(1).json();
    run(&["golden", "--out", "gf", "--taps", "layers.3.out"]).expect(0);
    run(&["stock", "--out", "sf", "--taps", "layers.3.out"]).expect(0);
    let full = crate::support::karat(dir.path(), &["diff", "gf", "sf", "--json"]).expect(1).json();
    let of = |data: &serde_json::Value, name: &str| {
        let rows = data["tensors"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap()["rel_l2"].as_f64().unwrap()
    };
    let (told, is) = (of(&sums, "a/layers.3.out.projection.v2"), of(&full, "a/layers.3.out"));
    assert!((0.7..1.4).contains(&(told / is)), "{told} of {is}");
    assert!(run(&["golden", "--capture", "off"]).expect(0).stdout.starts_with("nothing kept: golden"));
    run(&["golden", "--capture", "off", "--out", "x"]).expect(2);
    run(&["golden", "--capture", "sketch"]).expect(2);
    run(&["golden"]).expect(2);
    run(&["golden", "--capture", "sketch", "--out", "g"]).expect(2);
}

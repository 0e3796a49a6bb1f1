use super::{UNZIP, WANTED, check};

#[test]
fn a_file_with_other_bytes_is_refused() {
    let folder = tempfile::tempdir().expect("a folder to write in");
    let file = folder.path().join("a");
    std::fs::write(&file, b"abc").expect("writable");
    // The digest of "abc" that FIPS 180 prints.
    let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    check(&file, right).expect("these are the bytes");
    std::fs::write(&file, b"abd").expect("writable");
    let error = check(&file, right).expect_err("other bytes").to_string();
    assert!(error.contains(right) && error.contains("expected"), "{error}");
    assert!(check(&folder.path().join("none"), right).is_err());
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does); needs Python"]
fn the_script_takes_one_member_out_of_a_zip_file() {
    let folder = tempfile::tempdir().expect("a folder to write in");
    let make = "import sys, zipfile\nwith zipfile.ZipFile('w.zip', 'w') as z:\n  z.writestr('a/b.json', '{}')\n  z.writestr('c', 'no')";
    let python = |args: &[&str]| {
        let output = std::process::Command::new("python3").args(args).current_dir(folder.path()).output();
        output.expect("python3 runs").status.success()
    };
    assert!(python(&["-c", make]));
    assert!(python(&["-c", UNZIP, "w.zip", "a/b.json", "out"]));
    assert_eq!(std::fs::read_to_string(folder.path().join("out")).expect("written"), "{}");
    assert!(!python(&["-c", UNZIP, "w.zip", "missing", "out2"]));
}

#[test]
fn every_wanted_file_names_a_version_and_a_whole_digest() {
    for wanted in WANTED {
        assert!(wanted.package.contains("=="), "{}", wanted.package);
        assert!(wanted.sha256.len() == 64 && wanted.sha256.chars().all(|c| c.is_ascii_hexdigit()));
        assert!(!wanted.target.starts_with('/') && !wanted.target.contains(".."));
    }
}

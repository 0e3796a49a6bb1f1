use super::*;

/// What Python's `re` says of each: (pattern, name, fullmatch, search).
const CASES: &[(&str, &str, bool, bool)] = &[
    (".*", "", true, true),
    ("^$", "", true, true),
    ("^$", "x", false, false),
    (".*expert.*", "layers.3.mlp.experts", true, true),
    ("expert", "layers.3.mlp.experts", false, true),
    (r"layers\.(3|17)\..*", "layers.17.out", true, true),
    (r"layers\.(3|17)\..*", "layers.13.out", false, false),
    (r"layers\.\d+\.out", "layers.042.out", true, true),
    (r"layers\.\d+\.out", "layers..out", false, false),
    ("a|bc?d+", "bddd", true, true),
    ("a|bc?d+", "xay", false, true),
    ("[a-c_]+[^0-9]", "abc_x", true, true),
    ("[a-c_]+[^0-9]", "abc_1", false, true),
    (r"[\d.]+", "1.5", true, true),
    ("(?:ab)*c", "ababc", true, true),
    ("(a*)*b", "aaaa", false, false),
    ("^b", "ab", false, false),
    ("b$", "ab", false, true),
    (r"\w+=\w+", "layer_id=3", true, true),
];

#[test]
fn fits_as_pythons_re() {
    for (pattern, name, whole, part) in CASES {
        let p = Pattern::new(pattern).unwrap();
        assert_eq!((p.fits(name), p.is_in(name)), (*whole, *part), "{pattern} on {name:?}");
    }
}

#[test]
fn what_is_not_read_is_refused() {
    for pattern in ["(", ")", "a{2}", "*a", "a**", r"\b", "(?i)a", "[a", "[z-a]", "a\\"] {
        assert!(Pattern::new(pattern).is_err(), "{pattern}");
    }
    assert!(Pattern::new(&"(".repeat(40)).is_err() && Pattern::new(&"a".repeat(1001)).is_err());
}

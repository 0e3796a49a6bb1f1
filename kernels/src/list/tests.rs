use super::*;

#[test]
fn the_committed_list_is_sound() {
    let list = List::read().unwrap();
    assert!(list.images.len() > 8);
    for image in &list.images {
        assert!(crate::source::expanded(&image.source).is_ok(), "{}", image.name);
        assert!(!image.entries.is_empty() && !image.knobs.is_empty(), "{}", image.name);
        // Registers of a block must fit into a multiprocessor.
        assert!(image.entries.iter().all(|e| e.threads * e.registers <= 65_536), "{}", image.name);
    }
    // Each optimized source has a naive counterpart of the same name; that of the selection stands with the scores that it
    // selects from. The block-scaled product is only compiled, and claims nothing;
    // nor do the ceilings and the probe.
    let claims = |name: &str| !["ceiling", "moe-block-scaled", PROBE].contains(&name);
    for image in list.images.iter().filter(|i| i.source.starts_with("optimized/") && claims(&i.name)) {
        let naive = image.source.replace("optimized/", "reference/").replace("select.cu", "index.cu");
        assert!(list.images.iter().any(|i| i.source == naive), "{naive}");
    }
}

#[test]
fn broken_lists_are_refused_by_name() {
    let with = |image: &str| format!("format = 1\ncompiler = \"1\"\n[[image]]\n{image}");
    let good = "name = \"a\"\nsource = \"optimized/split_gemm.cu\"\nknobs = \"none\"\n\
                entries = [{ name = \"e\", threads = 32, registers = 32, shared = 200000 }]\n";
    let error = List::parse(&with(good)).unwrap_err().to_string();
    assert!(error.contains("image a") && error.contains("sm_120a") && error.contains("101376"), "{error}");
    let there = format!("{good}arches = [\"sm_90a\"]\n");
    assert_eq!(List::parse(&with(&there)).unwrap().images[0].arches(), ["sm_90a"]);
    let error = List::parse(&with(&format!("{good}arches = [\"sm_75\"]\n"))).unwrap_err().to_string();
    assert!(error.contains("sm_75"), "{error}");
    let error = List::parse(&with(&format!("{there}colour = 1\n"))).unwrap_err().to_string();
    assert!(error.contains("colour"), "{error}");
    let twice = format!("{}[[image]]\n{there}", with(&there));
    assert!(List::parse(&twice).unwrap_err().to_string().contains("twice"));
    assert!(List::parse("format = 2\ncompiler = \"1\"\nimage = []\n").unwrap_err().to_string().contains("format"));
}

#[test]
fn options_hold_every_knob() {
    let list = List::read().unwrap();
    let options = list.image("split-gemm-3").unwrap().options();
    assert!(options.contains(&"-DTERMS=3".to_string()), "{options:?}");
    assert!(list.image("naive-mla-f64").unwrap().options().contains(&"-DACC=double".to_string()));
    assert!(list.image("split-gemm-9").is_err());
}

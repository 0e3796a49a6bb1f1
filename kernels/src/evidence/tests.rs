use super::*;

/// Evidence that speaks for the whole committed list.
fn whole(list: &List) -> Evidence {
    let mut images = Vec::new();
    let (mut correctness, mut speed) = (Vec::new(), Vec::new());
    for image in &list.images {
        for arch in image.arches() {
            images.push(ImageRow {
                image: image.name.clone(),
                arch: arch.to_string(),
                state: if arch == "sm_90a" { "measured" } else { "compiled" }.to_string(),
                digest: digest(image, &list.compiler).unwrap(),
                sha256: String::new(),
                resources: Vec::new(),
                opcodes: BTreeMap::new(),
            });
        }
        correctness.push(CorrectnessRow {
            image: image.name.clone(),
            quantity: "out".to_string(),
            cases: 20,
            cpu_cases: 5,
            worst: 1e-7,
            naive: 1e-6,
            bound: 3e-7,
            bad: 0,
            worst_case: String::new(),
        });
        speed.push(SpeedRow {
            image: image.name.clone(),
            operation: String::new(),
            shape: String::new(),
            us: 1.0,
            us_again: 1.0,
            tb_s: 1.0,
            tflop_s: 1.0,
            peers: BTreeMap::new(),
            naive: None,
        });
    }
    let device = Place { name: "one".to_string(), arch: "sm_90a".to_string(), driver: 13000, processors: 132 };
    let (peers, ceilings) = (BTreeMap::new(), BTreeMap::new());
    Evidence { format: 1, date: String::new(), device, peers, ceilings, images, correctness, speed }
}

#[test]
fn whole_evidence_speaks_for_the_list() {
    let list = List::read().unwrap();
    let evidence = whole(&list);
    assert!(evidence.correct());
    assert_eq!(stale(&list, &evidence).unwrap(), Vec::<String>::new());
}

#[test]
fn each_gap_is_told() {
    let list = List::read().unwrap();
    let gap = |change: &dyn Fn(&mut Evidence), word: &str| {
        let mut evidence = whole(&list);
        change(&mut evidence);
        let found = stale(&list, &evidence).unwrap();
        assert_eq!(found.len(), 1, "{word}: {found:?}");
        assert!(found[0].contains(word), "{word}: {found:?}");
    };
    gap(&|e| e.images[0].digest.clear(), "changed since the run");
    let compiled = |e: &mut Evidence| {
        let row = e.images.iter_mut().find(|row| row.arch == "sm_120a").expect("one is for sm_120a");
        row.state = "measured".to_string();
    };
    gap(&compiled, "should be compiled");
    gap(&|e| drop(e.images.remove(0)), "no evidence");
    gap(&|e| drop(e.correctness.remove(0)), "correct");
    gap(&|e| drop(e.speed.remove(0)), "speed");
    gap(&|e| e.correctness[0].worst = 4e-7, "over");
    gap(&|e| e.correctness[0].bad = 1, "1 bad");
    gap(&|e| e.images.push(ImageRow { image: "gone".to_string(), ..e.images[0].clone() }), "no longer in the list");
    let timed = |image: &str, us: f64| {
        Some(NaiveSpeed { us: Some(us), us_again: Some(us), executions: 3, ..NaiveSpeed::of(image) })
    };
    gap(&|e| e.speed[0].naive = timed("mhc-1-mid", 5.0), "no naive counterpart");
    gap(&|e| e.speed[0].naive = timed("naive-mhc-f32", 0.0), "neither timed");
    gap(&|e| e.speed[0].naive = Some(NaiveSpeed::of("naive-mhc-f32")), "neither timed");
    let both = |e: &mut Evidence| {
        e.speed[0].naive = timed("naive-mhc-f32", 5.0).map(|n| NaiveSpeed { skipped: Some("long".into()), ..n });
    };
    gap(&both, "neither timed");
    let mut good = whole(&list);
    good.speed[0].naive = timed("naive-mhc-f32", 5.0);
    good.speed[1].naive = Some(NaiveSpeed { skipped: Some("long".into()), ..NaiveSpeed::of("naive-mhc-f32") });
    assert_eq!(stale(&list, &good).unwrap(), Vec::<String>::new());
    let mut none = whole(&list);
    none.correctness.clear();
    assert!(!none.correct());
}

#[test]
fn files_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.json");
    assert!(Evidence::read(&path).unwrap_err().to_string().contains("cannot be read"));
    std::fs::write(&path, "{}").unwrap();
    assert!(Evidence::read(&path).unwrap_err().to_string().contains("no evidence"));
    let list = List::read().unwrap();
    let mut evidence = whole(&list);
    evidence.format = 2;
    std::fs::write(&path, serde_json::to_string(&evidence).unwrap()).unwrap();
    assert!(Evidence::read(&path).unwrap_err().to_string().contains("another format"));
}

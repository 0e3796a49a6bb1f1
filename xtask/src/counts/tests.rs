use super::*;

fn table(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_loop_that_changed_is_new_or_is_gone_is_named() {
    let before = table(&[("a", 1000), ("b", 1000), ("c", 1000)]);
    assert_eq!(differs(&before, &table(&[("a", 1299), ("b", 701), ("c", 1000)])), None);
    let found = differs(&before, &table(&[("a", 1301), ("b", 699), ("d", 5)])).unwrap();
    let want = "a changed by more than 30 %, b changed by more than 30 %, d is not in it, c is gone";
    assert_eq!(found, want);
}

#[test]
fn a_loop_that_was_not_counted_is_no_faster_loop() {
    assert!(differs(&table(&[("a", 1000)]), &table(&[("a", 0)])).is_some());
    assert!(differs(&BTreeMap::new(), &table(&[("a", 1)])).is_some());
}

#[test]
fn the_committed_tables_can_be_read_and_have_no_empty_counts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for loops in &ALL {
        let text = std::fs::read_to_string(root.join(loops.table)).expect("the table is committed");
        let table: BTreeMap<String, u64> = toml::from_str(&text).expect("a table");
        assert!(table.len() >= 4 && table.values().all(|count| *count > 10_000), "{}", loops.table);
    }
}

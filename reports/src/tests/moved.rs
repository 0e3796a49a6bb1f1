//! What moved between two bundles.

use karat_bundle::Verdict;

use super::fixture;

#[test]
fn nothing_moves_between_a_bundle_and_itself() {
    let bundle = fixture::bundle();
    let same = crate::moved(&bundle, &bundle);
    assert_eq!((same.verdict, same.changes.len(), same.within.len()), (Verdict::Pass, 0, 0));
    assert!(same.compared > 20, "{}", same.compared);
    assert_eq!(same.verdicts, (Verdict::Fail, Verdict::Fail));
}

#[test]
fn a_worse_kernel_is_named_and_the_way_back_is_better() {
    let before = fixture::passing();
    let mut after = before.clone();
    for row in after.taps.iter_mut().filter(|r| r.tap == "attn.o" && r.phase == "decode") {
        row.value = row.value.map(|v| 3.0 * v);
    }
    let there = crate::moved(&before, &after);
    assert_eq!(there.verdict, Verdict::Regressed);
    assert!(
        there.changes.iter().all(|c| c.is_worse && c.name == "tap/stock/decode/attn.o/rel_l2"),
        "{:?}",
        there.changes
    );
    let change = there.changes.first().expect("it moved");
    assert!((change.new.value / change.old.value - 3.0).abs() < 1e-12);
    insta::assert_snapshot!(there.markdown());
    assert_eq!(crate::moved(&after, &before).verdict, Verdict::Improved);
}

#[test]
fn a_change_within_noise_is_no_change() {
    let before = fixture::passing();
    let mut after = before.clone();
    for row in after.taps.iter_mut().filter(|r| r.tap == "attn.o") {
        row.value = row.value.map(|v| 1.02 * v);
    }
    let moved = crate::moved(&before, &after);
    assert_eq!((moved.verdict, moved.changes.len()), (Verdict::Pass, 0));
    assert!(!moved.within.is_empty() && moved.within.len() <= 5);
}

#[test]
fn other_models_are_not_compared() {
    let before = fixture::passing();
    let mut after = before.clone();
    after.run.model.weights_sha256 = "0".repeat(64);
    let moved = crate::moved(&before, &after);
    assert_eq!((moved.verdict, moved.changes.len()), (Verdict::Unproven, 0));
    assert!(moved.sentence().contains("another model"), "{}", moved.sentence());
    // Another policy alone does not part them: both are measured under the second's.
    let mut after = before.clone();
    after.run.policy.tolerance_scale = 2.0;
    assert_eq!(crate::moved(&before, &after).verdict, Verdict::Pass);
}

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::*;
use crate::long::{Long, progress};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fault-pairs.md")
}

fn fault(id: &str) -> &'static Fault {
    crate::faults().into_iter().find(|f| f.id == id).unwrap()
}

#[test]
fn pairs_are_of_two_families_and_follow_from_the_seed() {
    let ids = |pairs: Vec<[&'static Fault; 2]>| pairs.iter().map(|p| p.map(|f| f.id)).collect::<Vec<_>>();
    let pairs = ids(draw(50, 1));
    assert_eq!(pairs.len(), 50);
    assert_eq!(pairs, ids(draw(50, 1)));
    assert_ne!(pairs, ids(draw(50, 2)));
    for (i, [a, b]) in pairs.iter().enumerate() {
        let family = |id: &str| catalogue::report(id).unwrap().family;
        assert_ne!(family(a), family(b));
        assert!(!pairs[..i].contains(&[*a, *b]), "{a} and {b} twice");
    }
}

#[test]
fn a_row_that_the_other_fault_fills_alone_tells_of_nothing() {
    let row = |layer: &str, tap: &str, part: &str| [layer, tap, "prefill", part, "rel_l2"].map(str::to_string);
    let said = |failing: Vec<Row>, suspects: &[(&str, &str)]| Said {
        ids: Vec::new(),
        first: failing.first().cloned(),
        suspects: suspects.iter().map(|(l, t)| ((*l).to_string(), (*t).to_string())).collect(),
        failing,
    };
    // ROUTE-01 must show at ffn.wt or ffn.routed of layer 2.
    let (weights, other) = (fault("ROUTE-01"), said(vec![row("2", "ffn.wt", "")], &[]));
    assert_eq!(said(vec![row("1", "attn.oa", "")], &[]).tells(weights, &other), Told::Not);
    assert_eq!(said(vec![row("2", "ffn.wt", "")], &[]).tells(weights, &other), Told::NotApart);
    assert_eq!(said(vec![row("2", "ffn.wt", ""), row("2", "ffn.wt", "op")], &[]).tells(weights, &other), Told::First);
    let late = vec![row("1", "attn.oa", ""), row("2", "ffn.wt", "op")];
    assert_eq!(said(late.clone(), &[]).tells(weights, &other), Told::Row);
    assert_eq!(said(late, &[("1", "attn.oa"), ("2", "ffn.wt")]).tells(weights, &other), Told::Suspect);
}

/// A fault of layer 1 and one of layer 2: golden's layer 2 runs on the candidate's own streams, so both show at their places.
#[test]
fn two_faults_in_two_layers_are_both_told() {
    let (clamp, weights) = (fault("ACT-01"), fault("ROUTE-01"));
    let sets = [vec![weights, clamp], vec![weights], vec![clamp]];
    let (said, _) = Bench::new(2).unwrap().audit_sets(&sets.each_ref()).unwrap();
    assert_eq!(said[0].tells(clamp, &said[1]), Told::First);
    assert_eq!(said[0].tells(weights, &said[2]), Told::Suspect);
    assert!(said[0].is_first(clamp) && !said[0].is_first(weights));
    assert_eq!(Said::of_json(&said[0].to_json()).as_ref(), Some(&said[0]), "a kept line is what was said");
}

/// With the file of kept results in the environment this is `cargo xtask faults --pairs N`.
#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn the_committed_page_has_the_pairs_that_its_seed_draws() {
    if let Some(long) = Long::of_environment() {
        let ((n, seed), mut kept) = (Long::pairs(), long.kept());
        let (start, pairs) = (Instant::now(), draw(n, seed));
        let bench = Bench::new(2).unwrap();
        let goes_on = || start.elapsed() < Long::limit();
        if audit_pairs(&bench, &pairs, &mut kept, &goes_on, &|text| progress(start, text)).unwrap() {
            std::fs::write(committed(), page(&pairs, seed, &said(&kept)).unwrap()).unwrap();
        }
        return;
    }
    let text = std::fs::read_to_string(committed()).unwrap();
    let told = text.split_once("--pairs ").and_then(|(_, rest)| rest.split_once('`')).unwrap().0;
    let (n, seed) = told.split_once(" --seed ").unwrap();
    let id = |cell: &str| cell.split(' ').next().unwrap_or_default().to_string();
    let rows = text.lines().skip_while(|l| !l.starts_with("| one | other")).skip(2);
    let found: Vec<[String; 2]> = rows
        .filter_map(|l| {
            let mut cells = l.strip_prefix("| ")?.split(" | ");
            Some([id(cells.next()?), id(cells.next()?)])
        })
        .collect();
    let drawn: Vec<[String; 2]> =
        draw(n.parse().unwrap(), seed.parse().unwrap()).iter().map(|p| p.map(|f| f.id.to_string())).collect();
    assert_eq!(found, drawn, "`cargo xtask faults --pairs {n} --seed {seed}` writes it anew");
}

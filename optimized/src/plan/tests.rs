use karat_model::ErrorKind;

use super::*;
use crate::patches::patches;

fn plan(stock: Stock, patches: &[&str]) -> Plan {
    Plan { stock, patches: patches.iter().map(ToString::to_string).collect(), history: History::Cold }
}

#[test]
fn a_patch_edits_the_phases_that_it_lists_and_no_other() {
    for stock in Stock::ALL {
        for patch in patches() {
            let resolved = Resolved::new(&plan(*stock, &[patch.name])).unwrap();
            for phase in [Phase::Prefill, Phase::Decode] {
                let changed = *resolved.rules(phase) != stock.profile().numerics;
                assert_eq!(changed, patch.phases.contains(&phase), "{stock} {} {}", patch.name, phase.name());
            }
        }
    }
}

#[test]
fn all_patches_compose_in_any_order() {
    let names: Vec<&str> = patches().iter().map(|p| p.name).collect();
    let backwards: Vec<&str> = names.iter().rev().copied().collect();
    let (a, b) = (plan(Stock::Official, &names), plan(Stock::Official, &backwards));
    let (a, b) = (Resolved::new(&a).unwrap(), Resolved::new(&b).unwrap());
    for phase in [Phase::Prefill, Phase::Decode] {
        assert_eq!(a.rules(phase), b.rules(phase));
    }
    assert_eq!(a.distinct(|r| r.attend).len(), 2);
    assert_eq!(a.distinct(|r| r.hc).len(), 1);
}

#[test]
fn options_reach_the_rules() {
    let asked = "mma-sparse-mla:splits=8:tile=16:partials=bf16:scale=folded:exp=exp";
    let resolved = Resolved::new(&plan(Stock::None, &[asked])).unwrap();
    let want = SplitK { splits: 8, tile: 16, partials: Store::Bf16, fold_scale: true, exp2: false };
    assert_eq!(resolved.rules(Phase::Decode).attend, Attend::SplitK(want));
    assert_eq!(resolved.rules(Phase::Prefill).attend, Attend::Fused { p: Store::F32 });
}

#[test]
fn bad_requests_are_refused_by_name() {
    for (asked, words) in [
        (vec!["fp9-indexer"], vec!["unknown speed patch", "fp9-indexer", "bf16-mhc", "fp8-indexer", "mma-sparse-mla"]),
        (vec!["bf16-mhc", "bf16-mhc"], vec!["bf16-mhc", "twice"]),
        (vec!["bf16-mhc:splits=2"], vec!["bf16-mhc", "splits", "no options"]),
        (vec!["mma-sparse-mla:split=2"], vec!["mma-sparse-mla", "split", "splits, tile"]),
        (vec!["mma-sparse-mla:splits=33"], vec!["mma-sparse-mla", "splits", "1 to 32", "33"]),
        (vec!["fp8-indexer:product=fp16"], vec!["fp8-indexer", "product", "f32, bf16", "fp16"]),
        (vec![""], vec!["unknown speed patch"]),
    ] {
        let error = plan(Stock::None, &asked).check().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        for word in words {
            assert!(error.to_string().contains(word), "{asked:?}: {error}");
        }
    }
    assert!("offical".parse::<Stock>().unwrap_err().to_string().contains("none, official"));
    assert_eq!("official".parse::<Stock>().unwrap(), Stock::Official);
}

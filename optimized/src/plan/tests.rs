use karat_model::ErrorKind;

use super::*;
use crate::patches::{DEFAULT_PATCHES, patches};

fn plan(stock: Stock, patches: &[&str]) -> Plan {
    Plan { stock, patches: patches.iter().map(ToString::to_string).collect(), history: History::Cold }
}

/// Patches of the registry that don't conflict with one taken before.
fn composed() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for patch in patches() {
        names.push(patch.name);
        if plan(Stock::None, &names).check().is_err() {
            names.pop();
        }
    }
    names
}

/// Under a stock that has the patch's rule already it changes nothing; under some stock it must.
#[test]
fn a_patch_edits_the_phases_that_it_lists_and_no_other() {
    for patch in patches() {
        let mut active = Vec::new();
        for stock in Stock::ALL {
            let resolved = Resolved::new(&plan(*stock, &[patch.name])).unwrap();
            for phase in [Phase::Prefill, Phase::Decode] {
                if *resolved.rules(phase) != stock.profile().numerics {
                    assert!(patch.phases.contains(&phase), "{stock} {} {}", patch.name, phase.name());
                    active.push(phase);
                }
            }
            assert_eq!(resolved.chunk.is_some(), patch.exact, "{}", patch.name);
        }
        assert!(patch.exact || patch.phases.iter().all(|p| active.contains(p)), "{} is inert everywhere", patch.name);
    }
}

#[test]
fn patches_compose_in_any_order() {
    let names = composed();
    assert!(names.len() >= patches().len() - 8, "{names:?}");
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
fn a_conflict_is_refused_by_name() {
    for patch in patches() {
        for other in patch.conflicts {
            let error = plan(Stock::Official, &[patch.name, other]).check().unwrap_err().to_string();
            assert!(error.contains(&format!("`{}`", patch.name)) && error.contains(&format!("`{other}`")), "{error}");
        }
    }
    assert!(DEFAULT_PATCHES.iter().all(|name| patches().iter().any(|p| p.name == *name)));
    assert!(plan(Stock::Official, &DEFAULT_PATCHES).check().is_ok());
}

/// The factor reaches the routed sum once on every backend, unless the hash top-k is told not to fold it in where the
/// backend counts on that (spec section 6: NEVER); TWICE can't be asked for.
#[test]
fn the_routed_scaling_is_applied_exactly_once() {
    for backend in ["triton", "trtllm", "cutlass", "marlin", "cutedsl"] {
        for hash in ["on", "off"] {
            let asked = format!("routed-scaling-in-topk:backend={backend}:hash={hash}");
            let resolved = Resolved::new(&plan(Stock::Sglang, &[&asked])).unwrap();
            let scaling = resolved.rules(Phase::Prefill).scaling;
            assert_eq!(scaling.times(false), 1, "{asked}");
            let never = backend != "triton" && hash == "off";
            assert_eq!(scaling.times(true), u32::from(!never), "{asked}");
        }
    }
    for stock in Stock::ALL {
        let scaling = stock.profile().numerics.scaling;
        assert_eq!((scaling.times(true), scaling.times(false)), (1, 1), "{stock}");
    }
}

#[test]
fn a_profile_says_where_each_of_its_rules_comes_from() {
    for stock in &Stock::ALL[1..] {
        let rows: Vec<u8> = stock.profile().rows.iter().map(|r| r.d).collect();
        assert_eq!(rows, (1..=14).collect::<Vec<u8>>(), "{stock}");
    }
    assert_eq!(Stock::Official.assumed().count(), 0);
    assert!(Stock::Vllm.assumed().any(|r| r.d == 9));
    // What is assumed is the official rule.
    let rule = |d: u8, n: &Numerics| match d {
        1 => format!("{:?}", n.store),
        3 | 4 => format!("{:?}", n.kv),
        6 => format!("{:?} {:?}", n.compress, n.compress_store),
        8 => format!("{:?}", n.attend),
        9 => format!("{:?}", n.wo_a),
        11 => format!("{:?} {:?} {:?}", n.router, n.router_store, n.route_weight),
        12 => format!("{:?}", n.experts),
        13 => format!("{:?} {:?}", n.lm_head, n.logits_store),
        14 => format!("{}", matches!(n.kv, KvFormat::Q8 { block: 64, .. })),
        _ => String::new(),
    };
    let official = Stock::Official.profile().numerics;
    for stock in [Stock::Sglang, Stock::SglangSm120, Stock::Vllm] {
        let profile = stock.profile();
        for row in profile.rows.iter().filter(|r| r.basis == Basis::Assumed) {
            assert_eq!(rule(row.d, &profile.numerics), rule(row.d, &official), "{stock}, D{}", row.d);
        }
    }
}

#[test]
fn options_reach_the_rules() {
    let asked = "mma-sparse-mla:splits=8:tile=16:partials=bf16:scale=folded:exp=exp";
    let resolved = Resolved::new(&plan(Stock::None, &[asked])).unwrap();
    let want =
        SplitK { splits: 8, tile: 16, partials: Store::Bf16, fold_scale: true, p: Store::Bf16, exp: Exponential::Exp };
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
    assert!("offical".parse::<Stock>().unwrap_err().to_string().contains("none, official, sglang, sglang-sm120, vllm"));
    assert_eq!("official".parse::<Stock>().unwrap(), Stock::Official);
}

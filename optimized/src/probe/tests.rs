use karat_model::{Geometry, new_model};

use super::*;
use crate::{Stock, patches};

fn probe(stock: Stock, asked: &[&str]) -> Vec<Probe> {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    let patches = asked.iter().map(ToString::to_string).collect();
    probes(&checkpoint, &Plan { stock, patches, history: History::Cold }, 1).unwrap()
}

fn effect(stock: Stock, asked: &str) -> Effect {
    probe(stock, &[asked]).remove(0).effect
}

/// Every patch acts under some stock on the probe's input, and its first change is an op of its own.
#[test]
fn every_patch_can_be_told_from_its_absence() {
    for patch in patches() {
        let asked = if patch.name == "chunked-prefill" { "chunked-prefill:size=5" } else { patch.name };
        let effects: Vec<Effect> = [Stock::None, Stock::Official, Stock::Sglang].map(|s| effect(s, asked)).to_vec();
        assert!(effects.iter().any(|e| *e != Effect::Inert), "{}: {effects:?}", patch.name);
        let own = |site: &Site| patch.ops.iter().any(|op| op.spec().writes.contains(&site.tap));
        for e in &effects {
            let state = |site: &Site| site.tap.is_state();
            assert!(!matches!(e, Effect::Active(site) if !own(site) && !state(site)), "{}: {e:?}", patch.name);
        }
    }
}

#[test]
fn a_rule_that_stock_has_already_is_inert() {
    assert_eq!(effect(Stock::Sglang, "tf32-mhc"), Effect::Inert);
    assert_eq!(effect(Stock::Official, "mxfp4-moe:act=fp8"), Effect::Inert);
    assert_eq!(effect(Stock::Official, "bf16-gemm:out=f32"), Effect::Inert, "the operands are bf16 already");
    assert_eq!(effect(Stock::Official, "chunked-prefill"), Effect::Inert, "the probe fits into one chunk");
    // One of two that edit the same rule takes the other over.
    let both = probe(Stock::Official, &["fp8-indexer:hadamard=off", "indexer-hadamard:rotate=off"]);
    assert!(both.iter().any(|p| p.patch == "fp8-indexer" && p.effect != Effect::Inert));
}

#[test]
fn the_routed_scaling_factor_is_counted() {
    let once = Effect::Applied { scored: Some(1), hash: Some(1) };
    assert_eq!(effect(Stock::Sglang, "routed-scaling-in-topk"), once);
    let never = Effect::Applied { scored: Some(1), hash: Some(0) };
    assert_eq!(effect(Stock::Sglang, "routed-scaling-in-topk:hash=off"), never);
    assert_eq!(effect(Stock::Official, "routed-scaling-in-topk:backend=triton"), once);
    // The deployment that this began with: the flag is inert under the triton backend.
    assert_eq!(effect(Stock::Sglang, "routed-scaling-in-topk:backend=triton"), Effect::Inert);
}

use std::sync::OnceLock;

use karat_model::{Geometry, new_model};
use karat_seam::{Blocks, Layer, LayerOut, Op, Streams, Tensor, Visitor, Want};

use super::*;
use crate::{Stock, patches};

fn mini() -> Arc<Checkpoint> {
    static MINI: OnceLock<Arc<Checkpoint>> = OnceLock::new();
    let open = || Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 3)).unwrap());
    Arc::clone(MINI.get_or_init(open))
}

fn plan(stock: Stock, asked: &[&str]) -> Plan {
    Plan { stock, patches: asked.iter().map(ToString::to_string).collect(), history: History::Cold }
}

fn open(checkpoint: &Arc<Checkpoint>, plan: &Plan, requests: Requests) -> Optimized {
    Optimized::new(Arc::clone(checkpoint), requests, plan.clone(), 1).unwrap()
}

/// Probes the contracts themselves.
fn probe(stock: Stock, asked: &[&str]) -> Vec<Probe> {
    let (checkpoint, plan) = (mini(), plan(stock, asked));
    probes(&checkpoint, &plan, 1, &|requests| Ok(Box::new(open(&checkpoint, &plan, requests)))).unwrap()
}

fn effect(stock: Stock, asked: &str) -> Effect {
    probe(stock, &[asked]).remove(0).effect
}

/// What a path behind the seam does instead of what it was asked for.
#[derive(Clone, Copy)]
enum Wrong {
    /// Every tap lies that often as far from the path without patches as the path with them.
    Times(f32),
    /// The routed sum is multiplied by this.
    Routed(f32),
}

struct Other {
    on: Optimized,
    off: Optimized,
    wrong: Wrong,
}

impl Other {
    /// Shows a lane what it would see of `on`, changed.
    fn show(&self, on: &Recorder, off: &Recorder, see: &mut dyn Visitor) -> karat_seam::Result<()> {
        for ((site, seq), a) in &on.taps {
            let mut shown = a.tensor.clone();
            if let (Data::F32(v), Wrong::Times(times)) = (&mut shown.data, self.wrong) {
                let b = off.get(*site, *seq).unwrap().tensor.as_f32("off").unwrap();
                v.iter_mut().zip(b).filter(|(v, b)| v != b).for_each(|(v, b)| *v = b + times * (*v - b));
            }
            if let (Data::F32(v), Wrong::Routed(by), Tap::FfnRouted) = (&mut shown.data, self.wrong, site.tap) {
                v.iter_mut().for_each(|v| *v *= by);
            }
            if see.want(*site) != Want::Skip {
                see.visit(*site, &a.rows, shown.as_mut())?;
            }
        }
        Ok(())
    }
}

impl Path for Other {
    fn name(&self) -> String {
        "other".to_string()
    }

    fn identity(&self) -> [u8; 32] {
        [0; 32]
    }

    fn requests(&self) -> &Requests {
        self.on.requests()
    }

    fn blocks(&self) -> Blocks {
        self.on.blocks()
    }

    fn embed(&self, see: &mut dyn Visitor) -> karat_seam::Result<Streams> {
        self.on.embed(see)
    }

    fn layer(&self, l: u16) -> karat_seam::Result<Box<dyn Layer + '_>> {
        Ok(Box::new(OtherLayer { path: self, on: self.on.layer(l)?, off: self.off.layer(l)? }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
        let (mut a, mut b) = (Recorder::all(), Recorder::all());
        let logits = self.on.head(&mut [Lane::new(lanes[0].x, &mut a)])?;
        self.off.head(&mut [Lane::new(lanes[0].x, &mut b)])?;
        self.show(&a, &b, lanes[0].see)?;
        Ok(logits)
    }
}

struct OtherLayer<'a> {
    path: &'a Other,
    on: Box<dyn Layer + 'a>,
    off: Box<dyn Layer + 'a>,
}

impl Layer for OtherLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> karat_seam::Result<()> {
        let (mut a, mut b) = (Recorder::all(), Recorder::all());
        self.on.run(&mut [Lane::new(lanes[0].x, &mut a)])?;
        self.off.run(&mut [Lane::new(lanes[0].x, &mut b)])?;
        lanes[0].out = Some(LayerOut { streams: lanes[0].x.clone() });
        self.path.show(&a, &b, lanes[0].see)
    }

    fn has_op(&self, op: Op) -> bool {
        self.on.has_op(op)
    }
}

/// The effect that is found in a path that does something wrong behind the seam.
fn found(stock: Stock, asked: &str, wrong: Wrong) -> Effect {
    let (checkpoint, on, off) = (mini(), plan(stock, &[asked]), plan(stock, &[]));
    let other = |requests: Requests| -> Result<Box<dyn Path + '_>> {
        let (on, off) = (open(&checkpoint, &on, requests.clone()), open(&checkpoint, &off, requests));
        Ok(Box::new(Other { on, off, wrong }))
    };
    probes(&checkpoint, &on, 1, &other).unwrap().remove(0).effect
}

/// A stock under which the patch does something.
fn acts(name: &str) -> Stock {
    match name {
        "routed-scaling-in-topk" => Stock::Sglang,
        // Their last bits don't outlast official's storage points.
        "fused-qkv-a" | "fp4-to-fp8-experts" => Stock::None,
        _ => Stock::Official,
    }
}

/// For every patch the probe's input tells off, on and doubled apart, and the first change is at an op of its own.
#[test]
fn off_on_and_doubled_are_told_apart() {
    for patch in patches().iter().filter(|p| !p.exact) {
        let stock = acts(patch.name);
        let probe = probe(stock, &[patch.name]).remove(0);
        assert_eq!((probe.effect, probe.effect.state().as_str()), (Effect::Applied(1), "active"), "{}", patch.name);
        let site = probe.place.unwrap().0;
        assert!(patch.ops.iter().any(|op| op.spec().writes.contains(&site.tap)), "{}: {site}", patch.name);
        let (off, doubled) = match patch.name {
            "routed-scaling-in-topk" => (Wrong::Routed(1.0 / 1.5), Wrong::Routed(1.5)),
            _ => (Wrong::Times(0.0), Wrong::Times(2.0)),
        };
        let never = if patch.name == "routed-scaling-in-topk" { Effect::Applied(0) } else { Effect::Inert };
        assert_eq!(found(stock, patch.name, off), never, "{}, switched off", patch.name);
        let twice = found(stock, patch.name, doubled);
        assert_eq!((twice, twice.state().as_str()), (Effect::Applied(2), "applied 2 times"), "{}", patch.name);
    }
    let half = found(Stock::Official, "bf16-mhc", Wrong::Times(0.5));
    assert!(matches!(half, Effect::Elsewhere(v) if (v - 0.5).abs() < 1e-3) && half.state() == "unknown", "{half:?}");
}

#[test]
fn a_rule_that_stock_has_already_is_inert() {
    assert_eq!(effect(Stock::Sglang, "tf32-mhc"), Effect::Inert);
    assert_eq!(effect(Stock::Official, "mxfp4-moe:act=fp8"), Effect::Inert);
    assert_eq!(effect(Stock::Official, "bf16-gemm:out=f32"), Effect::Inert, "the operands are bf16 already");
    assert_eq!(effect(Stock::Official, "chunked-prefill"), Effect::Schedule, "told by the steps of the run itself");
    // One of two that edit the same rule takes the other over.
    let both = probe(Stock::Official, &["fp8-indexer:hadamard=off", "indexer-hadamard:rotate=off"]);
    assert!(both.iter().any(|p| p.patch == "fp8-indexer" && p.effect == Effect::Applied(1)), "{both:?}");
}

#[test]
fn the_routed_scaling_factor_is_counted() {
    assert_eq!(effect(Stock::Sglang, "routed-scaling-in-topk"), Effect::Applied(1));
    let never = probe(Stock::Sglang, &["routed-scaling-in-topk:hash=off"]).remove(0);
    assert_eq!(never.effect.state(), "applied 0 times");
    let block = never.place.unwrap().0.block;
    assert_eq!(block, Block::Layer(0), "a layer that routes by token id");
    assert_eq!(effect(Stock::Official, "routed-scaling-in-topk:backend=triton"), Effect::Applied(1));
    // The deployment that this began with: the flag is inert under the triton backend.
    assert_eq!(effect(Stock::Sglang, "routed-scaling-in-topk:backend=triton"), Effect::Inert);
}

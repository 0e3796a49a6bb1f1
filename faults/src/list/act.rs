//! The clamp of the experts' activation. The made model's limit is 2, so that some pre-activations are beyond it.

use karat_seam::{Block, Op, Result, Tap};
use serde_json::json;

use crate::fault::{Fault, NONE, decoded, prefilled};
use crate::{Edit, Files};

const ALL: &[Block] = &[Block::Layer(0), Block::Layer(1), Block::Layer(2), Block::Layer(3)];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "ACT-01",
        change: "the shared expert of one layer doesn't clamp",
        block: Block::Layer(1),
        donor: Some(no_limit),
        taps: &[Tap::FfnShared],
        edit: Some(shared),
        ..NONE
    },
    Fault {
        id: "ACT-02",
        change: "the routed experts of one layer don't clamp",
        block: Block::Layer(2),
        donor: Some(no_limit),
        taps: &[Tap::FfnExpertAct],
        edit: Some(routed),
        ..NONE
    },
    Fault {
        id: "ACT-03",
        change: "no shared expert clamps",
        block: Block::Layer(0),
        blocks: ALL,
        donor: Some(no_limit),
        taps: &[Tap::FfnShared],
        edit: Some(shared),
        ..NONE
    },
    Fault {
        id: "ACT-04",
        change: "no routed expert clamps",
        block: Block::Layer(0),
        blocks: ALL,
        donor: Some(no_limit),
        taps: &[Tap::FfnExpertAct],
        edit: Some(routed),
        ..NONE
    },
    Fault {
        id: "ACT-05",
        change: "the routed experts don't clamp in decode, which another kernel computes",
        block: Block::Layer(3),
        rows: decoded,
        donor: Some(no_limit),
        taps: &[Tap::FfnExpertAct],
        edit: Some(routed),
        ..NONE
    },
    Fault {
        id: "ACT-06",
        change: "the routed experts don't clamp in prefill, which another kernel computes",
        block: Block::Layer(1),
        rows: prefilled,
        donor: Some(no_limit),
        taps: &[Tap::FfnExpertAct],
        edit: Some(routed),
        ..NONE
    },
    Fault {
        id: "ACT-08",
        change: "the limit of the routed experts is taken for ten times what it is",
        block: Block::Layer(3),
        donor: Some(|files| files.set("swiglu_limit", json!(20.0))),
        taps: &[Tap::FfnExpertAct],
        edit: Some(routed),
        ..NONE
    },
];

fn no_limit(files: &mut Files) {
    files.set("swiglu_limit", json!(1e30));
}

fn shared(e: &mut Edit<'_>) -> Result<()> {
    let unclamped = e.rerun_donor(Op::SharedExpert)?;
    e.put(&unclamped)
}

fn routed(e: &mut Edit<'_>) -> Result<()> {
    let unclamped = e.rerun_donor(Op::Experts)?;
    e.put(&unclamped)
}

//! `tp-allreduce`: tensor parallelism.
//!
//! Contract: the inputs of wo_b, w2 and the shared w2 are spread over the ranks; each rank's partial sum is stored in the
//! given format and they are added rank by rank, every addition rounded to it (spec 2.12), from the first rank on or in the
//! order of a ring. A path that is given a real all-reduce of as many ranks adds there instead. Routed and shared outputs are
//! reduced apart. Activations are quantised before they are spread, which is what ranks do whose share is whole blocks.

use karat_seam::Op;

use super::{BASE, BOTH, Claim, Patch, PatchOption, Risk};
use crate::plan::{Order, Parts, Store};

pub(super) static PATCH: Patch = Patch {
    name: "tp-allreduce",
    about: "row-parallel linears over 2, 4 or 8 ranks with f32 or bf16 all-reduce",
    phases: BOTH,
    ops: &[Op::OutputUp, Op::Experts, Op::SharedExpert],
    risk: Risk::Medium,
    claims: &[
        Claim {
            error: 2.4e-3,
            metric: "rel-L2 of a reduced output",
            source: "three bf16 roundings, partial sums of the size of the result",
            given: &[("sum", &["bf16"]), ("ranks", &["2"])],
        },
        Claim {
            error: 3.0e-3,
            metric: "rel-L2 of a reduced output",
            source: "seven bf16 roundings of growing sums",
            given: &[("sum", &["bf16"]), ("ranks", &["4"])],
        },
        Claim {
            error: 4.0e-3,
            metric: "rel-L2 of a reduced output",
            source: "fifteen bf16 roundings of growing sums",
            given: &[("sum", &["bf16"]), ("ranks", &["8"])],
        },
        Claim {
            error: 1e-6,
            metric: "rel-L2 of a reduced output",
            source: "f32 additions in another order",
            given: &[("sum", &["f32"])],
        },
    ],
    env_aliases: &["--tp-size", "--tensor-parallel-size"],
    conflicts: &[],
    options: &[
        PatchOption { name: "ranks", values: "2, 4, 8", default: "2" },
        PatchOption { name: "sum", values: "f32, bf16", default: "bf16" },
        PatchOption { name: "order", values: "ranks, ring", default: "ranks" },
    ],
    apply: |options, rules| {
        rules.reduce = Parts {
            count: options.word("ranks", &[("2", 2), ("4", 4), ("8", 8)])?,
            store: options.word("sum", &[("f32", Store::F32), ("bf16", Store::Bf16)])?,
            order: options.word("order", &[("ranks", Order::Ascending), ("ring", Order::Ring)])?,
        };
        Ok(())
    },
    ..BASE
};

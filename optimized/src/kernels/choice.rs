//! Which ops of a plan run as kernels.

use karat_model::Checkpoint;
use karat_seam::{Op, Phase};

use super::{Grouped, Kernel, Kernels, Standing};
use crate::patches::Patch;
use crate::plan::{Attend, Exponential, IndexScore, Numerics, Product, Resolved, RouteWeight, SplitK, Store};

/// Kernels of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// bf16 terms of fn.
    pub mix: Option<u8>,
    pub attend: Option<SplitK>,
    /// Whether each q.k is rounded to bf16.
    pub index: Option<bool>,
    pub experts: Option<Grouped>,
    pub project: Option<Store>,
}

impl Chosen {
    /// True when a kernel computes the op.
    pub(crate) fn runs(&self, op: Op) -> bool {
        match op {
            Op::HcAttnPre | Op::HcFfnPre => self.mix.is_some(),
            Op::CompressProject | Op::IndexProject => self.project.is_some(),
            Op::IndexScore | Op::Select => self.index.is_some(),
            Op::Attend => self.attend.is_some(),
            Op::Experts => self.experts.is_some(),
            _ => false,
        }
    }
}

/// Kernels of both phases, and how every patch runs. A patch of which a phase has no kernel runs as its contract in both.
pub(crate) fn choose(plan: &Resolved, checkpoint: &Checkpoint, kernels: &dyn Kernels) -> ([Chosen; 2], Vec<Standing>) {
    let mut chosen = [Chosen::default(); 2];
    let mut standings: Vec<Standing> = Vec::new();
    for patch in &plan.patches {
        let phases = patch.phases.iter().map(|phase| {
            let kernel = wanted(patch, plan.rules(*phase))?;
            kernels.lacks(kernel, checkpoint).map_or(Ok(kernel), Err)
        });
        let kernel = phases.reduce(Result::and).unwrap_or_else(|| Err(NONE.to_string()));
        if let Ok(kernel) = kernel {
            for phase in patch.phases {
                chosen[usize::from(*phase == Phase::Decode)].take(kernel);
            }
        }
        standings.push(Standing { patch: patch.name, kernel });
    }
    // The clamp is a part of the experts' kernel, where that runs.
    let experts = chosen[0].experts.or(chosen[1].experts);
    for standing in standings.iter_mut().filter(|s| s.patch == "swiglu-clamp") {
        if let Some(grouped) = experts {
            standing.kernel = Ok(Kernel::Experts(grouped));
        }
    }
    (chosen, standings)
}

const NONE: &str = "no kernel stands for it";

impl Chosen {
    fn take(&mut self, kernel: Kernel) {
        match kernel {
            Kernel::Mix { terms } => self.mix = Some(terms),
            Kernel::Attend(split) => self.attend = Some(split),
            Kernel::Index { bf16_product } => self.index = Some(bf16_product),
            Kernel::Experts(grouped) => self.experts = Some(grouped),
            Kernel::Project { rows } => self.project = Some(rows),
        }
    }
}

/// The kernel of a patch under the rules of a phase, or why there is none.
fn wanted(patch: &Patch, rules: &Numerics) -> Result<Kernel, String> {
    let no = |why: &str| Err(why.to_string());
    let kernel = match (patch.name, rules.hc, rules.attend, rules.index.score) {
        ("bf16-mhc", ..) => Kernel::Mix { terms: 1 },
        ("exact-split-mhc", Product::Terms(terms), ..) => Kernel::Mix { terms },
        ("mma-sparse-mla", _, Attend::SplitK(split), _) => {
            if split.p != Store::Bf16 || split.fold_scale || split.exp != Exponential::Exp2 {
                return no("its kernel has p=bf16, scale=after and exp=exp2 only");
            }
            Kernel::Attend(split)
        }
        ("fp8-indexer", _, _, IndexScore::Folded { bf16_product, .. }) => Kernel::Index { bf16_product },
        ("mxfp4-moe" | "nvfp4-moe", ..) => {
            if rules.experts != Product::Bf16 {
                return no("its kernel takes activations in bf16 only");
            }
            if rules.route_weight != RouteWeight::BeforeDown {
                return no(
                    "its kernel multiplies the routing weight in before the down projection, this stock profile after it",
                );
            }
            if rules.reduce.count != 1 {
                return no("its kernel sums whole columns, and these are spread over ranks");
            }
            Kernel::Experts(Grouped { nvfp4: patch.name == "nvfp4-moe", fused_clamp: rules.swiglu.fused })
        }
        ("bf16-gemm", ..) => Kernel::Project { rows: rules.compress_store },
        ("swiglu-clamp", ..) => return no("its kernel is that of mxfp4-moe or nvfp4-moe, and neither runs as one"),
        _ => return no(NONE),
    };
    if !rules.store.rounds() {
        return no("kernels take operands in bf16, and this stock profile stores f32");
    }
    Ok(kernel)
}

//! What to run: a stock profile, speed patches and a history, resolved into numeric rules for each phase.

mod numerics;
mod shapes;
mod stock;

use karat_model::{Config, Result};
use karat_seam::{Op, Phase};

pub(crate) use numerics::ACT_BLOCK;
pub use numerics::{
    ActCodes, Attend, Coded, Exponential, IndexFormat, IndexRule, IndexScore, KvFormat, Numerics, Order, Parts,
    Product, QueryNorm, RouteWeight, Scaling, SplitK, Store, Swiglu, WeightCodes,
};
pub use stock::{Basis, Profile, Row, Stock};

use crate::History;
use crate::patches::{Patch, Request};

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The low-precision path without patches.
    pub stock: Stock,
    /// Speed patches: `NAME` or `NAME:option=value:option=value`.
    pub patches: Vec<String>,
    /// How the requests are served.
    pub history: History,
}

/// A plan with names looked up and rules worked out.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// Rules by phase.
    prefill: Numerics,
    decode: Numerics,
    /// The patches that were asked for, in registry order.
    pub patches: Vec<&'static Patch>,
    /// Most tokens of a prefill step, where a patch says so.
    pub chunk: Option<usize>,
}

impl Plan {
    /// Checks names, options and conflicts without a model. Errors name the patch and list what there is.
    pub fn check(&self) -> Result<()> {
        Resolved::new(self).map(|_| ())
    }
}

impl Resolved {
    /// Looks up the patches and applies them to the stock profile, phase by phase.
    pub(crate) fn new(plan: &Plan) -> Result<Self> {
        let requests = Request::parse_all(&plan.patches)?;
        let stock = plan.stock.profile().numerics;
        let patches = requests.iter().map(|r| r.patch).collect();
        let mut out = Self { prefill: stock, decode: stock, patches, chunk: None };
        for request in &requests {
            if let Some(chunk) = request.patch.chunk {
                out.chunk = Some(chunk(&request.options)?);
            }
            for phase in request.patch.phases {
                let rules = match phase {
                    Phase::Prefill => &mut out.prefill,
                    Phase::Decode => &mut out.decode,
                };
                (request.patch.apply)(&request.options, rules)?;
            }
        }
        Ok(out)
    }

    /// Refuses a model whose shapes the rules' blocks don't divide, by name of the linear.
    pub(crate) fn check_shapes(&self, stock: Stock, config: &Config) -> Result<()> {
        for rules in [&self.prefill, &self.decode] {
            shapes::check(stock, rules, config)?;
        }
        for patch in &self.patches {
            (patch.check)(config)?;
        }
        Ok(())
    }

    /// Another place for the routed scaling factor, in both phases.
    pub(crate) fn set_scaling(&mut self, scaling: Scaling) {
        (self.prefill.scaling, self.decode.scaling) = (scaling, scaling);
    }

    /// Rules of a phase.
    pub(crate) fn rules(&self, phase: Phase) -> &Numerics {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }

    /// The different values that a rule takes over the phases.
    pub(crate) fn distinct<T: PartialEq>(&self, rule: impl Fn(&Numerics) -> T) -> Vec<T> {
        distinct(&[self], rule)
    }

    /// Patches that change this op in this phase.
    pub(crate) fn patches_on(&self, op: Op, phase: Phase) -> impl Iterator<Item = &'static Patch> {
        self.patches.iter().copied().filter(move |p| p.phases.contains(&phase) && p.ops.contains(&op))
    }
}

/// The different values that a rule takes over the phases of several plans.
pub(crate) fn distinct<T: PartialEq>(plans: &[&Resolved], rule: impl Fn(&Numerics) -> T) -> Vec<T> {
    let mut out = Vec::new();
    for value in plans.iter().flat_map(|plan| [rule(&plan.prefill), rule(&plan.decode)]) {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

#[cfg(test)]
mod tests;

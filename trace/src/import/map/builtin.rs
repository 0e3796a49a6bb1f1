//! Built-in maps, for dumps whose names are those of transformers', SGLang's or vLLM's modules.

use karat_model::Result;

use super::{Map, Plan, Side};

/// Name and text of each.
const MAPS: &[(&str, &str)] = &[
    ("transformers", include_str!("maps/transformers.toml")),
    ("sglang", include_str!("maps/sglang.toml")),
    ("vllm", include_str!("maps/vllm.toml")),
];

/// A built-in map that fits a dump.
#[derive(Debug, Clone)]
pub struct Builtin {
    /// Whose names they are.
    pub name: &'static str,
    /// What becomes of the dump under it.
    pub plan: Plan,
}

/// The built-in map that names most of these tensors; `None` when none names any.
///
/// A map under which two tensors would become one is not for this dump.
pub fn builtin<'n>(side: Side, names: &(impl Iterator<Item = &'n str> + Clone)) -> Result<Option<Builtin>> {
    let mut best: Option<Builtin> = None;
    for (name, text) in MAPS {
        let map = Map::parse(name, text)?;
        let Ok(plan) = Plan::new(&map, side, names.clone()) else { continue };
        let size = |b: &Builtin| b.plan.recipes.len();
        if !plan.recipes.is_empty() && best.as_ref().is_none_or(|b| size(b) < plan.recipes.len()) {
            best = Some(Builtin { name, plan });
        }
    }
    Ok(best)
}

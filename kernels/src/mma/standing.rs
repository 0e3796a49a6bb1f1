//! What a run may say of the device that it runs on: what is declared of its architecture beside what it was just found to do.

use karat_model::Result;

use super::declared::{Declared, declared};
use super::find::FormFound;
use super::form::Form;
use super::model::{MmaModel, Rounding};

/// Forms that kernels of patches use.
pub const USED: [Form; 2] = [Form::Bf16, Form::F16];

/// What follows for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Bits that are kept of an addend below the largest of its step; of the form that keeps least.
    pub bits: u32,
    /// Products a step; of the form that has the fewest.
    pub products: u32,
    /// Whether any form cuts off.
    pub truncates: bool,
    /// A sentence for people.
    pub note: String,
    /// Why rows that are judged by it prove nothing; empty where they do.
    pub unproven: String,
}

/// Of the forms that kernels use, on a chip: `found` by a probe in this run, or why there was none.
///
/// # Errors
/// The committed list is broken.
pub fn standing(arch: &str, found: std::result::Result<&[FormFound], &str>) -> Result<Standing> {
    let known = declared()?.into_iter().find(|it| it.arch == arch);
    Ok(of(arch, known.as_ref(), found))
}

fn of(arch: &str, declared: Option<&Declared>, found: std::result::Result<&[FormFound], &str>) -> Standing {
    let chip = arch.trim_end_matches('a');
    let models: Vec<&MmaModel> =
        USED.iter().filter_map(|form| declared.and_then(|declared| declared.model(*form))).collect();
    let is_declared = models.len() == USED.len();
    let origin = declared.map_or("nothing is declared", |declared| declared.origin.as_str());
    let found = match found {
        Ok(found) => found,
        Err(why) => {
            let note = format!("accumulation of {chip} was not probed in this run: {why}");
            let unproven = if is_declared {
                String::new()
            } else {
                format!("no model of how {chip} accumulates is declared, and it was not probed in this run: {why}")
            };
            let note = if is_declared { format!("{note}; taken as declared ({origin})") } else { note };
            return judged(&models, note, unproven);
        }
    };
    if let Some((form, what)) = found.iter().find_map(|it| Some((it.model.form, it.unexplained.first()?))) {
        let why =
            format!("the probe of this run found what no model of accumulation explains: {}: {what}", form.name());
        let own: Vec<&MmaModel> = found.iter().map(|it| &it.model).collect();
        return judged(&own, format!("accumulation of {chip}: not explained by any model (probed in this run)"), why);
    }
    let own: Vec<&MmaModel> = found.iter().map(|it| &it.model).collect();
    if !is_declared {
        let note = format!(
            "accumulation of {chip}: {}, as the probe of this run found; no evidence of this chip is committed",
            words(&own)
        );
        return judged(&own, note, String::new());
    }
    match models.iter().zip(&own).find(|(declared, found)| declared != found) {
        None => judged(
            &models,
            format!("accumulation of {chip}: as declared (probed in this run; {origin})"),
            String::new(),
        ),
        Some((declared, found)) => {
            let (form, one, two) = (found.form.name(), words(&[declared]), words(&[found]));
            let what =
                if one == two { "in its smallest or special values".to_string() } else { format!("{one}; {two}") };
            let why = format!(
                "the probe of this run found that {chip} accumulates {form} otherwise than is declared: {what} \
                 (`bash run.sh probe` of cargo xtask gpu-suite tells all of it)"
            );
            judged(&own, format!("accumulation of {chip}: not as declared (probed in this run; {origin})"), why)
        }
    }
}

fn judged(models: &[&MmaModel], note: String, unproven: String) -> Standing {
    let truncates = models.iter().any(|m| [m.align, m.round].iter().any(|how| *how != Rounding::NearestEven));
    Standing {
        bits: models.iter().map(|m| m.bits).min().unwrap_or(25),
        products: models.iter().map(|m| m.products_a_step() as u32).min().unwrap_or(16),
        truncates: truncates || models.is_empty(),
        note,
        unproven,
    }
}

fn words(models: &[&MmaModel]) -> String {
    let one = |m: &&MmaModel| {
        format!("{} products a step with {} bits, {} ({})", m.products_a_step(), m.bits, super::said(m), m.form.name())
    };
    models.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::find::{claimed, find};
    use super::*;

    fn probed(change: impl Fn(&mut MmaModel)) -> Vec<FormFound> {
        let one = |form| {
            let mut model = claimed(form);
            change(&mut model);
            find(&model, form).unwrap()
        };
        USED.map(one).to_vec()
    }

    /// A chip of which nothing is declared but what these say.
    fn chip(arch: &str, found: &[FormFound]) -> Declared {
        let models = found.iter().map(|it| it.model.clone()).collect();
        Declared { arch: arch.into(), origin: "a test".into(), probed: true, date: String::new(), models }
    }

    #[test]
    fn what_is_found_stands_beside_what_is_declared() {
        let same = probed(|_| ());
        let sm_90 = chip("sm_90a", &same);
        let it = of("sm_90a", Some(&sm_90), Ok(&same));
        assert_eq!(it.note, "accumulation of sm_90: as declared (probed in this run; a test)");
        assert_eq!((it.bits, it.products, it.truncates, it.unproven.as_str()), (25, 16, true, ""));
        // Otherwise: judged by what was found, and proves nothing.
        let other = probed(|m| m.bits = 24);
        let it = of("sm_90a", Some(&sm_90), Ok(&other));
        assert!(it.bits == 24 && it.note.contains("not as declared"), "{it:?}");
        assert!(it.unproven.contains("sm_90 accumulates bf16 otherwise") && it.unproven.contains("24 bits"), "{it:?}");
        let other = probed(|m| m.nan = 0x7fc0_0000);
        assert!(of("sm_90a", Some(&sm_90), Ok(&other)).unproven.contains("special values"));
    }

    #[test]
    fn a_chip_without_a_model_is_judged_by_its_own_probe_alone() {
        let found = probed(|m| m.bits = 24);
        for declared in [None, Some(chip("sm_120a", &[]))] {
            let it = of("sm_120a", declared.as_ref(), Ok(&found));
            assert_eq!((it.bits, it.unproven.as_str()), (24, ""));
            assert!(it.note.contains("accumulation of sm_120: 16 products a step with 24 bits"), "{}", it.note);
            assert!(it.note.contains("no evidence of this chip is committed"), "{}", it.note);
            let it = of("sm_120a", declared.as_ref(), Err("the pack has no such image"));
            assert!(it.unproven.contains("was not probed in this run: the pack has no such image"), "{it:?}");
        }
    }

    #[test]
    fn what_was_not_probed_or_not_explained_says_so() {
        let same = probed(|_| ());
        let it = of("sm_90a", Some(&chip("sm_90a", &same)), Err("the pack has no such image"));
        assert!(it.unproven.is_empty() && it.note.contains("was not probed in this run"), "{it:?}");
        let mut odd = same.clone();
        odd[1].unexplained.push("carries: lost".into());
        let it = of("sm_90a", Some(&chip("sm_90a", &same)), Ok(&odd));
        assert!(it.unproven.contains("f16: carries: lost"), "{it:?}");
        assert!(standing("sm_120a", Err("x")).unwrap().unproven.contains("no model"));
    }
}

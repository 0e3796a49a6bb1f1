//! Whether bundles are parts of one run.

use super::{part_of, refuse};
use crate::{Bundle, PatchRow, Result};

/// What tells two bundles apart that parts of one run have in common.
pub(super) fn differs(a: &Bundle, b: &Bundle) -> Option<String> {
    let (x, y) = (&a.run, &b.run);
    let (p, q) = (x.partition.as_ref()?, y.partition.as_ref()?);
    let patches = |rows: &[PatchRow]| {
        let one = |r: &PatchRow| {
            (r.patch.clone(), r.profile.clone(), r.phases.clone(), r.risk.clone(), r.claimed_error.to_bits())
        };
        rows.iter().map(one).collect::<Vec<_>>()
    };
    let said = |what: &str, a: String, b: String| Some(format!("{what} differs ({a}, {b})"));
    if p.of != q.of {
        return said("the number of parts", p.of.to_string(), q.of.to_string());
    }
    if x.model != y.model {
        return said("the model", x.model.label.clone(), y.model.label.clone());
    }
    for (what, a, b) in [
        ("the version", &x.producer, &y.producer),
        ("the backend", &x.backend, &y.backend),
        ("the device", &x.device, &y.device),
        ("the schema", &x.schema.hash, &y.schema.hash),
    ] {
        if a != b {
            return said(what, a.clone(), b.clone());
        }
    }
    if x.candidate != y.candidate {
        let name = |c: &crate::Candidate| format!("{}, {}: {}", c.name, c.claims, c.patch_sets.join(" "));
        return said("the candidate", name(&x.candidate), name(&y.candidate));
    }
    let unlike = [
        ("its scenarios or their ids differ", x.scenarios != y.scenarios || p.conversations != q.conversations),
        ("the policy differs", x.policy != y.policy),
        ("the kernels differ", x.kernels != y.kernels),
        ("the seeds differ", x.seeds != y.seeds),
        ("the patches differ", patches(&a.patches) != patches(&b.patches)),
    ];
    unlike.into_iter().find(|(_, is)| *is).map(|(what, _)| what.to_string())
}

/// Every row is of a conversation that belongs to one of the bundle's parts.
pub(super) fn owns_its_rows(name: &str, bundle: &Bundle) -> Result<()> {
    let Some(partition) = &bundle.run.partition else { return Ok(()) };
    for c in &partition.conversations {
        if c.part != part_of(&c.scenario, &c.sequence, partition.of) {
            return refuse(format!(
                "{name}: run.json puts conversation {} into part {}, which is not its own",
                c.sequence, c.part
            ));
        }
    }
    let owned = |scenario: &str, sequence: &str| {
        let part = part_of(scenario, sequence, partition.of);
        partition.parts.iter().any(|p| p.index == part)
            && partition.conversations.iter().any(|c| c.scenario == scenario && c.sequence == sequence)
    };
    let taps = bundle.taps.iter().map(|r| (&r.scenario, &r.sequence));
    let tokens = bundle.tokens.iter().map(|r| (&r.scenario, &r.sequence));
    let flips = bundle.flips.iter().map(|r| (&r.scenario, &r.sequence));
    let histories = bundle.histories.iter().map(|r| (&r.scenario, &r.sequence));
    let derived = bundle.derivations.iter().filter(|r| !r.sequence.is_empty()).map(|r| (&r.scenario, &r.sequence));
    let recall = bundle.recall.iter().map(|r| (&r.scenario, &r.conversation));
    let mut last = None;
    for (scenario, sequence) in taps.chain(tokens).chain(flips).chain(recall).chain(histories).chain(derived) {
        if last == Some((scenario, sequence)) {
            continue;
        }
        if !owned(scenario, sequence) {
            return refuse(format!(
                "{name} has rows of conversation {sequence} ({scenario}), which is none of its part"
            ));
        }
        last = Some((scenario, sequence));
    }
    Ok(())
}

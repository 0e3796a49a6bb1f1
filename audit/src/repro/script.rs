//! The torch script beside the tensors: one op's formula, the comparison, and a place for the kernel under test.

use std::collections::BTreeMap;

use serde_json::Value;

/// Formulas by op, and the functions that they use.
const PARTS: &str = include_str!("reference.py");

const MAIN: &str = r#"
def kernel():
    # Put the kernel under test here: results by name. Without one, what the audited path made is compared.
    return {n.removeprefix("candidate."): v for n, v in T.items() if n.startswith("candidate.")}


def distance(ours, theirs):  # rel-L2; of decisions the share of rows that differ
    if not ours.is_floating_point():
        rows = (ours != theirs.to(ours.dtype)).flatten(1).any(1).double()
        return rows.mean().item(), rows
    ours, theirs = ours.double().flatten(1), theirs.double().flatten(1)
    same = ours == theirs  # a masked score is the same infinity on both sides
    d, x = torch.where(same, 0.0, theirs - ours), torch.where(same & ours.isinf(), 0.0, ours)
    return (d.norm() / x.norm()).item(), d.norm(dim=1)


if __name__ == "__main__":
    formula, found, failed = reference(), kernel(), False
    for name in sorted(n.removeprefix("expected.") for n in T if n.startswith("expected.")):
        expected = T["expected." + name]
        error, rows = distance(expected, found[name])
        worst = rows.argmax().item()
        where = f"position {P[worst].item()}" if len(rows) == len(P) else f"entry {worst}"
        allowed = ALLOWED.get(name)
        limit = "" if allowed is None else f", allowed {allowed:.1e}"
        print(f"{name}: {error:.2e} from the expected result (worst at {where}{limit}); "
              f"the formula is {distance(expected, formula[name])[0]:.1e} from it")
        failed |= allowed is not None and not error <= allowed
    sys.exit(failed)
"#;

/// The formula of an op; `None` for one that is not here.
fn formula(op: &str) -> Option<String> {
    let head = format!("\n# === {op}\n");
    let body = PARTS.split_once(&head)?.1;
    let body = body.split("\n# === ").next().unwrap_or(body);
    Some(body.trim_end().lines().map(|line| format!("    {line}\n")).collect())
}

/// Functions that a text calls, and those that these call, in the order of the file.
fn helpers(text: &str) -> String {
    let all: Vec<(&str, &str)> = PARTS
        .split("\n# === ")
        .next()
        .unwrap_or_default()
        .split("\n# --- ")
        .skip(1)
        .filter_map(|part| part.split_once('\n'))
        .collect();
    let mut used: Vec<bool> = all.iter().map(|(call, _)| text.contains(call)).collect();
    // A function calls only those before it.
    for i in (0..all.len()).rev() {
        for j in 0..i {
            used[j] |= used[i] && all[i].1.contains(all[j].0);
        }
    }
    all.iter().zip(used).filter(|(_, used)| *used).map(|((_, body), _)| format!("{}\n\n\n", body.trim_end())).collect()
}

/// The script. `said` tells what was found; `allowed` the largest error by tap that the op's roundings explain.
pub(super) fn script(
    op: &str,
    said: &[String],
    constants: &BTreeMap<&str, Value>,
    allowed: &BTreeMap<&str, f64>,
) -> Option<String> {
    let formula = formula(op)?;
    let json = |value: serde_json::Result<String>| value.unwrap_or_default();
    let lines: Vec<String> = said.iter().map(|line| line.replace(['\\', '"'], "'")).collect();
    Some(format!(
        "\"\"\"{}\n\nNeeds torch and safetensors. In op.safetensors: operand.* what the op was given, weight.* its weights in \
         f32,\nexpected.* the f32 results of the golden reference, candidate.* what the audited path made of the same \
         operands.\nExit code 1: the results are off by more than the op's roundings explain.\n\"\"\"\nimport math\nimport \
         sys\nfrom pathlib import Path\n\nimport torch\nfrom safetensors.torch import load_file\n\nT = \
         load_file(Path(__file__).parent / \"op.safetensors\")\nC = {}\nALLOWED = {}\nP = T[\"positions\"]\n\n\ndef \
         t(name):\n    return T[name].double()\n\n\n{}def reference():  # {op}\n{formula}\n{MAIN}",
        lines.join("\n"),
        json(serde_json::to_string(constants)),
        json(serde_json::to_string(allowed)),
        helpers(&formula),
    ))
}

#[cfg(test)]
mod tests {
    use karat_seam::{OpSpec, Part};

    use super::*;

    #[test]
    fn every_op_of_a_layer_has_a_formula_with_all_that_it_calls() {
        for spec in OpSpec::graph().iter().filter(|s| s.part != Part::Head) {
            let (constants, allowed) = (BTreeMap::new(), [("a", 1e-3)].into());
            let text = script(spec.name, &["what \"it\" is".into()], &constants, &allowed).unwrap();
            assert!(text.contains(&format!("def reference():  # {}\n", spec.name)), "{}", spec.name);
            for tap in spec.reads {
                assert!(text.contains(tap.name()), "{} reads {}", spec.name, tap.name());
            }
            for tap in spec.writes {
                assert!(text.contains(&format!("\"{}\": ", tap.name())), "{} writes {}", spec.name, tap.name());
            }
            let own = text.split("def kernel").next().unwrap();
            for call in ["norm(", "rope(", "hadamard(", "swiglu(", "pool(", "mix_in(", "mix_out(", "best("] {
                let made = own.contains(&format!("def {call}"));
                assert_eq!(own.contains(call), made, "{}: {call}", spec.name);
            }
        }
        assert_eq!(script("nothing", &[], &BTreeMap::new(), &BTreeMap::new()), None);
    }
}

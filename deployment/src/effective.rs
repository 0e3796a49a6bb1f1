//! Which value of a setting is in effect, and how one knows.

use crate::data::{Condition, Switch, SwitchKind, data};
use crate::evidence::Evidence;
use crate::facts::Facts;

/// How a value is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// A source says it.
    Seen,
    /// Nothing sets it, and what the engine then takes is known.
    Default,
    /// It can't be told.
    Unknown,
}

/// A setting's value.
#[derive(Debug, Clone)]
pub(crate) struct Effective {
    /// In one spelling; `None` when it is unknown.
    pub(crate) value: Option<String>,
    pub(crate) how: How,
    /// What speaks for it.
    pub(crate) evidence: Vec<Evidence>,
    /// For a default: what it rests on; for an unknown: what is missing.
    pub(crate) why: String,
}

/// Value of a variable that isn't set and has no default.
const UNSET: &str = "unset";

impl Effective {
    fn unknown(why: String, evidence: Vec<Evidence>) -> Self {
        Self { value: None, how: How::Unknown, evidence, why }
    }
}

/// An architecture as the tables name its family.
fn family(arch: &str) -> &str {
    match arch {
        "sm_121" => "sm_120",
        "sm_103" => "sm_100",
        other => other,
    }
}

impl Facts {
    /// The value in effect in the running process, as far as the sources show it.
    pub(crate) fn effective(&self, setting: &str) -> Effective {
        let Some(switch) = data().switch(setting) else {
            return Effective::unknown(format!("{setting} is in no table"), Vec::new());
        };
        let about = self.about(setting);
        let strongest = about.last().copied();
        if switch.ending
            && let Some(strongest) = strongest
        {
            // Several names end alike: which of them is read isn't known.
            let source = strongest.evidence.source;
            let rivals = about.iter().filter(|f| f.evidence.source == source && f.name != strongest.name);
            if rivals.clone().any(|f| f.value != strongest.value) {
                let evidence = about.iter().map(|f| f.evidence.clone()).collect();
                return Effective::unknown(format!("variables whose names end in {setting} disagree"), evidence);
            }
        }
        match strongest {
            Some(fact) if fact.value.is_some() => Effective {
                value: fact.value.clone(),
                how: How::Seen,
                evidence: vec![fact.evidence.clone()],
                why: String::new(),
            },
            Some(fact) => self.default_of(switch, vec![fact.evidence.clone()]),
            None => self.default_of(switch, Vec::new()),
        }
    }

    /// The value that the engine takes when nothing sets it.
    fn default_of(&self, switch: &Switch, mut evidence: Vec<Evidence>) -> Effective {
        let name = &switch.name;
        let whole = match switch.kind {
            SwitchKind::Env => &self.environment,
            SwitchKind::Arg => &self.arguments,
            SwitchKind::Seen => return Effective::unknown(format!("{name} not seen"), evidence),
        };
        let Some(whole) = whole else {
            let whole =
                if switch.kind == SwitchKind::Env { "whole process environment" } else { "whole launch command" };
            return Effective::unknown(format!("{name} not seen, and no {whole} was"), evidence);
        };
        evidence.push(whole.clone());
        if switch.ending {
            return Effective::unknown(format!("{name} is not set, and its default is not public"), evidence);
        }
        if !switch.read && switch.default.is_none() {
            return Effective {
                value: Some(UNSET.into()),
                how: How::Default,
                evidence,
                why: format!("{name} is not set"),
            };
        }
        if let Some(other) = self.about("engine").into_iter().next_back()
            && other.value.as_deref() != Some(data().engine.as_str())
        {
            evidence.push(other.evidence.clone());
            return Effective::unknown(
                format!("{name} is not set, and defaults of this engine are not known"),
                evidence,
            );
        }
        let known = &data().version;
        match self.about("version").into_iter().next_back() {
            Some(version) if version.value.as_ref() == Some(known) => evidence.push(version.evidence.clone()),
            Some(version) => {
                evidence.push(version.evidence.clone());
                return Effective::unknown(
                    format!("{name} is not set, and defaults are known for {known} only"),
                    evidence,
                );
            }
            None => {
                let default = switch.default.as_deref().unwrap_or("none");
                let why = format!(
                    "{name} is not set ({default} by default in {known}), and the engine's version was not seen"
                );
                return Effective::unknown(why, evidence);
            }
        }
        let mut default = switch.default.clone();
        if !switch.unset_on.is_empty() {
            let Some(arch) = self.about("arch").into_iter().next_back() else {
                return Effective::unknown(
                    format!("{name} is not set; its default depends on arch, which was not seen"),
                    evidence,
                );
            };
            evidence.push(arch.evidence.clone());
            let here = arch.value.as_deref().and_then(|arch| switch.unset_on.get(family(arch)));
            default = here.cloned().or(default);
        }
        match default {
            Some(value) => {
                let why = format!("{name} is not set: {value} by default in {known}");
                Effective { value: Some(value), how: How::Default, evidence, why }
            }
            None => Effective::unknown(format!("{name} is not set, and its default is not known"), evidence),
        }
    }

    /// Whether a condition holds; `None` when that can't be told.
    pub(crate) fn holds(&self, condition: &Condition) -> (Option<bool>, Effective) {
        let effective = self.effective(&condition.setting);
        let answer = effective.value.as_deref().and_then(|value| test(condition, value));
        (answer, effective)
    }
}

fn test(condition: &Condition, value: &str) -> Option<bool> {
    let is = |list: &[String]| list.iter().any(|v| v == value);
    // What `auto` became can't be seen.
    let open = matches!(value, "auto" | "none");
    if let Some(above) = condition.above {
        return if open { None } else { value.parse::<i64>().ok().map(|n| n > above).or(Some(false)) };
    }
    if condition.values.is_empty() {
        return if open && !is(&condition.not) { None } else { Some(!is(&condition.not)) };
    }
    if is(&condition.values) { Some(true) } else { (!open).then_some(false) }
}

#[cfg(test)]
mod tests;

//! What a device was seen to do: one file a device under `evidence/mma/`, written by the suite's part `probe`.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use super::compare::Class;
use super::declared::Declared;
use super::find::FormFound;
use super::form::Form;
use crate::evidence::Place;
use crate::list::{List, PROBE};

/// Outputs of each form that are compared at least.
const LEAST: u64 = 1_000_000;

/// One run of the suite's part `probe`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmaEvidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Place,
    /// The probe's image, and the digest of its source, options and compiler.
    pub images: BTreeMap<String, String>,
    /// Seconds of all questions, and of all of it.
    pub seconds: [f64; 2],
    /// One a form.
    pub accumulation: Vec<FormEvidence>,
}

/// One form on one device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormEvidence {
    /// What the answers speak for.
    pub found: FormFound,
    /// That model against the device on the same operands.
    pub compared: Vec<Class>,
}

/// Digest of the probe's source, options and compiler.
///
/// # Errors
/// The committed list is broken.
pub fn digest() -> Result<String> {
    let list = List::read()?;
    crate::source::digest(list.image(PROBE)?, &list.compiler)
}

impl FormEvidence {
    /// Outputs that were compared, and those whose bits differ.
    pub fn outputs(&self) -> (u64, u64) {
        self.compared.iter().fold((0, 0), |(n, apart), it| (n + it.compared, apart + it.different))
    }
}

impl MmaEvidence {
    /// Parses a file's text.
    ///
    /// # Errors
    /// It is no evidence of this format.
    pub fn parse(text: &str) -> Result<Self> {
        let it: Self =
            serde_json::from_str(text).map_err(|e| Error::input(format!("is no evidence on accumulation: {e}")))?;
        if it.format != 1 {
            return Err(Error::input("is evidence on accumulation of another format").expected(1).found(it.format));
        }
        Ok(it)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, or no evidence of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::input(format!("evidence cannot be read: {e}")).at(path.display()))?;
        Self::parse(&text).map_err(|e| e.at(path.display()))
    }

    /// Everything that keeps it from clearing the model that is declared for its architecture.
    ///
    /// # Errors
    /// A committed list is broken.
    pub fn faults(&self) -> Result<Vec<String>> {
        self.against(&Declared::of(&self.device.arch)?)
    }

    pub(super) fn against(&self, declared: &Declared) -> Result<Vec<String>> {
        let mut out = Vec::new();
        if self.images.get(PROBE) != Some(&digest()?) {
            out.push(format!("{PROBE}: its source, options or compiler changed since the run"));
        }
        if declared.arch != self.device.arch {
            out.push(format!("evidence of {} clears no other chip", self.device.arch));
        }
        for form in Form::ALL {
            let name = form.name();
            let Some(it) = self.accumulation.iter().find(|it| it.found.model.form == form) else {
                out.push(format!("{name}: was not probed"));
                continue;
            };
            out.extend(it.found.unexplained.iter().map(|what| format!("{name}: no model explains {what}")));
            let (n, different) = it.outputs();
            if n < LEAST {
                out.push(format!("{name}: {n} outputs were compared, at least {LEAST} are wanted"));
            }
            if different > 0 {
                out.push(format!("{name}: {different} of {n} outputs are not what the model makes"));
            }
            if declared.model(form) != Some(&it.found.model) {
                out.push(format!(
                    "{name}: mma.toml declares another model for {}; found:\n{}",
                    self.device.arch,
                    it.found.model.toml()
                ));
            }
        }
        Ok(out)
    }
}

//! The model that is declared for each architecture: `mma.toml`.

use karat_model::{Error, Result};
use serde::Deserialize;

use super::form::Form;
use super::model::MmaModel;

/// The committed models.
const TEXT: &str = include_str!("../../mma.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Book {
    format: u32,
    #[serde(rename = "architecture")]
    architectures: Vec<Declared>,
}

/// What is declared of an architecture.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// Chip's name in packs.
    pub arch: String,
    /// Where the models come from, in words.
    pub origin: String,
    /// A probe on a device of this architecture found them; else somebody claims them.
    pub probed: bool,
    /// Day of that.
    #[serde(default)]
    pub date: String,
    /// One a form; none where nothing is known.
    #[serde(default, rename = "model")]
    pub models: Vec<MmaModel>,
}

/// Every architecture that kernels are built for.
///
/// # Errors
/// The committed file is broken: a test sees to it that it isn't.
pub fn declared() -> Result<Vec<Declared>> {
    parse(TEXT)
}

fn parse(text: &str) -> Result<Vec<Declared>> {
    let at = |error: Error| error.at("mma.toml");
    let book: Book = toml::from_str(text).map_err(|e| at(Error::input(format!("is no list of models: {e}"))))?;
    if book.format != 1 {
        return Err(at(Error::input("has another format").expected("format = 1").found(book.format)));
    }
    for model in book.architectures.iter().flat_map(|it| &it.models) {
        let (k, found) = (model.form.products(), model.steps.len());
        if found != k || !model.steps.bytes().all(|s| s.is_ascii_digit()) || model.bits > 90 {
            let error = Error::input(format!("the model of {} names no step of each product", model.form.name()));
            return Err(at(error.expected(format!("{k} digits, at most 90 bits")).found(&model.steps)));
        }
    }
    Ok(book.architectures)
}

impl MmaModel {
    /// As `mma.toml` has it.
    pub fn toml(&self) -> String {
        toml::to_string(self).map_or_else(|e| e.to_string(), |text| format!("[[architecture.model]]\n{text}"))
    }
}

impl Declared {
    /// Of a chip.
    ///
    /// # Errors
    /// The committed file is broken, or no word is said of the chip.
    pub fn of(arch: &str) -> Result<Self> {
        let found = declared()?.into_iter().find(|it| it.arch == arch);
        found.ok_or_else(|| Error::input(format!("nothing is declared of {arch}")).at("mma.toml"))
    }

    /// The model of a form.
    pub fn model(&self, form: Form) -> Option<&MmaModel> {
        self.models.iter().find(|model| model.form == form)
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let of = |model: &MmaModel| {
            let (n, bits) = (model.products_a_step(), model.bits);
            let cut = super::said(model);
            format!("{}: {n} products a step, {bits} bits below the largest, {cut}", model.form.name())
        };
        let models: Vec<String> = self.models.iter().map(of).collect();
        let models = if models.is_empty() { "no model".to_string() } else { models.join("; ") };
        let date = if self.date.is_empty() { String::new() } else { format!(", {}", self.date) };
        format!("{}: {models} ({}{date})", self.arch.trim_end_matches('a'), self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chip_has_a_word_and_what_is_not_probed_says_so() {
        let all = declared().unwrap();
        for arch in crate::list::ARCHES {
            assert!(all.iter().any(|it| it.arch == arch), "{arch}");
        }
        let target = Declared::of("sm_120a").unwrap();
        assert!(
            !target.probed && target.models.is_empty() && target.line().contains("not probed"),
            "{}",
            target.line()
        );
        let here = Declared::of("sm_90a").unwrap();
        assert_eq!(here.models.iter().map(|m| m.form).collect::<Vec<_>>(), Form::ALL);
        assert!(here.line().contains("16 products a step, 25 bits"), "{}", here.line());
        assert!(Declared::of("sm_75").is_err());
    }

    #[test]
    fn a_broken_list_is_refused() {
        assert!(parse("format = 2\narchitecture = []\n").unwrap_err().to_string().contains("format"));
        assert!(parse(&TEXT.replace("probed", "proved")).unwrap_err().to_string().contains("proved"));
        let short = TEXT.replace("\"0000000000000000\"", "\"000\"");
        assert!(parse(&short).unwrap_err().to_string().contains("16 digits"));
    }
}

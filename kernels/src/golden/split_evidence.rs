//! What is known of golden's exact-split tier: one file a device under `evidence/split/`, and what it allows to say.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use super::accumulator::{DECLARED, Model, accumulator, stated};
use super::split::known;
use super::tiers::Tiers;
use super::{Taken, digests};
use crate::evidence::Place;
use crate::list::{List, SPLIT};
use crate::source::digest;

/// Files that this program knows.
const KNOWN: &[&str] = &[include_str!("../../evidence/split/nvidia-h200.json")];

/// Operands whose sums cancel: their rel-L2 says how far they do.
pub const CANCELLING: &str = "cancelling";

/// One run of the suite's part `split`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitEvidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Place,
    /// Golden's images with that of the tier, and the digests of their sources, options and compiler.
    pub images: BTreeMap<String, String>,
    /// How a step of a tensor core adds, as far as it was known, and whether it was probed on this chip.
    pub accumulator: Model,
    /// See `accumulator`.
    pub probed: bool,
    /// The bound that the tier states, in parts of the sum of |x| |w|.
    pub stated: f64,
    /// Products against f64, by what their operands are like.
    pub products: Vec<Products>,
    /// Model of the whole run, and hash of its weights.
    pub model: String,
    /// Its tokens.
    pub tokens: u64,
    /// Which of its products ran how.
    pub taken: Taken,
    /// How far its tiers are apart.
    pub tiers: Tiers,
    /// Milliseconds on either tier.
    pub times: Vec<Times>,
}

/// Products of one kind of operands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Products {
    /// What the operands are like.
    pub kind: String,
    /// Products.
    pub cases: u64,
    /// Their outputs.
    pub values: u64,
    /// Outputs that are no numbers, were not written, or differ where their row stands alone.
    pub bad: u64,
    /// Largest error in parts of the bound of its output.
    pub worst: f64,
    /// Sizes of that product.
    pub worst_case: String,
    /// Largest rel-L2 of a product against f64.
    pub rel_l2: f64,
    /// The same on the tier of bits.
    pub bits_rel_l2: f64,
}

/// The same work on either tier.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Which work.
    pub what: String,
    /// Operations of it, if it is a product: two for each of its multiplications.
    pub operations: f64,
    /// Milliseconds of each round on the tier of bits.
    pub bits: Vec<f64>,
    /// And on the exact-split tier.
    pub split: Vec<f64>,
}

impl SplitEvidence {
    /// Parses a file's text.
    ///
    /// # Errors
    /// It is no evidence of this format.
    pub fn parse(text: &str) -> Result<Self> {
        let it: Self = serde_json::from_str(text)
            .map_err(|e| Error::input(format!("is no evidence on the exact-split tier: {e}")))?;
        if it.format != 1 {
            let error = Error::input("is evidence on the exact-split tier of another format");
            return Err(error.expected(1).found(it.format));
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

    /// Largest error of a product in parts of its bound; of operands whose sums do not cancel the largest rel-L2, and that of the
    /// tier of bits on the same operands.
    pub fn worst(&self) -> [f64; 3] {
        let most = |of: fn(&Products) -> f64| self.products.iter().map(of).fold(0.0, f64::max);
        let whole = |of: fn(&Products) -> f64| {
            self.products.iter().filter(|it| it.kind != CANCELLING).map(of).fold(0.0, f64::max)
        };
        [most(|it| it.worst), whole(|it| it.rel_l2), whole(|it| it.bits_rel_l2)]
    }

    /// Everything that keeps it from saying that the tier keeps its bound there. Speed is told, not judged.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn faults(&self) -> Result<Vec<String>> {
        let mut out = Vec::new();
        let mut wanted = digests()?;
        wanted.insert(SPLIT.to_string(), split_digest()?);
        for (name, wanted) in wanted {
            if self.images.get(&name) != Some(&wanted) {
                out.push(format!("{name}: its source, options or compiler changed since the run"));
            }
        }
        let arch = &self.device.arch;
        if self.stated != stated(arch) || self.accumulator != accumulator(arch).unwrap_or(DECLARED) {
            out.push(format!("its bound {:e} is not the one that is stated now, {:e}", self.stated, stated(arch)));
        }
        if self.products.is_empty() || self.tiers.taps.is_empty() || self.taken.split == 0 {
            out.push("no product ran on the tier".to_string());
        }
        for it in &self.products {
            if it.cases < 20 || it.values == 0 {
                out.push(format!("{}: {} products of {} outputs: at least 20", it.kind, it.cases, it.values));
            }
            if it.bad > 0 {
                out.push(format!("{}: {} outputs are no numbers or depend on other rows", it.kind, it.bad));
            }
            if it.worst.is_nan() || it.worst > 1.0 {
                out.push(format!("{}: {} of the bound at {}", it.kind, it.worst, it.worst_case));
            }
        }
        if self.times.iter().any(|it| it.bits.len() < 3 || it.split.len() < 3) || self.times.len() < 2 {
            out.push("fewer than two kinds of work or three rounds were timed".to_string());
        }
        Ok(out)
    }
}

/// Digest of the tier's image as the list has it.
///
/// # Errors
/// The committed list is broken.
pub fn split_digest() -> Result<String> {
    let list = List::read()?;
    digest(list.image(SPLIT)?, &list.compiler)
}

/// One sentence for people on golden computed on this tier of a device: what is stated, why, what was measured, and what ran how.
pub fn split_standing(device: &str, arch: &str, taken: &Taken) -> String {
    let all = KNOWN.iter().filter_map(|text| SplitEvidence::parse(text).ok());
    let good = |it: &SplitEvidence| it.device.arch == arch && it.faults().is_ok_and(|faults| faults.is_empty());
    let measured = match all.into_iter().find(good) {
        Some(it) => {
            let [worst, rel_l2, bits] = it.worst();
            let (name, date) = (&it.device.name, &it.date);
            format!(
                "measured: at most {worst:.2} of that, rel-L2 {rel_l2:.1e} where sums do not cancel (golden's own arithmetic {bits:.1e}), on {name}, {date}"
            )
        }
        None => format!("never measured on {arch}"),
    };
    format!(
        "golden: exact-split tier on {device}: products within {:.2e} of the sum of |x| |w| from exact, {}; {measured}; {}; a \
         tolerance under ten times that bound is unproven",
        stated(arch),
        known(arch),
        taken.describe()
    )
}

#[cfg(test)]
mod tests {
    use super::super::tiers::TapDistance;
    use super::*;

    fn good() -> SplitEvidence {
        let mut images = digests().unwrap();
        images.insert(SPLIT.to_string(), split_digest().unwrap());
        let time = |what: &str| Times { what: what.into(), operations: 0.0, bits: vec![2.0; 3], split: vec![1.0; 3] };
        let products = |kind: &str, worst| Products {
            kind: kind.into(),
            cases: 20,
            values: 100,
            worst,
            rel_l2: worst * 1e-6,
            bits_rel_l2: 5e-7,
            ..Products::default()
        };
        SplitEvidence {
            format: 1,
            date: "2026-12-01".into(),
            device: Place { name: "a GPU".into(), arch: "sm_90a".into(), driver: 13_000, processors: 1 },
            images,
            accumulator: accumulator("sm_90a").unwrap(),
            probed: true,
            stated: stated("sm_90a"),
            products: vec![products("mixed signs", 0.25), products("one sign", 0.125)],
            model: "m".into(),
            tokens: 4,
            taken: Taken { split: 3, ..Taken::default() },
            tiers: Tiers { taps: vec![TapDistance::default()], ..Tiers::default() },
            times: vec![time("product"), time("layer")],
        }
    }

    #[test]
    fn evidence_of_other_sources_or_over_the_bound_is_refused() {
        let it = SplitEvidence::parse(&serde_json::to_string(&good()).unwrap()).unwrap();
        assert!(it.faults().unwrap().is_empty());
        assert_eq!(it.worst(), [0.25, 0.25e-6, 5e-7]);
        type Break = fn(&mut SplitEvidence);
        let broken: [(Break, &str); 8] = [
            (|it| it.images.clear(), "changed since the run"),
            (|it| it.stated *= 2.0, "is not the one that is stated now"),
            (|it| it.products[1].worst = 1.1, "one sign: 1.1 of the bound"),
            (|it| it.products[0].worst = f64::NAN, "mixed signs: NaN of the bound"),
            (|it| it.products[0].bad = 2, "2 outputs are no numbers"),
            (|it| it.products[0].cases = 19, "at least 20"),
            (|it| it.taken.split = 0, "no product ran"),
            (|it| it.times[0].split.truncate(2), "fewer than two kinds of work or three rounds"),
        ];
        for (change, said) in broken {
            let mut it = good();
            change(&mut it);
            assert!(it.faults().unwrap().iter().any(|fault| fault.contains(said)), "{said}: {:?}", it.faults());
        }
    }

    #[test]
    fn what_is_kept_is_what_reports_say() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("evidence/split");
        let files = std::fs::read_dir(folder).map_or(0, Iterator::count);
        assert_eq!(files, KNOWN.len(), "every file under evidence/split stands in KNOWN");
    }
}

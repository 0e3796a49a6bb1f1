//! What tensors say about each other: matrices that read the same input agree on which channels matter, a gate differs from
//! an up projection, a scale goes against the codes that it belongs to, and a layer has the level of the others.
//!
//! All of it holds for trained weights; random ones have no channels and no gate, and then nothing is said. Findings are
//! warnings: only a trusted checkpoint (`karat model diff`) or a forward pass proves one.

use std::collections::BTreeMap;

use super::numbers::Numbers;
use super::scan::{Scan, is_known};
use crate::Error;
use crate::checkpoint::{Check, Finding, Severity};

/// Standard deviations from which on something is no chance.
const SURE: f64 = 6.0;
/// log2 from which on a matrix is unlike its peers: a factor of 8.
const LEVEL: f64 = 3.0;
/// log2 of up over gate, against the other layers: a factor of 2.
const UP_OVER_GATE: f64 = 1.0;

/// The layer that a tensor is of, as a prefix of its name; what is of none shares the empty one.
pub(crate) fn layer(name: &str) -> &str {
    let mut parts = name.match_indices('.');
    match (name.starts_with("layers.") || name.starts_with("mtp."), parts.nth(1)) {
        (true, Some((at, _))) => &name[..at],
        _ => "",
    }
}

/// A matrix's part in its layer, the expert's number left out.
fn part(name: &str) -> String {
    let rest = name.strip_prefix(layer(name)).unwrap_or(name).trim_start_matches('.');
    rest.split('.').map(|p| if p.bytes().all(|b| b.is_ascii_digit()) { "*" } else { p }).collect::<Vec<_>>().join(".")
}

/// Facts that outlive a layer.
#[derive(Default)]
pub(super) struct Peers {
    /// By part, then layer: names with their levels, in the order of the layers.
    levels: BTreeMap<String, Vec<(String, Vec<(String, f64)>)>>,
    /// By layer: log2 of the RMS of up over that of gate, the median of its experts.
    up_over_gate: Vec<(String, f64)>,
}

/// One expert's (or the shared expert's) three matrices.
struct Expert<'a> {
    name: &'a str,
    gate: &'a Numbers,
    down: &'a Numbers,
    up: &'a Numbers,
    is_packed: bool,
}

fn warning(name: &str, error: Error) -> Finding {
    Finding::new(Severity::Warning, Check::Numbers, name, error.at(name))
}

/// The middle value, the lower of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

impl Peers {
    /// Looks at the tensors of one layer.
    pub(super) fn of_layer(&mut self, scans: &[Scan]) -> Vec<Finding> {
        let mut out = Vec::new();
        for scan in scans {
            let Some(numbers) = scan.numbers.as_ref() else { continue };
            out.extend(pairing(&scan.name, numbers));
            out.extend(unimodal(&scan.name, numbers));
            if let Some(level) = numbers.level().filter(|_| !is_known(scan)) {
                let layers = self.levels.entry(part(&scan.name)).or_default();
                let layer = layer(&scan.name);
                match layers.last_mut().filter(|(name, _)| name == layer) {
                    Some((_, levels)) => levels.push((scan.name.clone(), level)),
                    None => layers.push((layer.to_string(), vec![(scan.name.clone(), level)])),
                }
            }
        }
        let experts = experts(scans);
        out.extend(gate_and_up(&experts));
        out.extend(channels(&experts));
        let ratio = median(experts.iter().map(|e| 0.5 * (e.up.energy() / e.gate.energy()).log2()).collect());
        if let Some(first) = experts.first().filter(|_| ratio.is_finite()) {
            self.up_over_gate.push((layer(first.name).to_string(), ratio));
        }
        out
    }

    /// Layers and experts whose level is unlike that of the others.
    pub(super) fn levels(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        let middle = median(self.up_over_gate.iter().map(|(_, r)| *r).collect());
        for (layer, ratio) in self.up_over_gate.iter().filter(|_| self.up_over_gate.len() > 2) {
            if (ratio - middle).abs() > UP_OVER_GATE {
                let error = Error::input("up projections have another level than gates")
                    .expected(format!("{:.2} times the gates' RMS, as in the other layers", middle.exp2()))
                    .found(format!("{:.2} times", ratio.exp2()))
                    .hint("does one of the two use the other's scale?");
                out.push(warning(&format!("{layer}.ffn"), error));
            }
        }
        for (part, layers) in &self.levels {
            let of_layer = |l: &(String, Vec<(String, f64)>)| median(l.1.iter().map(|(_, level)| *level).collect());
            let middle = median(layers.iter().map(of_layer).collect());
            for (layer, levels) in layers {
                let own = of_layer(&(layer.clone(), levels.clone()));
                if layers.len() > 2 && (own - middle).abs() > LEVEL {
                    let error = Error::input("another level than in the other layers")
                        .expected(format!("an RMS near {:.3e}", middle.exp2()))
                        .found(format!("{:.3e}", own.exp2()))
                        .hint("scales left out, used the wrong way round, or decoded as another format?");
                    out.push(warning(&levels[0].0, error));
                    continue;
                }
                for (name, level) in levels.iter().filter(|(_, level)| levels.len() > 2 && (level - own).abs() > LEVEL)
                {
                    let error = Error::input(format!("another level than the other {part} of its layer"))
                        .expected(format!("an RMS near {:.3e}", own.exp2()))
                        .found(format!("{:.3e}", level.exp2()))
                        .hint("scales left out, or of another expert?");
                    out.push(warning(name, error));
                }
            }
        }
        out
    }
}

/// A scale is large where the block is, and its codes are then no larger: among blocks of one level the two go against each
/// other. Scales of another tensor, transposed or permuted ones are not related to the codes at all; inverted ones go with
/// them. Said only of matrices whose blocks are of nearly one level (under 0.6 binary orders).
fn pairing(name: &str, numbers: &Numbers) -> Option<Finding> {
    let blocks = &numbers.blocks;
    let sure = SURE / blocks.count().sqrt();
    if blocks.count() < 64.0 || !(0.15..0.6).contains(&blocks.spread()) || blocks.correlation() < -sure {
        return None;
    }
    let hint = if blocks.correlation() > sure {
        "are the scales stored as their inverse?"
    } else {
        "are the scales transposed, permuted, or those of another tensor?"
    };
    let error = Error::input("scales are not those of their codes")
        .expected(format!("a negative correlation of log scale and log RMS of codes (under {:.2})", -sure))
        .found(format!("{:.2} over {} blocks", blocks.correlation(), blocks.count()))
        .hint(hint);
    Some(warning(name, error))
}

/// Weights get rarer away from zero, and so do codes by the width that each stands for. A gap is what a conversion flushed.
fn unimodal(name: &str, numbers: &Numbers) -> Option<Finding> {
    const WIDTHS: [f64; 8] = [0.25, 0.5, 0.5, 0.5, 0.75, 1.0, 1.5, 1.5];
    const NAMES: [&str; 8] = ["0", "0.5", "1", "1.5", "2", "3", "4", "6"];
    let all: u64 = numbers.codes.iter().sum();
    let density: Vec<f64> = numbers.codes.iter().zip(WIDTHS).map(|(n, w)| *n as f64 / w).collect();
    // The last code takes everything beyond it.
    let gap = (1..6).find(|i| density[*i] < 0.8 * density[i + 1] && numbers.codes[i + 1] > 200)?;
    let error = Error::input("codes with a gap")
        .expected(format!("{} at least as often as {}, by the width of each", NAMES[gap], NAMES[gap + 1]))
        .found(format!("{} and {} of {all}", numbers.codes[gap], numbers.codes[gap + 1]))
        .hint("small values flushed by a conversion, or codes of another format?");
    Some(warning(name, error))
}

fn experts(scans: &[Scan]) -> Vec<Expert<'_>> {
    let by_name: BTreeMap<&str, &Numbers> =
        scans.iter().filter_map(|s| Some((s.name.as_str(), s.numbers.as_ref()?))).collect();
    let gates = by_name.iter().filter_map(|(name, gate)| Some((name.strip_suffix(".w1")?, *gate)));
    gates
        .filter(|(name, gate)| name.contains(".ffn.") && !gate.columns.is_empty())
        .filter_map(|(name, gate)| {
            let down = *by_name.get(format!("{name}.w2").as_str())?;
            let up = *by_name.get(format!("{name}.w3").as_str())?;
            Some(Expert { name, gate, down, up, is_packed: gate.codes.iter().any(|n| *n > 0) })
        })
        .collect()
}

/// The sign of an up row is free (down's column takes it back), that of a gate row isn't: gates of a trained model share a
/// direction, up rows don't. Where it is the other way round the two were exchanged. All of a layer, else single experts.
fn gate_and_up(experts: &[Expert<'_>]) -> Vec<Finding> {
    let Some(cols) = experts.first().map(|e| e.gate.columns.len() as f64) else { return Vec::new() };
    let finding = |name: &str, (gate, up): (f64, f64)| {
        let error = Error::input("gate and up look exchanged")
            .expected("rows of w1 that share a direction more than those of w3")
            .found(format!("w1 {gate:.2}, w3 {up:.2} times chance"))
            .hint("is w1 (gate_proj) stored as w3 (up_proj)?");
        warning(name, error)
    };
    // Chance has mean 1 and variance 2 / cols, for each of the two.
    let is_sure = |gate: f64, up: f64, n: f64| up - gate > (SURE * (4.0 / cols / n).sqrt()).max(0.2);
    let all: Vec<(f64, f64)> = experts.iter().map(|e| (e.gate.common_direction(), e.up.common_direction())).collect();
    let n = all.len() as f64;
    let mean = (all.iter().map(|p| p.0).sum::<f64>() / n, all.iter().map(|p| p.1).sum::<f64>() / n);
    let each = experts.iter().zip(&all).filter(|(_, (gate, up))| is_sure(*gate, *up, 1.0));
    let each: Vec<Finding> = each.map(|(e, pair)| finding(e.name, *pair)).collect();
    if is_sure(mean.0, mean.1, n) && 2 * each.len() >= experts.len() {
        return vec![finding(&format!("{}.ffn", layer(experts[0].name)), mean)];
    }
    each
}

/// In which order the 32 columns of a block may have been packed.
type Order = fn(usize) -> usize;

/// Where column `i` of a block would be, were its codes in another order.
const ORDERS: [(&str, Order); 3] = [
    ("the two codes of every byte exchanged", |i| i ^ 1),
    ("pairs of a block taken for halves", |i| if i % 2 == 0 { i / 2 } else { 16 + i / 2 }),
    ("halves of a block taken for pairs", |i| if i < 16 { 2 * i } else { 2 * (i - 16) + 1 }),
];

/// Routed experts read the channels that the shared expert reads, and their down projection reads what their own gate and
/// up write: energies by channel agree in a trained model. Codes packed in another order agree better when they are put
/// back.
fn channels<'a>(experts: &[Expert<'a>]) -> Vec<Finding> {
    let Some(shared) = experts.iter().find(|e| e.name.contains(".shared_experts")) else { return Vec::new() };
    let log = |values: Vec<f64>| values.into_iter().map(|v| (v + 1e-30).ln()).collect::<Vec<f64>>();
    let both = |a: &[f64], b: &[f64]| log(a.iter().zip(b).map(|(a, b)| a + b).collect());
    let read = both(&shared.gate.columns, &shared.up.columns);
    let mut out = Vec::new();
    let of_matrix = |what: &str, columns: fn(&Expert<'a>) -> &'a [f64], other: &dyn Fn(&Expert<'a>) -> Vec<f64>| {
        let routed: Vec<&Expert<'a>> =
            experts.iter().filter(|e| e.is_packed && columns(e).len().is_multiple_of(32)).collect();
        let width = routed.first().map_or(0, |e| columns(e).len());
        if width == 0 {
            return None;
        }
        let mut sums = [0.0; 4];
        for expert in &routed {
            let (mine, other) = (log(columns(expert).to_vec()), other(expert));
            sums[0] += correlation(&mine, &other);
            for (sum, (_, order)) in sums[1..].iter_mut().zip(ORDERS) {
                let put_back: Vec<f64> = (0..width).map(|c| mine[c / 32 * 32 + order(c % 32)]).collect();
                *sum += correlation(&put_back, &other);
            }
        }
        let n = routed.len() as f64;
        let sure = SURE * (2.0 / (width as f64 * n)).sqrt();
        let best = (1..4).max_by(|a, b| sums[*a].total_cmp(&sums[*b]))?;
        ((sums[best] - sums[0]) / n > sure.max(0.1)).then(|| {
            let error = Error::input("packed codes look to be in another order")
                .expected("channels that agree with those of the matrices around")
                .found(format!("correlation {:.2}, and {:.2} with {}", sums[0] / n, sums[best] / n, ORDERS[best - 1].0))
                .hint("which nibble holds the even column? (the low one, spec 4)");
            warning(&format!("{}.ffn.experts.*.{what}", layer(routed[0].name)), error)
        })
    };
    out.extend(of_matrix("w1", |e| &e.gate.columns, &|_| read.clone()));
    out.extend(of_matrix("w3", |e| &e.up.columns, &|_| read.clone()));
    out.extend(of_matrix("w2", |e| &e.down.columns, &|e| both(&e.gate.rows, &e.up.rows)));
    out
}

/// Correlation of two rows of numbers; 0 where one of them is constant or they are of different lengths.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    if a.len() != b.len() {
        return 0.0;
    }
    let (ma, mb) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x - ma, y - mb);
        (ab, aa, bb) = (ab + x * y, aa + x * x, bb + y * y);
    }
    let product = (aa * bb).sqrt();
    if product > 0.0 { ab / product } else { 0.0 }
}

#[cfg(test)]
mod tests;

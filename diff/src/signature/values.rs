//! Signatures that look at values one by one.

use super::{FITS, Seen, Tested};

/// A constant this near to the gain explains it.
const NEAR: f64 = 0.02;
/// A format with a mantissa this much shorter is another format.
const COARSER: u32 = 2;
/// Share of values that must lie on the coarser grid.
const ON_GRID: f64 = 0.995;
/// So many values at an extreme are a clamp, not a maximum.
const CLAMPED: usize = 3;

/// Values that are exactly 0 where golden's are not.
pub(super) fn zeros(seen: &Seen<'_>) -> Tested {
    let share = seen.share(|x, y| y == 0.0 && x != 0.0);
    Tested::of("zeros", share, true, || {
        let (zero, all) = seen.pairs().fold((0, 0), |(z, n), (x, y)| (z + u64::from(y == 0.0 && x != 0.0), n + 1));
        format!("zeros: {:.0} % of the values are 0 where golden's are not", 100.0 * zero as f64 / all.max(1) as f64)
    })
}

/// One factor on everything, and the constant of the config that it is.
pub(super) fn gain(seen: &Seen<'_>) -> Tested {
    let (mut xx, mut xy) = (0.0, 0.0);
    for (x, y) in seen.pairs().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        xx += x * x;
        xy += x * y;
    }
    if xx == 0.0 {
        return Tested::no("gain");
    }
    let gain = xy / xx;
    let left: f64 = seen.pairs().filter(|(x, _)| x.is_finite()).map(|(x, y)| (y - gain * x).powi(2)).sum();
    Tested::of("gain", 1.0 - left / seen.dd, (gain - 1.0).abs() > 1e-3, || {
        let near = |v: f64| v != 0.0 && (gain / v - 1.0).abs() < NEAR;
        let times = |(name, value): &(&str, f64)| {
            let form = [(*value, ""), (1.0 / value, "1/"), (value * value, "twice "), (-value, "-")];
            form.into_iter().find(|(v, _)| near(*v)).map(|(_, how)| format!("{how}{name}"))
        };
        let named: Vec<String> = seen.rows.constants.iter().filter(|(_, v)| *v != 1.0).filter_map(times).collect();
        match named.as_slice() {
            [] => format!("a constant gain of {gain:.4}: no constant of the config is near it"),
            names => format!("a constant gain of {gain:.4}: {}", names.join(" or ")),
        }
    })
}

/// Mantissa bits of a finite f32 that are not all zero at the end.
fn mantissa(v: f64) -> u32 {
    let bits = (v as f32).to_bits() & 0x7f_ffff;
    if bits == 0 { 0 } else { 23 - bits.trailing_zeros() }
}

/// Values that lie on the grid of a format with fewer mantissa bits than the tap's own, as golden's rounded to it do.
pub(super) fn grid(seen: &Seen<'_>) -> Tested {
    let values = || seen.pairs().filter(|(_, y)| y.is_finite() && *y != 0.0);
    let all = values().count() as f64;
    let share_on = |bits: u32| values().filter(|(_, y)| mantissa(*y) <= bits).count() as f64 / all;
    let most = seen.rows.mantissa.saturating_sub(COARSER);
    let Some(bits) = (all >= 64.0).then(|| (0..=most).find(|bits| share_on(*bits) >= ON_GRID)).flatten() else {
        return Tested::no("coarser grid");
    };
    // Rounding to nearest is off by half a step at most: elements that are, by squares.
    let step = |v: f64| 2f64.powi(v.abs().log2().floor() as i32 - bits as i32);
    let share = seen.share(|x, y| (y - x).abs() <= 0.5 * step(if y == 0.0 { x } else { y }) * (1.0 + 1e-6));
    let own = seen.rows.mantissa;
    Tested::of("coarser grid", share, true, || {
        format!("a coarser grid: values have {bits} mantissa bits, the tap's own format has {own}")
    })
}

/// Golden stops at a limit and the candidate does not.
pub(super) fn clamp_missing(seen: &Seen<'_>) -> Tested {
    let (sides, share) = beyond(seen, |x, y| (x, y));
    Tested::of("clamp missing", share, !sides.is_empty(), || format!("a clamp is missing: {sides}"))
}

/// The candidate stops at a limit and golden does not.
pub(super) fn clamp_added(seen: &Seen<'_>) -> Tested {
    let (sides, share) = beyond(seen, |x, y| (y, x));
    Tested::of("clamp", share, !sides.is_empty(), || format!("values are clamped that golden does not clamp: {sides}"))
}

/// Where the first of each pair sits at its own extreme and the second lies beyond: sides in words, share of ‖d‖².
fn beyond(seen: &Seen<'_>, order: impl Fn(f64, f64) -> (f64, f64)) -> (String, f64) {
    let pairs = || seen.pairs().map(|(x, y)| order(x, y));
    let (mut top, mut bottom) = (f64::NEG_INFINITY, f64::INFINITY);
    for (a, _) in pairs().filter(|(a, _)| a.is_finite()) {
        top = top.max(a);
        bottom = bottom.min(a);
    }
    let side = |at: f64, is_past: &dyn Fn(f64) -> bool| {
        let held = pairs().filter(|(a, b)| *a == at && is_past(*b));
        let (n, dd) = held.fold((0, 0.0), |(n, dd), (a, b)| (n + 1, dd + (b - a) * (b - a)));
        if n >= CLAMPED { dd / seen.dd } else { 0.0 }
    };
    let (over, under) = (side(top, &|b| b > top), side(bottom, &|b| b < bottom));
    let mut words = Vec::new();
    if over > 1.0 - FITS {
        words.push(format!("over {top}"));
    }
    if under > 1.0 - FITS {
        words.push(format!("under {bottom}"));
    }
    (words.join(" and "), over + under)
}

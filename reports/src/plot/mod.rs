//! Plots as SVG by plotters. A colour stands for a name of the style sheet, which gives it one for light and one for dark.

mod by_layer;
mod heat;
mod ladder;

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

pub(crate) use by_layer::by_layer;
pub(crate) use heat::heat;
pub(crate) use ladder::ladder;

/// A plot that is drawn on.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const INK: RGBColor = RGBColor(0, 0, 1);
const SOFT: RGBColor = RGBColor(0, 0, 2);
const GRID: RGBColor = RGBColor(0, 0, 3);
const INHERITED: RGBColor = RGBColor(0, 0, 4);
const INJECTED: RGBColor = RGBColor(0, 0, 5);
const BAND: RGBColor = RGBColor(0, 0, 6);
const FLOOR: RGBColor = RGBColor(0, 0, 7);
const RING: RGBColor = RGBColor(0, 0, 8);
const PAPER: RGBColor = RGBColor(0, 0, 9);

/// Field of the map by heat, 0 to 4.
fn heat_colour(level: u8) -> RGBColor {
    RGBColor(0, 0, 0x11 + level.min(4))
}

/// A plot of this size; nothing when it can't be drawn.
fn plot(label: &str, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area).ok()?;
        area.present().ok()?;
    }
    let start = format!("<svg class=\"plot\" role=\"img\" aria-label=\"{}\" ", crate::text::xml(label, 200));
    Some(svg.replacen("<svg ", &start, 1))
}

/// The decimal logarithm of what can be drawn on such an axis.
fn log(v: Option<f64>) -> Option<f64> {
    v.filter(|v| v.is_finite() && *v > 0.0).map(f64::log10)
}

/// Whole decades around all values; nothing without values.
fn decades(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    (low <= high).then(|| (low.floor(), high.ceil().max(low.floor() + 1.0)))
}

/// Label of a whole decade.
fn decade(v: f64) -> String {
    if (v - v.round()).abs() < 1e-9 { format!("1e{v:.0}") } else { String::new() }
}

/// Label of the thing at a whole number of an axis.
fn nth(v: f64, names: &[&str]) -> String {
    let at = v.round();
    let is_whole = (v - at).abs() < 1e-9 && at >= 0.0;
    if is_whole { names.get(at as usize).map_or(String::new(), |n| crate::text::clean(n, 24)) } else { String::new() }
}

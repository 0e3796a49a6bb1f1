//! Inherited and injected error along depth, with the band of what is expected and the floor.

use plotters::prelude::*;

use super::{BAND, Drawn, FLOOR, GRID, INHERITED, INJECTED, INK, SOFT, decade, decades, log, nth, plot};
use crate::facts::Layer;

/// Nothing when no layer has a number.
pub(crate) fn by_layer(layers: &[Layer<'_>]) -> Option<String> {
    let series = |f: fn(&Layer<'_>) -> Option<f64>| -> Vec<(f64, f64)> {
        layers.iter().enumerate().filter_map(|(i, l)| Some((i as f64, log(f(l))?))).collect()
    };
    // Predicted, allowed and floor are in the gate's unit: drawn where that is the unit of the lines.
    let inherited = series(|l| l.out?.inherited);
    let injected = series(|l| l.out?.injected);
    let floor = series(|l| l.floor().filter(|v| *v > 0.0));
    let band: Vec<(f64, f64, f64)> = layers
        .iter()
        .enumerate()
        .filter_map(|(i, l)| {
            let (predicted, allowed) = l.band()?;
            Some((i as f64, log(Some(predicted))?, log(Some(allowed))?))
        })
        .collect();
    let all = [&inherited, &injected, &floor].into_iter().flatten().map(|p| p.1);
    let (low, high) = decades(all.chain(band.iter().flat_map(|b| [b.1, b.2])))?;
    let names: Vec<&str> = layers.iter().map(|l| l.name).collect();
    plot("Error by layer: inherited, injected, predicted to allowed, floor", (960, 340), |area| -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(52)
            .build_cartesian_2d(-0.5..(layers.len() as f64 - 0.5), low..high)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(SOFT)
            .x_labels(layers.len().min(24))
            .y_labels((high - low) as usize + 1)
            .x_label_formatter(&|v| nth(*v, &names))
            .y_label_formatter(&|v| decade(*v))
            .label_style(("sans-serif", 15).into_font().color(&INK))
            .x_desc("layer")
            .axis_desc_style(("sans-serif", 15).into_font().color(&SOFT))
            .draw()?;
        let edge: Vec<(f64, f64)> =
            band.iter().map(|b| (b.0, b.1)).chain(band.iter().rev().map(|b| (b.0, b.2))).collect();
        if band.len() > 1 {
            chart.draw_series(std::iter::once(Polygon::new(edge, BAND.filled())))?;
        }
        for (line, colour) in [(floor, FLOOR), (inherited, INHERITED), (injected, INJECTED)] {
            chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?;
            chart.draw_series(line.into_iter().map(|at| Circle::new(at, 3, colour.filled())))?;
        }
        Ok(())
    })
}

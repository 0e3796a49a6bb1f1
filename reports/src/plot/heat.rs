//! Layer by position: changed decisions as fields, largest errors as rings.

use plotters::prelude::*;

use super::{Drawn, INK, PAPER, RING, SOFT, heat_colour, nth, plot};
use crate::facts::Heat;

/// Height of a layer's line, pixels.
const LINE: u32 = 18;

/// The map as a plot.
pub(crate) fn heat(heat: &Heat<'_>) -> Option<String> {
    let (columns, lines) = (heat.columns as f64, heat.layers.len() as f64);
    let most = (heat.most().max(1) as f64).ln_1p();
    // Many layers share the height that is there.
    let height = (LINE * heat.layers.len() as u32).clamp(60, 900) + 74;
    plot("Layer by position: changed decisions and largest errors", (960, height), |area| -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..columns, (lines - 0.5)..-0.5)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(SOFT)
            .x_labels(9)
            .y_labels(heat.layers.len().min(50))
            .x_label_formatter(&|v| format!("{:.0}", v * heat.step as f64))
            .y_label_formatter(&|v| nth(*v, &heat.layers))
            .label_style(("sans-serif", 15).into_font().color(&INK))
            .x_desc("position")
            .axis_desc_style(("sans-serif", 15).into_font().color(&SOFT))
            .draw()?;
        chart.draw_series(heat.changed.iter().map(|((layer, column), n)| {
            let level = (5.0 * (*n as f64).ln_1p() / most).ceil() as u8;
            let (x, y) = (*column as f64, *layer as f64);
            Rectangle::new([(x, y - 0.45), (x + 1.0, y + 0.45)], heat_colour(level.max(1) - 1).filled())
        }))?;
        // In the middle of its field; on paper, so that it is seen on a dark one.
        for (colour, width) in [(PAPER, 6), (RING, 2)] {
            chart.draw_series(heat.worst.iter().filter_map(|(layer, row)| {
                let x = (row.max_abs_position? / heat.step) as f64 + 0.5;
                Some(Circle::new((x, *layer as f64), 5, colour.stroke_width(width)))
            }))?;
        }
        Ok(())
    })
}

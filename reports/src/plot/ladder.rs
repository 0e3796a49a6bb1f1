//! KL by patch set: median, 90 %, 99 %, largest and mean on a logarithmic axis.

use plotters::prelude::*;

use super::{Drawn, GRID, INJECTED, INK, RING, SOFT, decade, decades, log, nth, plot};
use crate::facts::Rung;

/// Patch sets that are drawn.
const MOST: usize = 40;

/// Nothing when no KL is above zero.
pub(crate) fn ladder(rungs: &[Rung<'_>]) -> Option<String> {
    let rungs = &rungs[..rungs.len().min(MOST)];
    let values =
        |r: &Rung<'_>| r.quantiles.into_iter().chain([r.mean]).filter_map(|v| log(Some(v))).collect::<Vec<_>>();
    let (low, high) = decades(rungs.iter().flat_map(values))?;
    let names: Vec<&str> = rungs.iter().map(|r| r.set).collect();
    let height = 26 * rungs.len() as u32 + 84;
    plot("KL by patch set: median, 90 %, 99 %, largest, mean", (960, height), |area| -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(190)
            .build_cartesian_2d(low..high, (rungs.len() as f64 - 0.5)..-0.5)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(SOFT)
            .x_labels((high - low) as usize + 1)
            .y_labels(rungs.len())
            .x_label_formatter(&|v| decade(*v))
            .y_label_formatter(&|v| nth(*v, &names))
            .label_style(("sans-serif", 15).into_font().color(&INK))
            .x_desc("KL, nats")
            .axis_desc_style(("sans-serif", 15).into_font().color(&SOFT))
            .draw()?;
        for (i, rung) in rungs.iter().enumerate() {
            let y = i as f64;
            let points: Vec<(f64, f64)> = rung.quantiles.iter().filter_map(|v| Some((log(Some(*v))?, y))).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), INJECTED.stroke_width(2)))?;
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 4, INJECTED.filled())))?;
            let mean = log(Some(rung.mean)).map(|x| Circle::new((x, y), 6, RING.stroke_width(2)));
            chart.draw_series(mean)?;
        }
        Ok(())
    })
}

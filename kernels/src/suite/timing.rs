//! Medians of graph replays, and the device's own ceilings.

use crate::cuda::{CopyRate, Device, Graph, MmaRate};
use karat_model::Result;

use super::Suite;

/// Replays of a graph.
const REPLAYS: usize = 15;

/// Median microseconds of one of the `count` executions that `body` queues, each with its own inputs.
pub(super) fn median(device: &Device, count: usize, body: impl Fn(usize) -> Result<()>) -> Result<f64> {
    let graph = device.record(|| (0..count).try_for_each(&body))?;
    device.time(&graph, 2)?;
    of_replays(device, &graph, count, REPLAYS)
}

/// The same of `replays` replays, after one: for what takes long.
pub(super) fn repeated(
    device: &Device,
    count: usize,
    replays: usize,
    body: &dyn Fn(usize) -> Result<()>,
) -> Result<f64> {
    let graph = device.record(|| (0..count).try_for_each(body))?;
    of_replays(device, &graph, count, replays)
}

fn of_replays(device: &Device, graph: &Graph, count: usize, replays: usize) -> Result<f64> {
    let mut ms = device.time(graph, replays)?;
    ms.sort_by(f64::total_cmp);
    Ok(ms[ms.len() / 2] * 1e3 / count as f64)
}

/// Copy bandwidth and the rate of mma.sync.
pub(super) fn ceilings(suite: &mut Suite) -> Result<()> {
    let device = &suite.device;
    let loaded = suite.loader.load(device, "ceiling")?;
    let bytes = 2_usize << 30;
    let (from, to) = (device.alloc(bytes, 0x3c)?, device.alloc(bytes, 0)?);
    let copy = CopyRate::new(&loaded)?;
    let us = median(device, 2, |_| copy.run(device, &from, &to))?;
    let copied = 2.0 * bytes as f64 / us / 1e6;
    let sink = device.alloc(4 * 1024 * 1024, 0)?;
    let mma = MmaRate::new(&loaded)?;
    let operations = mma.run(device, &sink, 32_768)?;
    let us = median(device, 1, |_| mma.run(device, &sink, 32_768).map(drop))?;
    let rate = operations as f64 / us / 1e6;
    suite.evidence.ceilings.insert("copy_tb_s".to_string(), copied);
    suite.evidence.ceilings.insert("mma_tflop_s".to_string(), rate);
    Ok(())
}

//! Times of the naive counterparts, between ours and the peers', and bounded: they are written to be plainly right, and at large
//! shapes one launch would take seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use karat_model::Result;

use super::timing::repeated;
use crate::cuda::Device;
use crate::evidence::NaiveSpeed;

/// Milliseconds: a counterpart whose one launch takes longer is not timed, and a median is made of no more than fit in.
const LIMIT: f64 = 300.0;
/// All of them together, seconds.
const TOTAL: u64 = 60;
/// Least milliseconds that a launch is predicted to take for not being tried at all: a prediction from a shape that didn't fill the
/// device is too high, by a few times at most.
const NOT_TRIED: f64 = 4.0 * LIMIT;

/// One operation of a counterpart at a shape.
pub(super) struct Shape<'a> {
    /// Image.
    pub(super) image: &'a str,
    /// Which of its operations: shapes of one are predicted from each other.
    pub(super) operation: &'a str,
    /// In words.
    pub(super) words: &'a str,
    /// What its time grows with: multiplications and additions, or comparisons.
    pub(super) work: f64,
    /// Executions in a recording, each with its own inputs.
    pub(super) count: usize,
}

/// What the counterparts have taken so far.
#[derive(Default)]
pub(super) struct Counterparts {
    /// By image and operation: milliseconds of a launch, its work, its shape.
    seen: BTreeMap<String, (f64, f64, String)>,
    spent: Duration,
}

impl Counterparts {
    /// Fills `slot`: nothing in it yet, the first measurement; else the second one, unless the first was skipped. `body` queues the
    /// i-th execution. A counterpart that cannot run is skipped for that: what was measured of the kernel stands without it.
    pub(super) fn time(
        &mut self,
        device: &Device,
        slot: &mut Option<NaiveSpeed>,
        shape: &Shape<'_>,
        body: impl Fn(usize) -> Result<()>,
    ) {
        let start = Instant::now();
        let found = match slot.take() {
            None => self.first(device, shape, &body),
            Some(first) => again(device, first, shape.count, &body),
        };
        let failed = |e| NaiveSpeed { skipped: Some(format!("it failed: {e}")), ..NaiveSpeed::of(shape.image) };
        *slot = Some(found.unwrap_or_else(failed));
        self.spent += start.elapsed();
    }

    fn first(&mut self, device: &Device, shape: &Shape<'_>, body: &dyn Fn(usize) -> Result<()>) -> Result<NaiveSpeed> {
        let skipped = |why| NaiveSpeed { skipped: Some(why), ..NaiveSpeed::of(shape.image) };
        if let Some(why) = self.refuses(shape) {
            return Ok(skipped(why));
        }
        // One launch by the clock of this process: it says how many there is time for.
        let one = device.record(|| body(0))?;
        let start = Instant::now();
        device.time(&one, 0)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if let Some(why) = self.saw(shape, ms) {
            return Ok(skipped(why));
        }
        let (count, replays) = plan(ms, shape.count);
        let us = repeated(device, count, replays, body)?;
        self.saw(shape, us / 1e3);
        Ok(NaiveSpeed { us: Some(us), executions: (count * replays) as u64, ..NaiveSpeed::of(shape.image) })
    }

    /// Why a shape isn't tried: no time is left, or a shape before it says that it takes far too long.
    fn refuses(&self, shape: &Shape<'_>) -> Option<String> {
        if self.spent.as_secs() >= TOTAL {
            return Some(format!("naive counterparts had their {TOTAL} s of this run"));
        }
        let (ms, work, words) = self.seen.get(&key(shape))?;
        let predicted = ms * shape.work / work;
        (predicted > NOT_TRIED)
            .then(|| format!("one launch would take about {predicted:.0} ms, by the {ms:.1} ms of {words}"))
    }

    /// Keeps what a launch took; why that is too long.
    fn saw(&mut self, shape: &Shape<'_>, ms: f64) -> Option<String> {
        self.seen.insert(key(shape), (ms, shape.work, shape.words.to_string()));
        (ms > LIMIT).then(|| format!("one launch took {ms:.0} ms, more than {LIMIT:.0} ms"))
    }
}

fn key(shape: &Shape<'_>) -> String {
    format!("{} {}", shape.image, shape.operation)
}

fn again(device: &Device, first: NaiveSpeed, most: usize, body: &dyn Fn(usize) -> Result<()>) -> Result<NaiveSpeed> {
    let Some(us) = first.us else { return Ok(first) };
    let (count, replays) = plan(us / 1e3, most);
    Ok(NaiveSpeed { us_again: Some(repeated(device, count, replays, body)?), ..first })
}

/// Executions of a recording and how often it is replayed, where one takes `ms`: as many as fit into the limit, `most` and 15 at
/// most, and at least one.
fn plan(ms: f64, most: usize) -> (usize, usize) {
    let fit = (LIMIT / ms.max(1e-3)) as usize;
    let count = fit.clamp(1, most.max(1));
    (count, (fit / count).clamp(1, 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(words: &'static str, work: f64) -> Shape<'static> {
        Shape { image: "naive", operation: "sums", words, work, count: 16 }
    }

    #[test]
    fn as_much_is_timed_as_there_is_time_for() {
        // 0.05 ms: all 16, 15 times, is 12 ms. 10 ms: 30 fit, 16 once. 100 ms: three. 299 ms: one.
        for (ms, wanted) in [(0.05, (16, 15)), (10.0, (16, 1)), (100.0, (3, 1)), (299.0, (1, 1)), (0.0, (16, 15))] {
            assert_eq!(plan(ms, 16), wanted, "{ms} ms");
        }
        assert_eq!(plan(10.0, 2), (2, 15));
        assert_eq!(plan(f64::INFINITY, 0), (1, 1));
    }

    #[test]
    fn a_shape_that_would_take_too_long_is_not_tried_and_says_why() {
        let mut it = Counterparts::default();
        assert_eq!(it.refuses(&shape("the first", 1e12)), None, "nothing is known yet");
        assert_eq!(it.saw(&shape("1 token", 1e9), 10.0), None);
        // 100 times the work: a second, which may be a tenth of it; 200 times: two.
        assert_eq!(it.refuses(&shape("100 tokens", 1e11)), None);
        let why = it.refuses(&shape("200 tokens", 2e11)).unwrap();
        assert!(why.contains("about 2000 ms") && why.contains("10.0 ms of 1 token"), "{why}");
        let why = it.saw(&shape("100 tokens", 1e11), 301.0).unwrap();
        assert!(why.contains("took 301 ms"), "{why}");
        // Another operation of the image says nothing of this one.
        assert_eq!(it.refuses(&Shape { operation: "other", ..shape("x", 1e15) }), None);
        it.spent = Duration::from_secs(TOTAL);
        assert!(it.refuses(&shape("1 token", 1.0)).unwrap().contains("60 s"));
    }
}

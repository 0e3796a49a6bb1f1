//! 10^5 rows of taps render in under two seconds to under 5 MB; the other formats keep their limits.

use std::time::SystemTime;

use super::fixture::large;

/// Seconds that this thread has computed: what else the machine does is no matter of the page's. Where the system doesn't
/// say, the clock.
fn busy() -> f64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = said.and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    nanoseconds.map_or_else(clock, |n| n / 1e9)
}

#[test]
fn a_hundred_thousand_rows_fit() {
    let bundle = large();
    assert!(bundle.taps.len() >= 100_000, "{} rows", bundle.taps.len());
    let start = busy();
    let html = crate::html(&bundle);
    let took = busy() - start;
    assert!(html.len() < 5_000_000, "{} bytes", html.len());
    assert!(took < 2.0, "{took} s");
    assert!(html.contains("attn.tap-40") && html.contains("layer-42"), "no layer and no tap is missing");
    assert!(crate::step_summary(&bundle).len() < 1 << 20, "GitHub cuts a summary at 1 MiB");
    let annotations = crate::annotations(&bundle);
    for kind in ["::error ", "::warning ", "::notice "] {
        assert!(annotations.lines().filter(|l| l.starts_with(kind)).count() <= 10, "{annotations}");
    }
}

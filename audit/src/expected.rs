//! Which verdict each patch is expected to get under the default policy: a committed table, so that nobody argues later
//! what "benign" meant.

use karat_bundle::Verdict;

/// `patch,profile,verdict,why`, one line a patch and profile.
const TABLE: &str = include_str!("expected.csv");

/// The verdict that the committed table expects of a patch on a stock profile; `None` where it has no line.
pub fn expected_verdict(patch: &str, profile: &str) -> Option<Verdict> {
    lines().find(|line| line[..2] == [patch, profile]).and_then(|line| Verdict::from_name(line[2]))
}

/// Why the table expects it.
pub fn expected_because(patch: &str, profile: &str) -> Option<&'static str> {
    lines().find(|line| line[..2] == [patch, profile]).map(|line| line[3])
}

fn lines() -> impl Iterator<Item = [&'static str; 4]> {
    TABLE.lines().skip(1).filter_map(|line| {
        let mut cells = line.splitn(4, ',');
        Some([cells.next()?, cells.next()?, cells.next()?, cells.next()?])
    })
}

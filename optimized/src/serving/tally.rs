//! What an engine did, counted where it does it: a random history is worth what happened in it.

/// Counts of an engine so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that a client left while they had pages.
    pub aborts: usize,
    /// Requests that lost their pages, by command or because another needed them.
    pub evictions: usize,
    /// Requests that got a place again after an abort or an eviction.
    pub resumes: usize,
    /// Requests that moved to another instance.
    pub transfers: usize,
    /// Forward calls of a request whose drafts were all right.
    pub accepted: usize,
    /// Forward calls of a request after which a wrong draft was rolled back.
    pub rollbacks: usize,
    /// Forward calls that replayed a captured graph.
    pub replays: usize,
    /// Those of them with padding rows.
    pub padded: usize,
    /// Requests that found a prefix in the cache.
    pub hits: usize,
    /// Forward calls with rows of both phases.
    pub mixed: usize,
}

impl Tally {
    /// Every count with its name.
    pub fn all(&self) -> [(&'static str, usize); 10] {
        [
            ("abort", self.aborts),
            ("evict", self.evictions),
            ("resume", self.resumes),
            ("transfer", self.transfers),
            ("drafts accepted", self.accepted),
            ("drafts rolled back", self.rollbacks),
            ("graph replay", self.replays),
            ("padded replay", self.padded),
            ("prefix hit", self.hits),
            ("batch of both phases", self.mixed),
        ]
    }
}

//! The histories by name: scripts made from the requests alone.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use karat_model::{Error, Result};
use karat_seam::{Requests, Sequence, SpanKind};

use super::{Action, Geometry, Script, Setup, Work};

/// How sequences come to their final context on an engine with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Served {
    /// Alone, with empty pages: everything before the last generated span in one prefill, that span token by token.
    Cold,
    /// After a request that shares the beginning, whose pages are in the prefix cache.
    Warm,
    /// In prefill chunks that end in the middle of pages and compressor windows.
    Chunked,
    /// After a request that the client aborted, whose last tokens were others than those that came back as history.
    AfterAbort,
    /// With its pages taken away half way.
    AfterEvict,
    /// Begun on one instance and ended on another.
    AfterTransfer,
    /// Every generated span token by token.
    Decoded,
    /// Together with others in other phases, one of which shares the beginning.
    Batched,
    /// Decoded by captured graphs, in batches that shrink, with padding rows.
    GraphReplayed,
    /// Decoded with drafts that are verified, and rolled back where they are wrong.
    Speculative,
}

impl Served {
    /// Every history.
    pub const ALL: [Self; 10] = [
        Self::Cold,
        Self::Warm,
        Self::Chunked,
        Self::AfterAbort,
        Self::AfterEvict,
        Self::AfterTransfer,
        Self::Decoded,
        Self::Batched,
        Self::GraphReplayed,
        Self::Speculative,
    ];

    /// The word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Chunked => "chunked",
            Self::AfterAbort => "after-abort",
            Self::AfterEvict => "after-evict",
            Self::AfterTransfer => "after-transfer",
            Self::Decoded => "decoded",
            Self::Batched => "batched",
            Self::GraphReplayed => "graph-replayed",
            Self::Speculative => "speculative",
        }
    }

    /// The history of all sequences of the requests: each of them in turn, on one engine.
    pub fn script(self, requests: &Requests, geometry: Geometry, seed: u64) -> Script {
        let longest = requests.seqs.iter().map(|s| s.ids.len()).max().unwrap_or(1);
        let mut maker = Maker { history: self, geometry, works: Vec::new(), actions: Vec::new(), company: 0 };
        maker.company = requests.seqs.len() as u32;
        for (seq, sequence) in requests.seqs.iter().enumerate() {
            maker.add(seq as u32, sequence);
        }
        let chunk = match self {
            Self::Chunked => (geometry.page / 2).saturating_sub(1).max(1),
            Self::AfterEvict | Self::AfterTransfer => longest.div_ceil(3).max(1),
            Self::Batched => geometry.chunk().min(longest.div_ceil(2)),
            _ => geometry.chunk(),
        };
        let setup = Setup {
            geometry: Geometry { speculative: self == Self::Speculative, ..geometry },
            chunk,
            batch: if matches!(self, Self::Batched | Self::GraphReplayed | Self::AfterEvict) { 4 } else { 1 },
            // Room for a batch and some cached prefixes, so that old ones have to give way.
            pages: 4 * geometry.pages(longest) + 4,
            instances: 1 + u8::from(self == Self::AfterTransfer),
            cache: !matches!(self, Self::Cold | Self::Chunked | Self::Decoded),
            graphs: self == Self::GraphReplayed,
            seed,
        };
        Script { setup, works: maker.works, actions: maker.actions }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Served {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|h| h.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|h| h.name()).collect();
            Error::usage("unknown history").at("--histories").expected(names.join(", ")).found(text)
        })
    }
}

/// Generated spans of a sequence: all, or the last only.
fn generated(sequence: &Sequence, all: bool) -> Vec<Range<u32>> {
    let spans = sequence.spans().into_iter().filter(|s| s.kind == SpanKind::Generated && s.start < s.end);
    let spans: Vec<Range<u32>> = spans.map(|s| s.start..s.end).collect();
    if all { spans } else { spans.last().cloned().into_iter().collect() }
}

struct Maker {
    history: Served,
    geometry: Geometry,
    works: Vec<Work>,
    actions: Vec<Action>,
    /// Number of the next sequence that is nobody's.
    company: u32,
}

impl Maker {
    fn work(&mut self, work: Work) -> usize {
        self.works.push(work);
        self.works.len() - 1
    }

    /// A request of somebody else: the first `shared` ids of a sequence, then its ids backwards, `len` in all; the last
    /// `decoded` of them token by token.
    fn beside(&mut self, ids: &[u32], shared: usize, len: usize, decoded: usize) -> usize {
        let own = ids.iter().rev().cycle().copied();
        let ids: Arc<[u32]> = ids[..shared.min(ids.len())].iter().copied().chain(own).take(len.max(2)).collect();
        let len = ids.len() as u32;
        let seq = self.company;
        self.company += 1;
        let decode = std::iter::once(len.saturating_sub(decoded as u32).max(1)..len).collect();
        self.work(Work { seq, ids, decode, last: false, drafts: 0, guesses: Arc::default() })
    }

    fn add(&mut self, seq: u32, sequence: &Sequence) {
        let n = sequence.ids.len();
        let mut decode = generated(sequence, self.history == Served::Decoded);
        let decodes = matches!(
            self.history,
            Served::Decoded | Served::GraphReplayed | Served::Speculative | Served::AfterTransfer | Served::Batched
        );
        if decode.is_empty() && decodes {
            // A conversation without an answer: its last tokens stand for one.
            decode.push((n - n.div_ceil(3)) as u32..n as u32);
        }
        let drafts = if self.history == Served::Speculative { 3 } else { 0 };
        let answer = decode.last().map_or(n, |r| r.start as usize);
        let last = Work { seq, ids: sequence.ids.clone(), decode, last: true, drafts, guesses: Arc::default() };
        let ids = sequence.ids.clone();
        let page = self.geometry.page;
        match self.history {
            Served::Cold | Served::Chunked | Served::Decoded | Served::Speculative => {
                let last = self.work(last);
                self.actions.extend([Action::Submit(last), Action::Steps(2 * n)]);
            }
            Served::Warm => {
                // The conversation up to its last question, as an earlier turn left it.
                let cut = if answer < n { answer } else { n - n / 4 };
                let first = self.work(Work { ids: ids[..cut].into(), decode: Vec::new(), last: false, ..last.clone() });
                let last = self.work(last);
                self.actions.extend([Action::Submit(first), Action::Steps(2 * n), Action::Submit(last)]);
                self.actions.push(Action::Steps(2 * n));
            }
            Served::AfterAbort => {
                // Cut in the middle of the answer (or of the text); the last ids that the model generated are others than
                // those that the client's history comes back with.
                let cut = if answer < n { answer.midpoint(n) } else { n * 2 / 3 };
                let generated = cut.saturating_sub(3).max(1);
                let mut other: Vec<u32> = ids[..generated].to_vec();
                other.extend(ids[..n].iter().rev().take(page + 5));
                let decode = std::iter::once(generated as u32..other.len() as u32).collect();
                let aborted =
                    self.work(Work { seq, ids: other.into(), decode, last: false, drafts: 0, guesses: Arc::default() });
                let last = self.work(last);
                self.actions.extend([Action::Submit(aborted), Action::Steps(page / 2 + 4), Action::Abort(aborted)]);
                self.actions.extend([Action::Submit(last), Action::Steps(2 * n)]);
            }
            Served::AfterEvict => {
                let beside = self.beside(&ids, 0, n, n / 2);
                let last = self.work(last);
                self.actions.extend([Action::Submit(beside), Action::Submit(last), Action::Steps(3)]);
                self.actions.extend([Action::Evict(last), Action::Forget, Action::Steps(2 * n)]);
            }
            Served::AfterTransfer => {
                let steps = answer.div_ceil(n.div_ceil(3)) + (n - answer) / 2;
                let last = self.work(last);
                self.actions.extend([Action::Submit(last), Action::Steps(steps.max(1)), Action::Transfer(last)]);
                self.actions.push(Action::Steps(2 * n));
            }
            Served::Batched => {
                let shares = self.beside(&ids, n / 2, n / 2 + page / 2 + 3, 5);
                let decodes = self.beside(&ids, 0, n / 3 + 3, n / 4 + 1);
                let short = self.beside(&ids, 0, 3, 2);
                let last = self.work(last);
                self.actions.extend([Action::Submit(shares), Action::Submit(decodes), Action::Steps(3)]);
                self.actions.extend([Action::Submit(last), Action::Submit(short), Action::Steps(2 * n)]);
            }
            Served::GraphReplayed => {
                // Others that end at different times: batches of 4, 3, 2 and 1 rows in graphs of 4, 4, 2 and 1.
                let answer = n - answer;
                let (a, b, c) = (answer / 4 + 1, answer / 2 + 1, answer * 3 / 4 + 2);
                let others =
                    [self.beside(&ids, 0, a + 2, a), self.beside(&ids, 1, b + 3, b), self.beside(&ids, 2, c + 5, c)];
                let last = self.work(last);
                self.actions.extend(others.map(Action::Submit));
                self.actions.extend([Action::Submit(last), Action::Steps(2 * n)]);
            }
        }
    }
}

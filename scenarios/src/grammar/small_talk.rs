//! Small talk with a leading topic, and logs with a leading signal: what only a look at the whole can tell.

use super::marks::{Mark, mark};
use super::random::Random;
use super::talk::Talk;
use super::words::{QUALITIES, SIGNALS, TOPICS, VERBS};

/// Sentences whose nouns lean to one topic, counted.
pub struct SmallTalk {
    lead: usize,
    share: f64,
    counts: [usize; TOPICS.len()],
}

impl SmallTalk {
    /// Small talk of one conversation.
    pub fn new(r: &mut Random) -> Self {
        Self { lead: r.below(TOPICS.len()), share: 0.15 + 0.4 * r.below(100) as f64 / 100.0, counts: [0; TOPICS.len()] }
    }

    fn noun(&mut self, r: &mut Random) -> &'static str {
        let topic = if r.chance(self.share) { self.lead } else { r.below(TOPICS.len()) };
        self.counts[topic] += 1;
        let words = &TOPICS[topic].1;
        words[r.below(words.len())]
    }

    /// One sentence.
    pub fn sentence(&mut self, r: &mut Random) -> String {
        let (a, b) = (self.noun(r), self.noun(r));
        let (q, v) = (r.pick(&QUALITIES), r.pick(&VERBS));
        match r.below(3) {
            0 => format!("the {q} {a} {v} the {b}."),
            1 => format!("my {a} {v} a {q} {b}."),
            _ => format!("a {a} {v} the {q} {b}."),
        }
    }

    /// Several sentences.
    pub fn sentences(&mut self, r: &mut Random, n: usize) -> String {
        (0..n.max(1)).map(|_| self.sentence(r)).collect::<Vec<_>>().join(" ")
    }

    /// The topic with clearly the most nouns.
    pub fn leading(&self) -> Option<&'static str> {
        let mut order: Vec<usize> = (0..TOPICS.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.counts[i]));
        let (first, second) = (self.counts[order[0]], self.counts[order[1]]);
        let total: usize = self.counts.iter().sum();
        (first - second >= 4 && (first - second) * 12 >= total).then(|| TOPICS[order[0]].0)
    }
}

/// Logs of about `tokens` tokens in pieces, and after most pieces the question which signal they report most so far. The
/// lead is small on purpose: a sample of the lines cannot tell it, all of them can.
pub fn tally(t: &mut Talk, tokens: usize) {
    let lines = (tokens / 6).max(12);
    let lead = t.r.below(SIGNALS.len());
    let share = 0.06 + 0.25 * t.r.below(100) as f64 / 100.0;
    let most = (tokens / 200).clamp(1, 12);
    let pieces = t.r.between(1, most);
    let mut counts = [0_usize; SIGNALS.len()];
    for piece in 0..pieces {
        let n = lines / pieces;
        let mut drawn: Vec<usize> =
            (0..n).map(|_| if t.r.chance(share) { lead } else { t.r.below(SIGNALS.len()) }).collect();
        for &i in &drawn {
            counts[i] += 1;
        }
        // Turn some lines into the leading signal until it leads by 4 % of all lines, and by three.
        let total: usize = counts.iter().sum();
        for line in &mut drawn {
            let (first, second) = two_most(&counts);
            if counts[first] - counts[second] >= (total / 25).max(3) {
                break;
            }
            counts[*line] -= 1;
            *line = lead;
            counts[lead] += 1;
        }
        t.r.shuffle(&mut drawn);
        let text: String = drawn.iter().map(|&i| format!("unit {}: {}\n", t.r.below(10), SIGNALS[i])).collect();
        t.user(format!("log:\n{}", text.trim_end()));
        t.assistant("the user shows a log.", "i see.");
        let (first, second) = two_most(&counts);
        if counts[first] - counts[second] >= (total / 25).max(3) && (piece + 1 == pieces || t.r.chance(0.7)) {
            t.user("which signal did the log report most?");
            let said = mark(&format!(" {}", SIGNALS[first]), Mark::Answer { fact: 9998, kind: 5 });
            t.assistant("the user asks for the most common signal.", format!("most reports were{said}."));
        }
    }
}

/// The signals with the most and the second most lines.
fn two_most(counts: &[usize; SIGNALS.len()]) -> (usize, usize) {
    let mut order: Vec<usize> = (0..SIGNALS.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(counts[i]));
    (order[0], order[1])
}

//! Lost answers, judged as they come in: a test that may be looked at after every conversation, and stop there.
//!
//! Conversation i loses d = (lost - gained) / answers, from -1 to 1. While the true mean loss is m or more (given what came
//! before), every K = Π (1 + λ (m - d)) with 0 <= λ <= 1/(1 - m) is a nonnegative supermartingale that begins at 1, and so is
//! an average of several: by Ville's inequality it reaches 1/α with chance α at most, whenever one looks and however one
//! decides to stop. Where it does, a loss of m is ruled out. Mirrored, Π (1 + λ (d - m)) with λ <= 1/(1 + m) rules out
//! that the loss is m or less. Without a loss λ = 1/(1 - m) is the exact test of so many answers; smaller ones bear losses.

use super::Counts;

/// Chance of ruling out a loss that is there.
pub const ALPHA: f64 = 0.05;

/// λ over the largest, and its share in the average.
const BETS: [(f64, f64); 4] = [(1.0, 0.5), (0.5, 0.2), (0.25, 0.15), (0.1, 0.15)];

/// What the conversations so far decide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sequential {
    /// Mean of (lost - gained) / answers over conversations.
    pub mean: f64,
    /// The smallest loss that was ruled out at [`ALPHA`] at any look; 1 while none was.
    pub upper: f64,
    /// Chance of such losses, at the most telling look, if the true loss were the margin.
    pub p: f64,
    /// Conversations after which the margin was ruled out.
    pub proved_after: Option<u64>,
    /// Conversations after which more than the margin is lost for certain: the chance of it was under `delta`.
    pub broken_after: Option<u64>,
    /// Conversations with an answer.
    pub conversations: u64,
}

impl Sequential {
    /// Judges conversations in the order in which they ran.
    pub fn of(conversations: &[Counts], margin: f64, delta: f64) -> Self {
        let losses: Vec<f64> = conversations.iter().filter(|c| c.answers > 0).map(loss).collect();
        let reaches = |loss: f64| first_reaching(&losses, 1.0 / ALPHA, |d| (loss - d) / (1.0 - loss));
        let harm = |d: f64| (d - margin) / (1.0 + margin);
        let most = wealths(&losses, harm).fold(1.0, f64::max);
        let n = losses.len();
        Self {
            mean: losses.iter().sum::<f64>() / n as f64,
            upper: smallest(|loss| reaches(loss).is_some()),
            p: 1.0 / most,
            proved_after: reaches(margin),
            broken_after: first_reaching(&losses, 1.0 / delta, harm),
            conversations: n as u64,
        }
    }

    /// Conversations after which nothing more needed to run.
    pub fn decided_after(&self) -> Option<u64> {
        [self.proved_after, self.broken_after].into_iter().flatten().min()
    }
}

fn loss(c: &Counts) -> f64 {
    (c.lost as f64 - c.gained as f64) / c.answers as f64
}

/// The average wealth of all bets after each conversation; `gain` is what the whole stake gains.
fn wealths(losses: &[f64], gain: impl Fn(f64) -> f64) -> impl Iterator<Item = f64> {
    let mut held = BETS.map(|(_, share)| share);
    losses.iter().map(move |d| {
        let gain = gain(*d);
        held.iter_mut().zip(BETS).for_each(|(held, (stake, _))| *held *= (1.0 + stake * gain).max(0.0));
        held.iter().sum::<f64>()
    })
}

fn first_reaching(losses: &[f64], goal: f64, gain: impl Fn(f64) -> f64) -> Option<u64> {
    wealths(losses, gain).position(|wealth| wealth >= goal).map(|i| i as u64 + 1)
}

/// The smallest loss under 1 that is ruled out; a larger one is ruled out too.
fn smallest(is_ruled_out: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let mid = 0.5 * (low + high);
        if is_ruled_out(mid) { high = mid } else { low = mid }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(n: usize) -> Vec<Counts> {
        vec![Counts { answers: 1, lost: 0, gained: 0 }; n]
    }

    /// A generator of numbers (splitmix64).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn without_a_loss_it_takes_little_more_than_the_exact_test() {
        // By hand: the half that bets all grows by 1/0.99 each time, and 0.5 / 0.99^n is 20 at n = ln 40 / -ln 0.99.
        let n = Sequential::of(&clean(500), 0.01, 1e-3).proved_after.unwrap();
        let exact = (20f64.ln() / -0.99f64.ln()).ceil() as u64;
        let bound = (40f64.ln() / -0.99f64.ln()).ceil() as u64;
        assert_eq!((exact, bound), (299, 368));
        assert!((exact..=bound).contains(&n), "{n}");
        let before = Sequential::of(&clean(n as usize - 1), 0.01, 1e-3);
        assert_eq!((before.proved_after, before.decided_after()), (None, None));
        assert!(before.upper > 0.01 && Sequential::of(&clean(n as usize), 0.01, 1e-3).upper <= 0.01);
        assert_eq!(Sequential::of(&[], 0.01, 1e-3).upper, 1.0);
    }

    #[test]
    fn what_is_decided_stays_decided() {
        let mut all = clean(400);
        let decided = Sequential::of(&all, 0.01, 1e-3).decided_after();
        all.extend([Counts { answers: 1, lost: 1, gained: 0 }; 5]);
        assert_eq!(Sequential::of(&all, 0.01, 1e-3).decided_after(), decided);
    }

    #[test]
    fn many_losses_are_told_early() {
        let lost = vec![Counts { answers: 2, lost: 2, gained: 0 }; 40];
        let s = Sequential::of(&lost, 0.01, 1e-3);
        // Doubling with half the stake: 2^n / 2 >= 1000.
        assert!((10..=14).contains(&s.broken_after.unwrap()), "{s:?}");
        assert!(s.p < 1e-3 && s.upper == 1.0 && s.proved_after.is_none(), "{s:?}");
    }

    #[test]
    fn a_loss_of_the_margin_is_ruled_out_no_more_often_than_documented() {
        // Looked at after every one of 400 conversations, 2000 times over.
        let (runs, margin) = (2000, 0.05);
        let mut state = 7;
        let mut wrong = [0, 0];
        for _ in 0..runs {
            let lost = |state: &mut u64| u64::from(uniform(state) < margin);
            let all: Vec<Counts> = (0..400).map(|_| Counts { answers: 1, lost: lost(&mut state), gained: 0 }).collect();
            let losses: Vec<f64> = all.iter().map(loss).collect();
            wrong[0] += u64::from(first_reaching(&losses, 1.0 / ALPHA, |d| (margin - d) / (1.0 - margin)).is_some());
            wrong[1] += u64::from(first_reaching(&losses, 100.0, |d| (d - margin) / (1.0 + margin)).is_some());
        }
        // Three standard errors over 5 % and 1 % of the runs.
        assert!(wrong[0] <= 130 && wrong[1] <= 34, "{wrong:?}");
        assert!(wrong[0] > 0, "a test that never errs tells nothing");
    }
}

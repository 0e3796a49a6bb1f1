//! What an answer looks like when something is wrong with the model that gave it.

/// Looks of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// The same few tokens again and again.
    Repetition,
    /// An answer of a model that saw the last turn only.
    Amnesia,
    /// Tokens that golden would say at no such place.
    TokenSalad,
    /// Ended by a length limit, or by the end of what was recorded, before the answer was whole.
    Truncated,
    /// It reads well and is not what was told: the history is there, a value in it is lost or taken for another.
    WrongValue,
    /// The answer that was told.
    Fine,
}

impl Symptom {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repetition => "repetition",
            Self::Amnesia => "amnesia",
            Self::TokenSalad => "token salad",
            Self::Truncated => "truncated",
            Self::WrongValue => "wrong value",
            Self::Fine => "fine",
        }
    }
}

/// What is known of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Looks<'a> {
    /// Ids that the candidate says in the answering turn, in order.
    pub said: &'a [u32],
    /// Ids that should stand there.
    pub expected: &'a [u32],
    /// Golden's mean log-probability of what is said, nats.
    pub mean_log_prob: f64,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// The whole expected answer was given.
    pub right: bool,
    /// Nearness to golden without the history, 0 to 1.
    pub amnesia: Option<f64>,
    /// The answer is not whole.
    pub truncated: bool,
}

/// Nearer (in KL) to golden without the history than to golden with it, and nearer by half than golden with it is. A model
/// that saw the last turn only is at 1; a confident wrong value of the right kind, which golden without the history takes
/// for about as likely as nine others, lies at about 1/3.
const FORGOTTEN: f64 = 0.5;

/// The symptom. A right answer can still be a symptom of nothing but repetition behind it.
pub fn symptom(looks: &Looks<'_>) -> Symptom {
    if looks.truncated {
        Symptom::Truncated
    } else if repeats(looks.said) && !repeats(looks.expected) {
        Symptom::Repetition
    } else if looks.right {
        Symptom::Fine
    } else if looks.mean_log_prob < salad(looks.vocabulary) {
        Symptom::TokenSalad
    } else if looks.amnesia.is_some_and(|a| a > FORGOTTEN) {
        Symptom::Amnesia
    } else {
        Symptom::WrongValue
    }
}

/// Tokens drawn blindly have a mean log-probability under a sharp model far below that of a uniform one, -ln V; a fluent
/// wrong answer has a few unlikely tokens among likely ones.
fn salad(vocabulary: usize) -> f64 {
    -(vocabulary.max(2) as f64).ln()
}

/// True when most of a text is one cycle of at most eight tokens that comes four times in a row or more.
pub fn repeats(ids: &[u32]) -> bool {
    (1..=8).any(|period| {
        let mut run = 0;
        let mut longest = 0;
        for i in period..ids.len() {
            run = if ids[i] == ids[i - period] { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        let length = longest + period;
        longest > 0 && length >= 4 * period && 2 * length > ids.len()
    })
}

#[cfg(test)]
mod tests;

//! Answers as words: whether one says a value, and how far two are apart.

use std::collections::BTreeMap;

/// Words of a text: runs of letters and digits, in lower case. `tiny_tower.txt` and "tiny tower" begin alike.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
}

/// Which of the expected values stand in what was said. Each is looked for behind the one before: in a list of cities the
/// same city may be asked twice.
pub(crate) fn found(said: &[String], expected: &[Vec<String>]) -> Vec<bool> {
    let mut from = 0;
    let one = |value: &Vec<String>| {
        let at = said.get(from..)?.windows(value.len().max(1)).position(|w| w == value.as_slice())?;
        from += at + value.len();
        Some(())
    };
    expected.iter().map(one).map(|at| at.is_some()).collect()
}

/// Words as numbers, the same word the same one in all texts.
pub(crate) fn numbered(texts: &[&[String]]) -> Vec<Vec<u32>> {
    let mut known: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = |word: &String| {
        let next = known.len() as u32;
        *known.entry(word.clone()).or_insert(next)
    };
    texts.iter().map(|words| words.iter().map(&mut number).collect()).collect()
}

/// Words that are looked at when texts are compared.
const COMPARED: usize = 400;

/// 1 less the share of words that two texts have in common in the same order (2·LCS / (|a|+|b|)): 0 for equal texts, 1 for
/// texts without a common word. Of long texts the beginning counts.
pub(crate) fn distance(a: &[String], b: &[String]) -> f64 {
    let (a, b) = (&a[..a.len().min(COMPARED)], &b[..b.len().min(COMPARED)]);
    if a.is_empty() && b.is_empty() {
        return 0.0;
    }
    let mut row = vec![0_usize; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    1.0 - 2.0 * row[b.len()] as f64 / (a.len() + b.len()) as f64
}

/// Two answers of one server this near to each other can't tell what a third one is.
const TOLD_APART: f64 = 0.02;

/// Nearness of an answer to the one without the history, 0 to 1, as recall measures it on logits: d over d + distance from
/// the answer without history, where d is the distance from the answer with history as a cold prompt, or half of the
/// distance between these two if that is less. Over 0.5 the history is lost. `None` where the two are alike.
pub(crate) fn amnesia(said: &[String], cold: &[String], alone: &[String]) -> Option<f64> {
    let between = distance(alone, cold);
    if between < TOLD_APART {
        return None;
    }
    let near = distance(cold, said).min(between / 2.0);
    Some(near / (near + distance(alone, said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_as_words_each_behind_the_one_before() {
        let said = words("code of the harbor: K472\ncity of it: Rome; city of that: ROME. file tiny_tower.txt");
        let values = ["k472", "rome", "rome", "tiny tower"].map(words);
        assert_eq!(found(&said, &values), [true; 4]);
        assert_eq!(found(&words("K4721 romes"), &["k472", "rome"].map(words)), [false, false]);
        // A missing value takes nothing from those behind it.
        assert_eq!(found(&words("a c"), &["a", "b", "c"].map(words)), [true, false, true]);
        assert_eq!(found(&[], &[words("a")]), [false]);
    }

    #[test]
    fn distances_by_hand() {
        let d = |a: &str, b: &str| distance(&words(a), &words(b));
        assert_eq!(d("", ""), 0.0);
        assert_eq!(d("a b c", "a b c"), 0.0);
        assert_eq!(d("a b", "c d"), 1.0);
        // LCS of "the code is x" and "the code is y" is 3: 1 - 6/8.
        assert_eq!(d("the code is x", "the code is y"), 0.25);
    }

    #[test]
    fn an_answer_without_history_is_amnesia_and_a_wrong_value_is_not() {
        let w = |t: &str| words(t);
        let (cold, alone) = (w("the code is k1"), w("i do not know that"));
        assert_eq!(amnesia(&alone, &cold, &alone), Some(1.0));
        assert!(amnesia(&w("the code is k2"), &cold, &alone).is_some_and(|a| a < 0.5));
        assert_eq!(amnesia(&cold, &cold, &alone), Some(0.0));
        assert_eq!(amnesia(&w("x"), &cold, &cold), None);
        // Without history the model makes a value up, too: another made-up value is no amnesia.
        let alone = w("the code is k3");
        let near = amnesia(&w("the code is k2"), &cold, &alone).unwrap();
        assert!((near - 1.0 / 3.0).abs() < 1e-12, "{near}");
    }
}

//! What each mechanism of attention is worth: switched off in golden, it costs recall in a scenario made for it.

use karat_scenarios::Content;

use crate::ablate::{Mechanism, Models, given};

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn csa_the_indexer_and_the_window_are_worth_answers() {
    let models = Models::new();
    let text = "format = \"karat-scenario/1\"\ntitle = \"t\"\n[generate]\nmaker = \"needle\"\ncontext = 1536\nfacts = 12\nseed = 21";
    let needles = models.conversations(Content::from_toml("r", "r.toml", text).unwrap());
    let whole = models.margins(&needles, None);
    let asked = whole.len();
    assert_eq!(given(&whole), asked, "golden recalls every needle");
    for off in [Mechanism::Csa, Mechanism::Indexer, Mechanism::Window] {
        let right = given(&models.margins(&needles, Some(off)));
        println!("needles: {right} of {asked} without {}", off.name());
        assert!(2 * right < asked, "without {} {right} of {asked} are recalled", off.name());
    }
}

/// The probability of so few heads or fewer in `n` throws of a coin.
fn sign_test(n: u32, heads: u32) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for k in 0..=heads {
        sum += ways;
        ways *= f64::from(n - k) / f64::from(k + 1);
    }
    sum / 2f64.powi(n as i32)
}

/// Entries of 4 tokens find every value that a fact ever had; which of them is the latest is what entries of 128 add.
#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn hca_is_worth_answers_where_values_change() {
    let models = Models::new();
    let talks = models.conversations(Content::builtin("latest-value").unwrap());
    let (whole, off) = (models.margins(&talks, None), models.margins(&talks, Some(Mechanism::Hca)));
    let count = |f: fn(f64, f64) -> bool| whole.iter().zip(&off).filter(|(w, o)| f(**w, **o)).count() as u32;
    let (lost, gained) = (count(|w, o| w > 0.0 && o <= 0.0), count(|w, o| w <= 0.0 && o > 0.0));
    let asked = whole.len() as u32;
    println!(
        "latest-value: golden {} of {asked}, without HCA {}; {lost} lost, {gained} gained",
        given(&whole),
        given(&off)
    );
    assert!(10 * given(&whole) as u32 >= 9 * asked, "golden itself knows the latest value");
    assert!(10 * (lost - gained) >= asked, "a tenth of the answers");
    assert!(sign_test(lost + gained, gained) < 1e-3, "{lost} lost, {gained} gained");
}

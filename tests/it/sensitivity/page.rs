//! The page of what was measured.

use std::fmt::Write as _;

use karat_faults::{PLACED, faults};
use karat_optimized::patches;

use super::line::{Kept, LENGTHS, Line, STRATA};
use super::measure::STOCK;

/// A row with what it adds to stock's own KL.
pub(super) struct Added<'a> {
    pub(super) line: &'a Line,
    /// Mean KL over all positions less stock's.
    pub(super) kl: f64,
}

impl Added<'_> {
    fn loses(&self) -> bool {
        self.line.lost_sure() > 0
    }

    /// Sure answers lost for each nat that the mean KL grows by.
    fn per_nat(&self) -> f64 {
        self.line.lost_sure() as f64 / self.kl.max(0.0)
    }
}

/// The rows but stock's.
pub(super) fn added(lines: &[Line]) -> Vec<Added<'_>> {
    let stock = lines.iter().find(|l| l.name == STOCK).expect("stock is measured").kl;
    lines.iter().filter(|l| l.name != STOCK).map(|line| Added { line, kl: line.kl - stock }).collect()
}

/// Rows that lose answers although another, which loses none, has a larger KL: those with the most losses for their KL first.
pub(super) fn quiet<'a>(all: &'a [Added<'a>]) -> Vec<&'a Added<'a>> {
    let loudest = all.iter().filter(|a| !a.loses()).map(|a| a.kl).fold(f64::NEG_INFINITY, f64::max);
    let mut out: Vec<&Added<'_>> = all.iter().filter(|a| a.loses() && a.kl < loudest).collect();
    out.sort_by(|a, b| b.per_nat().total_cmp(&a.per_nat()));
    out
}

/// Rows that lose none although another with a smaller KL does: the largest KL first.
pub(super) fn loud<'a>(all: &'a [Added<'a>]) -> Vec<&'a Added<'a>> {
    let quietest = all.iter().filter(|a| a.loses()).map(|a| a.kl).fold(f64::INFINITY, f64::min);
    let mut out: Vec<&Added<'_>> = all.iter().filter(|a| !a.loses() && a.kl > quietest).collect();
    out.sort_by(|a, b| b.kl.total_cmp(&a.kl));
    out
}

fn cell(kept: Option<&Kept>) -> String {
    kept.map_or_else(|| "-".into(), |k| format!("{}/{}", k.kept, k.asked))
}

/// What a row changes, in words.
fn what(name: &str) -> String {
    if let Some(placed) = PLACED.iter().find(|p| p.id == name) {
        return format!("{} ({})", placed.fault().change, placed.place());
    }
    patches().iter().find(|p| p.name == name).map_or_else(|| "no patch".into(), |p| p.about.into())
}

pub(super) fn page(lines: &[Line], conversations: usize) -> String {
    let mut out = HEAD
        .replace("{patches}", &patches().len().to_string())
        .replace("{listed}", &faults().len().to_string())
        .replace("{conversations}", &conversations.to_string())
        .replace("{positions}", &lines[0].positions.to_string())
        .replace("{answers}", &lines[0].all.asked.to_string())
        .replace("{answer_tokens}", &lines[0].answer_tokens.to_string());
    let all = added(lines);
    out.push_str("\n## What recall catches and a mean KL barely sees\n\n");
    out.push_str(QUIET);
    // How many of the other kind are on the wrong side of it.
    let beyond = |a: &Added<'_>| match a.loses() {
        true => all.iter().filter(|b| !b.loses() && b.kl > a.kl).count(),
        false => all.iter().filter(|b| b.loses() && b.kl < a.kl).count(),
    };
    let row = |out: &mut String, a: &Added<'_>| {
        let (line, what, beyond) = (a.line, what(&a.line.name), beyond(a));
        let lost = line.lost_sure();
        let looks = if line.looks.is_empty() { "-" } else { &line.looks };
        let (name, kl, answer_kl) = (&line.name, a.kl, line.answer_kl);
        writeln!(out, "| {name} | {what} | {lost} | {kl:.1e} | {beyond} | {answer_kl:.1e} | {looks} |").unwrap();
    };
    let head = |out: &mut String, beyond: &str| {
        let names =
            ["row", "what is changed", "sure answers lost", "added KL", beyond, "answer KL", "lost answers look like"];
        writeln!(out, "\n| {} |\n|{}", names.join(" | "), "---|".repeat(names.len())).unwrap();
    };
    head(&mut out, "harmless rows with more KL");
    quiet(&all).into_iter().for_each(|a| row(&mut out, a));
    out.push_str("\n## What a mean KL sees and recall doesn't\n\n");
    out.push_str(LOUD);
    head(&mut out, "losing rows with less KL");
    loud(&all).into_iter().for_each(|a| row(&mut out, a));
    out.push_str("\n## Every row\n\n");
    out.push_str(EVERY);
    for line in lines {
        let kl = all.iter().find(|a| a.line.name == line.name).map_or_else(|| "-".into(), |a| format!("{:.1e}", a.kl));
        writeln!(
            out,
            "| {} | {} | {} | {} | {:.1e} | {} | {:.1e} | {kl} | {} |",
            line.name,
            cell(Some(&line.all)),
            line.lost_sure(),
            line.gained,
            line.answer_kl,
            line.answer_flips,
            line.kl,
            line.flips
        )
        .unwrap();
    }
    out.push_str("\n## By length and by margin\n\n");
    out.push_str(PARTS);
    let names = LENGTHS.iter().map(|l| l.0).chain(STRATA);
    let names: Vec<&str> = names.collect();
    writeln!(out, "\n| row | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len())).unwrap();
    for line in lines {
        let lengths = LENGTHS.iter().map(|(name, _)| cell(line.by_length.get(*name)));
        let cells: Vec<String> = lengths.chain(STRATA.iter().map(|s| cell(line.by_stratum.get(*s)))).collect();
        writeln!(out, "| {} | {} |", line.name, cells.join(" | ")).unwrap();
    }
    out.push_str(
        "\n## The faults, and why these\n\n| fault | what is changed | where | why it is here |\n|---|---|---|---|\n",
    );
    for placed in &PLACED {
        let (change, place) = (placed.fault().change, placed.place());
        writeln!(out, "| {} | {change} | {place} | {} |", placed.id, placed.why).unwrap();
    }
    out.push_str(TAIL);
    out
}

const HEAD: &str = "# How sensitive: answers beside divergence

Written by `cargo xtask sensitivity`; a test measures two rows again by a formula of its own, on a small sample, and holds the lists
below to the tables. Each of the {patches} speed patches and twenty of the {listed} seeded faults ([faults.md](faults.md)), each alone on
stock `official` in the mini golden model, over {conversations} conversations, {positions} tokens: every fifteenth of `strata`, whose questions were chosen
by golden's margin, facts at every depth of 2,048 tokens, and facts that change over 3,072. Turns that answer a question are decoded,
all else is prefilled. Golden gives {answers} answers ({answer_tokens} tokens with those that it doesn't give).

*Sure* answers are those of which golden is sure by 2 nats or more: stock's noise changes none of them, so what is lost there is
lost to something else. *KL* is the mean over all positions of KL(golden‖candidate), nats; *added* is that less stock's
own. *Answer KL* and *answer flips* (most likely id changed) are those of the answers' tokens alone.
";

const QUIET: &str = "Rows that lose sure answers, and whose added KL is smaller than that of a row that loses none: a limit on the mean KL that lets the
harmless row pass lets these pass too. Those with the most losses for their KL come first.
";

const LOUD: &str = "Rows that lose no sure answer, and whose added KL is larger than that of a row that does. Recall can't rank them; `karat audit`
judges them tap by tap. The largest KL comes first.
";

const EVERY: &str =
    "*Recall* is answers given of those that golden gives; *gained* are those that only the candidate gives.

| row | recall | sure answers lost | gained | answer KL | answer flips | KL | added KL | flips |
|---|---|---|---|---|---|---|---|---|
";

const PARTS: &str = "Answers given of those that golden gives: by the position where the answer begins, and by golden's worst margin over the answer, nats.
";

const TAIL: &str = "
A fault of an op is put into every layer that its kernel runs in, one of files or pages where it lies. Positions of the list (a seam at
203, pages 4 and 8 of entries) are in every conversation of this sample.

Wrong entries, or the wrong choice of them, cost a quarter to most of all answers at a mean KL of 0.03 to 0.2 (INDEX-18, ATTN-11,
BATCH-06, INDEX-10). Noise in one layer's experts (QUANT-11, 0.04) costs no sure answer, nor does a skipped norm (MHC-04, 5.2).
Without HCA (COMP-11) the KL is that of a factor too many on the experts (ROUTE-01); only the first loses sure answers. State that is
wrong in one place (COMP-04, STATE-05, SPEC-02) lost none here: what was told there is seldom asked in nine conversations.
`karat audit --histories` finds that bit for bit. No patch loses a sure answer; the one with the largest KL, `fp8-lm-head`, changes
four times as many most likely ids as stock, and none more at answers.

What this is not: a measure of DeepSeek-V4-Flash, whose margins are its own; kernels (patches ran as contracts, on the CPU);
or a gate. The limits of `karat recall` and `karat audit` are in [gate.md](gate.md).
";

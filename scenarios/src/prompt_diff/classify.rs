//! Differences to rules. Each kind of difference is looked for in turn and takes its atoms; what nothing took is unknown.

use std::ops::Range;

use karat_model::prompt::{Part, Role, special};

use super::align::Hunk;
use super::atoms::{Kind, RESULT};
use super::side::Side;
use super::{Facts, Finding, Rule, excerpt};

/// A finding in atoms.
pub(super) struct Raw {
    rule: Rule,
    message: Option<usize>,
    part: Option<Part>,
    expected: Range<usize>,
    found: Range<usize>,
    detail: Option<String>,
}

impl Raw {
    /// With positions in ids: of the first id that differs, where both sides have something.
    pub(super) fn finding(self, expected: &Side, found: &Side) -> Finding {
        let (a, b) = (expected.ids_of(&self.expected), found.ids_of(&self.found));
        // What moved is the same on both sides: its two places are where it begins.
        let moved = expected.text_of(&self.expected) == found.text_of(&self.found);
        let pairs = expected.ids[a.clone()].iter().zip(&found.ids[b.clone()]);
        let same = if moved { 0 } else { pairs.take_while(|(x, y)| x == y).count() };
        Finding {
            rule: self.rule,
            message: self.message,
            part: self.part,
            expected_at: a.start + same,
            found_at: b.start + same,
            expected: excerpt(expected.text_of(&self.expected)),
            found: excerpt(found.text_of(&self.found)),
            detail: self.detail,
        }
    }
}

const USER: Kind = Kind::Token(special::USER);
const ASSISTANT: Kind = Kind::Token(special::ASSISTANT);
const THINK: Kind = Kind::Token(special::THINK);
const END_THINK: Kind = Kind::Token(special::END_THINK);
const EOS: Kind = Kind::Token(special::EOS);
const BOS: Kind = Kind::Token(special::BOS);

/// Atoms of the largest difference that is taken apart.
const LARGEST: usize = 4000;

/// All differences as rules.
pub(super) fn classify(e: &Side, f: &Side, hunks: &[Hunk], facts: &Facts<'_>) -> Vec<Raw> {
    if let Some(large) = hunks.iter().find(|h| h.expected.len() + h.found.len() > LARGEST) {
        let (expected, found) = (large.expected.clone(), large.found.clone());
        let detail = Some("the two prompts have too little in common to tell turn by turn".to_owned());
        return vec![Raw { rule: Rule::Unknown, message: None, part: None, expected, found, detail }];
    }
    let mut work =
        Work { e, f, facts, used: (vec![false; e.atoms.len()], vec![false; f.atoms.len()]), out: Vec::new() };
    let mut moved = work.moved(hunks);
    work.passed(hunks, &mut moved);
    work.missing_turns(hunks);
    for (hunk, moved) in hunks.iter().zip(moved) {
        let mut here = Here { hunk, work: &mut work };
        if moved || here.some_used() {
            here.settle();
        }
        here.start();
        here.blocks();
        here.reasoning();
        here.think_tags();
        here.turns();
        here.end_tokens();
        here.role_tokens();
        here.texts();
        here.rest();
    }
    work.out
}

struct Work<'a> {
    e: &'a Side,
    f: &'a Side,
    facts: &'a Facts<'a>,
    /// Atoms of each side that a finding explains.
    used: (Vec<bool>, Vec<bool>),
    out: Vec<Raw>,
}

impl Work<'_> {
    fn open(&self, hunk: &Hunk) -> (Vec<usize>, Vec<usize>) {
        let expected = hunk.expected.clone().filter(|&i| !self.used.0[i]).collect();
        (expected, hunk.found.clone().filter(|&i| !self.used.1[i]).collect())
    }

    /// Blocks that stand elsewhere; gives which hunks they touch.
    fn moved(&mut self, hunks: &[Hunk]) -> Vec<bool> {
        let mut touched = vec![false; hunks.len()];
        let mut inserted: std::collections::HashMap<&str, Vec<(usize, usize)>> = std::collections::HashMap::new();
        for (h, hunk) in hunks.iter().enumerate() {
            for i in hunk.found.clone().rev().filter(|&i| movable(self.f.kind(i)).is_some()) {
                inserted.entry(self.f.of(i)).or_default().push((h, i));
            }
        }
        for (h, hunk) in hunks.iter().enumerate() {
            for i in hunk.expected.clone() {
                let Some(rule) = movable(self.e.kind(i)) else { continue };
                let whole = inserted.get_mut(self.e.of(i)).and_then(Vec::pop);
                let (to, at, detail) = match whole {
                    Some((to, at)) => (to, at, "it stands elsewhere"),
                    None => match self.untagged(i, hunks) {
                        Some((to, at)) => (to, at, "it stands without its tags"),
                        None => continue,
                    },
                };
                self.used.0[i] = true;
                // A text that holds the result holds more: it stays open for the other rules, its hunk counts as touched.
                self.used.1[at] = self.f.kind(at) != Kind::Text || self.f.of(at).trim() == inner(self.e.of(i)).trim();
                (touched[h], touched[to]) = (true, true);
                self.push(rule, self.e.tags[i].0, Some(self.e.tags[i].1), i..i + 1, at..at + 1, Some(detail));
            }
        }
        touched
    }

    /// Blocks that stand still while a text passed them: `a [block]` for `[block] a` is a block in the wrong place.
    fn passed(&mut self, hunks: &[Hunk], touched: &mut [bool]) {
        for (i, pair) in hunks.windows(2).enumerate() {
            let [before, behind] = pair else { continue };
            let between = before.expected.end..behind.expected.start;
            let blocks_only = |i: usize| movable(self.e.kind(i)).is_some() || self.e.of(i).trim().is_empty();
            let mut open = (self.open(before), self.open(behind));
            let texts = |side: &Side, atoms: &[usize]| atoms.iter().all(|&i| side.kind(i) == Kind::Text);
            open.0.0.append(&mut open.1.0);
            open.0.1.append(&mut open.1.1);
            let (e, f) = open.0;
            let Some(block) = between.clone().find(|&i| movable(self.e.kind(i)).is_some()) else { continue };
            if !between.clone().all(blocks_only) || !texts(self.e, &e) || !texts(self.f, &f) {
                continue;
            }
            let same = squashed(self.e, &e).eq(squashed(self.f, &f)) && squashed(self.e, &e).next().is_some();
            let Some(rule) = movable(self.e.kind(block)).filter(|_| same) else { continue };
            e.iter().for_each(|&i| self.used.0[i] = true);
            f.iter().for_each(|&i| self.used.1[i] = true);
            (touched[i], touched[i + 1]) = (true, true);
            let at = before.found.end + (block - before.expected.end);
            let (message, part) = self.e.tags[block];
            self.push(rule, message, Some(part), block..block + 1, at..at + 1, Some("it stands elsewhere"));
        }
    }

    /// Where the text of a tool result stands without its tags.
    fn untagged(&self, i: usize, hunks: &[Hunk]) -> Option<(usize, usize)> {
        let text =
            (self.e.kind(i) == Kind::ToolResult).then(|| inner(self.e.of(i)).trim()).filter(|t| !t.is_empty())?;
        hunks.iter().enumerate().find_map(|(h, hunk)| {
            let holds = |&at: &usize| self.f.kind(at) == Kind::Text && !self.used.1[at] && self.f.of(at).trim() == text;
            hunk.found.clone().find(holds).map(|at| (h, at))
        })
    }

    /// Messages of which nothing is in the prompt. Several in a row are one finding.
    fn missing_turns(&mut self, hunks: &[Hunk]) {
        let mut in_hunk = vec![usize::MAX; self.e.atoms.len()];
        for (h, hunk) in hunks.iter().enumerate() {
            in_hunk[hunk.expected.clone()].fill(h);
        }
        let own =
            |part| !matches!(part, Part::Transition | Part::Bos | Part::Effort | Part::Tools | Part::ResponseFormat);
        let mut at = 0;
        let mut runs: Vec<(Range<usize>, usize, usize)> = Vec::new();
        while at < self.e.atoms.len() {
            let message = self.e.tags[at].0;
            let end = (at..self.e.atoms.len()).find(|&i| self.e.tags[i].0 != message).unwrap_or(self.e.atoms.len());
            let atoms = at..end;
            at = end;
            let Some(m) = message else { continue };
            let owned: Vec<usize> = atoms.filter(|&i| own(self.e.tags[i].1)).collect();
            let says = owned.iter().any(|&i| {
                let bare = matches!(self.e.tags[i].1, Part::RoleToken | Part::EndThink | Part::Eos);
                !bare && !self.e.of(i).trim().is_empty()
            });
            let gone = owned
                .iter()
                .all(|&i| in_hunk[i] != usize::MAX && !self.used.0[i] && !self.still_said(i, hunks, in_hunk[i]));
            let (Some(&first), Some(&last)) = (owned.first(), owned.last()) else { continue };
            if !says || !gone {
                continue;
            }
            // One result of several is no turn of its own.
            let begins = self.e.tags[first].1 == Part::RoleToken || self.facts.role(Some(m)) != Some(&Role::Tool);
            match runs.last_mut() {
                Some((range, _, to)) if *to + 1 == m && in_hunk[range.start] == in_hunk[first] => {
                    (range.end, *to) = (last + 1, m);
                }
                _ if begins => runs.push((first..last + 1, m, m)),
                _ => {}
            }
        }
        for (range, from, to) in runs {
            let h = in_hunk[range.start];
            let hunk = &hunks[h];
            // What opened the lost answer went with it.
            let opens = |i: &usize| self.e.tags[*i].1 == Part::Transition;
            let before = (hunk.expected.start..range.start).rev().take_while(opens).count();
            let range = range.start - before..range.end;
            let end = range.end.min(hunk.expected.end);
            self.used.0[range.start..end].fill(true);
            let detail = (to > from).then(|| format!("messages {from} to {to}"));
            let part = Some(Part::Content);
            let found = hunk.found.start..hunk.found.start;
            self.push(Rule::TurnMissing, Some(from), part, range, found, detail.as_deref());
        }
    }

    /// Whether a text of the prompt is in what the hunk has instead.
    fn still_said(&self, i: usize, hunks: &[Hunk], hunk: usize) -> bool {
        let text = self.e.of(i).trim();
        let is_text = self.e.kind(i) == Kind::Text && !text.is_empty();
        is_text && hunks[hunk].found.clone().any(|at| self.f.kind(at) == Kind::Text && self.f.of(at).contains(text))
    }

    fn push(
        &mut self,
        rule: Rule,
        message: Option<usize>,
        part: Option<Part>,
        expected: Range<usize>,
        found: Range<usize>,
        detail: Option<&str>,
    ) {
        self.out.push(Raw { rule, message, part, expected, found, detail: detail.map(str::to_owned) });
    }
}

/// The rule of a block that has a place of its own.
fn movable(kind: Kind) -> Option<Rule> {
    match kind {
        Kind::ToolResult => Some(Rule::ToolResultPlace),
        Kind::Effort => Some(Rule::EffortPlace),
        Kind::Tools => Some(Rule::ToolsBlock),
        Kind::ResponseFormat => Some(Rule::ResponseFormat),
        Kind::ToolCalls => Some(Rule::ToolCalls),
        Kind::Token(_) | Kind::Text => None,
    }
}

/// What stands between the tags of a tool result.
fn inner(result: &str) -> &str {
    result.strip_prefix(RESULT.0).and_then(|r| r.strip_suffix(RESULT.1)).unwrap_or(result)
}

/// The characters that aren't white space.
fn squashed<'a>(side: &'a Side, atoms: &'a [usize]) -> impl Iterator<Item = char> + 'a {
    atoms.iter().flat_map(|&i| side.of(i).chars()).filter(|c| !c.is_whitespace())
}

/// One hunk and what is still open in it.
struct Here<'w, 'a> {
    hunk: &'w Hunk,
    work: &'w mut Work<'a>,
}

impl Here<'_, '_> {
    fn some_used(&self) -> bool {
        let used = &self.work.used;
        used.0[self.hunk.expected.clone()].iter().any(|&u| u) || used.1[self.hunk.found.clone()].iter().any(|&u| u)
    }

    fn open(&self) -> (Vec<usize>, Vec<usize>) {
        self.work.open(self.hunk)
    }

    fn e_where(&self, test: impl Fn(Kind, Part) -> bool) -> Vec<usize> {
        self.open().0.into_iter().filter(|&i| test(self.work.e.kind(i), self.work.e.tags[i].1)).collect()
    }

    fn f_where(&self, test: impl Fn(Kind) -> bool) -> Vec<usize> {
        self.open().1.into_iter().filter(|&i| test(self.work.f.kind(i))).collect()
    }

    /// The message of the first of these atoms, or of what follows the hunk.
    fn message(&self, e: &[usize]) -> Option<usize> {
        let at = e.first().copied().unwrap_or(self.hunk.expected.end);
        let behind = self.work.e.tags.get(at).and_then(|t| t.0);
        behind.or_else(|| at.checked_sub(1).and_then(|i| self.work.e.tags.get(i)).and_then(|t| t.0))
    }

    /// The assistant's message that begins at or behind an atom.
    fn answer_from(&self, at: usize) -> Option<usize> {
        let behind = self.work.e.tags.get(at..).unwrap_or_default();
        behind.iter().map(|t| t.0).find(|&m| self.work.facts.is_assistant(m)).flatten()
    }

    /// A finding that takes these atoms.
    fn take(&mut self, rule: Rule, message: Option<usize>, e: &[usize], f: &[usize], detail: Option<&str>) {
        e.iter().for_each(|&i| self.work.used.0[i] = true);
        f.iter().for_each(|&i| self.work.used.1[i] = true);
        let span = |atoms: &[usize], none: usize| match (atoms.first(), atoms.last()) {
            (Some(&first), Some(&last)) => first..last + 1,
            _ => none..none,
        };
        let part = e.first().map(|&i| self.work.e.tags[i].1);
        // A side that has nothing shows where it would stand.
        let (at_e, at_f) = (self.hunk.expected.start, self.hunk.found.start);
        let at_e = if e.is_empty() && !f.is_empty() { at_e } else { at_e.max(e.first().copied().unwrap_or(at_e)) };
        self.work.push(rule, message, part, span(e, at_e), span(f, at_f), detail);
    }

    /// After a block moved or a turn was lost: white space and tokens that went with it, and texts that are now joined
    /// in another way, need no finding of their own.
    fn settle(&mut self) {
        let (e, f) = self.open();
        let texts = |side: &Side, atoms: &[usize]| -> Vec<usize> {
            atoms.iter().copied().filter(|&i| side.kind(i) == Kind::Text).collect()
        };
        let (te, tf) = (texts(self.work.e, &e), texts(self.work.f, &f));
        if squashed(self.work.e, &te).eq(squashed(self.work.f, &tf)) {
            te.iter().for_each(|&i| self.work.used.0[i] = true);
            tf.iter().for_each(|&i| self.work.used.1[i] = true);
        }
        let (e, f) = self.open();
        for i in e {
            let with_it = self.work.e.kind(i) == USER || self.work.e.of(i).trim().is_empty();
            self.work.used.0[i] = with_it;
        }
        for i in f {
            let with_it = self.work.f.kind(i) == USER || self.work.f.of(i).trim().is_empty();
            self.work.used.1[i] = with_it;
        }
    }

    fn start(&mut self) {
        let (e, f) = (self.e_where(|_, part| part == Part::Bos), self.f_where(|kind| kind == BOS));
        if !e.is_empty() || !f.is_empty() {
            let detail = if e.is_empty() { "it stands here again" } else { "it is missing" };
            self.take(Rule::Bos, None, &e, &f, Some(detail));
        }
    }

    /// Effort, tools, response format, calls and results that are missing, extra or written in another way.
    fn blocks(&mut self) {
        let (e, f) = (self.e_where(|kind, _| kind == Kind::Effort), self.f_where(|kind| kind == Kind::Effort));
        if !e.is_empty() || !f.is_empty() {
            let detail = match (e.is_empty(), f.is_empty()) {
                (false, true) => "it is missing",
                (true, false) => "nobody asked for one",
                _ => "it is that of another tier",
            };
            self.take(Rule::Effort, None, &e, &f, Some(detail));
            self.settle();
        }
        for (kind, part, rule) in [
            (Kind::Tools, Part::Tools, Rule::ToolsBlock),
            (Kind::ResponseFormat, Part::ResponseFormat, Rule::ResponseFormat),
            (Kind::ToolCalls, Part::ToolCalls, Rule::ToolCalls),
            (Kind::ToolResult, Part::ToolResult, Rule::ToolResultText),
        ] {
            let e = self.e_where(|k, p| k == kind || (p == part && k != Kind::Text));
            let f = self.f_where(|k| k == kind);
            if e.is_empty() && f.is_empty() {
                continue;
            }
            let message = self.message(&e);
            let others = self.f_where(|k| {
                matches!(k, Kind::Text | END_THINK | THINK | Kind::ToolCalls | Kind::Token(special::DSML))
            });
            let says_more = others.iter().any(|&i| {
                let text = self.work.f.of(i).trim();
                !text.is_empty() && !self.open().0.iter().any(|&x| self.work.e.of(x).trim() == text)
            });
            match (e.is_empty(), f.is_empty()) {
                (true, _) => self.take(rule, message, &e, &f, Some("there is one too many")),
                (_, false) => self.take(rule, message, &e, &f, Some("it is written in another way")),
                (_, true) if says_more => {
                    // It is in some text of the prompt: the whole stretch is one difference.
                    let text_e = self.e_where(|k, _| k == Kind::Text || k == kind);
                    self.take(rule, message, &text_e, &others, Some("it is written in another way"));
                }
                _ => self.take(rule, message, &e, &f, Some("it is missing")),
            }
            self.settle();
        }
    }

    /// Reasoning that is gone, and reasoning that should be.
    fn reasoning(&mut self) {
        let think = |kind| kind == THINK || kind == END_THINK;
        let gone = self.e_where(|_, part| part == Part::Reasoning);
        let said = self.f_where(|kind| kind == Kind::Text);
        let anything = said.iter().any(|&i| !self.work.f.of(i).trim().is_empty());
        if let (Some(&first), false) = (gone.first(), anything) {
            let message = self.work.e.tags[first].0;
            let tags = self.e_where(|kind, part| think(kind) && matches!(part, Part::Transition | Part::EndThink));
            let near = |&i: &usize| gone.contains(&(i + 1)) || i.checked_sub(1).is_some_and(|b| gone.contains(&b));
            let mut e: Vec<usize> = tags.into_iter().filter(near).chain(gone.iter().copied()).collect();
            e.sort_unstable();
            let f = self.f_where(think);
            let facts = self.work.facts;
            let detail = if message > facts.last {
                "it is the latest turn"
            } else if facts.has_tools {
                "tools are present"
            } else {
                "nothing drops it"
            };
            self.take(Rule::ReasoningDropped, message, &e, &f, Some(detail));
        }
        let texts = self.f_where(|kind| kind == Kind::Text);
        for i in texts {
            let message = self.answer_from(self.hunk.expected.start);
            let in_tags = i > 0
                && self.work.f.kind(i - 1) == THINK
                && (i + 1 < self.work.f.atoms.len() && self.work.f.kind(i + 1) == END_THINK);
            let text = self.work.f.of(i).trim();
            let of_message = message.and_then(|m| self.work.facts.messages.get(m));
            let known = of_message.and_then(|m| m.reasoning_content.as_deref()).is_some_and(|r| r.trim() == text);
            let nothing_there = !self.e_where(|_, part| part == Part::Reasoning).is_empty();
            if text.is_empty() || nothing_there || !(in_tags || known) {
                continue;
            }
            let mut f = self.f_where(think);
            f.push(i);
            f.sort_unstable();
            let e = self.e_where(|kind, part| think(kind) && part == Part::Transition);
            let detail = if self.work.facts.thinking { "an earlier turn, no tools" } else { "chat mode" };
            self.take(Rule::ReasoningKept, message, &e, &f, Some(detail));
        }
    }

    /// The tag that opens an assistant's turn.
    fn think_tags(&mut self) {
        let think = |kind| kind == THINK || kind == END_THINK;
        let (e, f) = (self.e_where(|kind, _| think(kind)), self.f_where(think));
        if e.is_empty() && f.is_empty() {
            return;
        }
        // Part of a whole turn more or less: that is the difference to name.
        let turn = |kind| matches!(kind, ASSISTANT | USER);
        if !self.f_where(turn).is_empty() || !self.e_where(|kind, _| turn(kind)).is_empty() {
            return;
        }
        let opens = f.iter().any(|&i| self.work.f.kind(i) == THINK);
        let message = self.answer_from(self.hunk.expected.start).or_else(|| self.message(&e));
        let in_chat = opens && !self.work.facts.thinking;
        let detail = match (e.is_empty(), f.is_empty()) {
            (false, true) => Some("it is missing"),
            (true, false) if !in_chat => Some("it is one too many"),
            _ => None,
        };
        self.take(if in_chat { Rule::ThinkTagInChat } else { Rule::ThinkTag }, message, &e, &f, detail);
    }

    /// What opens the answer at the end, and turns that the conversation hasn't.
    fn turns(&mut self) {
        let (e, f) = self.open();
        let at_end =
            self.hunk.expected.end == self.work.e.atoms.len() && self.hunk.found.end == self.work.f.atoms.len();
        let opening = |kind| matches!(kind, ASSISTANT | THINK | END_THINK | Kind::Token(special::ACTION));
        let only_opens_e = e.iter().all(|&i| opening(self.work.e.kind(i)));
        let only_opens_f = f.iter().all(|&i| opening(self.work.f.kind(i)) || self.work.f.of(i).trim().is_empty());
        if at_end && only_opens_e && only_opens_f && (!e.is_empty() || !f.is_empty()) {
            let detail = match (e.is_empty(), f.is_empty()) {
                (false, true) => Some("it is missing"),
                (true, false) => Some("there is one too many"),
                _ => None,
            };
            self.take(Rule::GenerationPrompt, self.message(&e), &e, &f, detail);
            return;
        }
        let begins_turn = f.iter().any(|&i| matches!(self.work.f.kind(i), USER | ASSISTANT));
        let says = f.iter().any(|&i| self.work.f.kind(i) == Kind::Text && !self.work.f.of(i).trim().is_empty());
        if e.is_empty() && begins_turn && says {
            self.take(Rule::TurnExtra, self.message(&e), &e, &f, None);
        }
    }

    fn end_tokens(&mut self) {
        for i in self.e_where(|_, part| part == Part::Eos) {
            self.take(Rule::EndTokenMissing, self.work.e.tags[i].0, &[i], &[], None);
        }
        let extra = self.f_where(|kind| kind == EOS);
        if !extra.is_empty() {
            let before = self.hunk.expected.start.checked_sub(1).and_then(|i| self.work.e.tags[i].0);
            self.take(Rule::EndTokenExtra, before, &[], &extra, None);
        }
    }

    fn role_tokens(&mut self) {
        let token = |kind| matches!(kind, USER | ASSISTANT | Kind::Token(special::LATEST_REMINDER));
        let (e, f) = (self.e_where(|kind, _| token(kind)), self.f_where(token));
        if e.is_empty() && f.is_empty() {
            return;
        }
        let (all_e, all_f) = self.open();
        let text = |side: &Side, atoms: &[usize]| -> Vec<usize> {
            atoms.iter().copied().filter(|&i| !matches!(side.kind(i), Kind::Token(_))).collect()
        };
        let (te, tf) = (text(self.work.e, &all_e), text(self.work.f, &all_f));
        let same = squashed(self.work.e, &te).eq(squashed(self.work.f, &tf));
        let users_only =
            e.iter().all(|&i| self.work.e.kind(i) == USER) && f.iter().all(|&i| self.work.f.kind(i) == USER);
        let message = self.message(&all_e);
        if same && users_only && !f.is_empty() && e.is_empty() && !te.is_empty() {
            self.take(Rule::Merging, message, &all_e, &all_f, Some("they are turns of their own"));
        } else if same {
            self.take(Rule::RoleToken, message, &all_e, &all_f, None);
        } else {
            self.take(Rule::RoleToken, message, &e, &f, None);
        }
    }

    fn texts(&mut self) {
        let (e, f) = self.open();
        if e.is_empty() || !f.iter().all(|&i| self.work.f.kind(i) == Kind::Text) {
            return;
        }
        if !e.iter().all(|&i| self.work.e.kind(i) == Kind::Text) {
            return;
        }
        let message = self.message(&e);
        let answer = self.work.facts.is_assistant(message);
        let expected: String = squashed(self.work.e, &e).collect();
        let found: String = squashed(self.work.f, &f).collect();
        if expected == found {
            self.take(Rule::WhiteSpace, message, &e, &f, None);
        } else if answer && expected.starts_with(&found) {
            self.take(Rule::TurnCut, message, &e, &f, None);
        } else {
            self.take(Rule::Content, message, &e, &f, None);
        }
    }

    fn rest(&mut self) {
        let (e, f) = self.open();
        if e.is_empty() && f.is_empty() {
            return;
        }
        let blank = |side: &Side, atoms: &[usize]| atoms.iter().all(|&i| side.of(i).trim().is_empty());
        let rule = if blank(self.work.e, &e) && blank(self.work.f, &f) { Rule::WhiteSpace } else { Rule::Unknown };
        self.take(rule, self.message(&e), &e, &f, None);
    }
}

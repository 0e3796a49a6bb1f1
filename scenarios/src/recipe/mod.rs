//! Recipes: scenario files that make many conversations of one kind, by seed.

mod corrections;
mod edges;
mod page;
mod phases;
mod prefix;
mod spread;

use karat_model::prompt::{EncodeOptions, Encoder, Tokenizer};
use karat_model::{Error, Result};
use serde::Deserialize;

use crate::Scenario;
use crate::grammar::families::{Drawn, Family, draw, system};
use crate::grammar::random::Random;
use crate::grammar::small_talk::SmallTalk;
use crate::grammar::talk::Talk;
use crate::grammar::turns;

/// How conversations are made: `[generate]` of a scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the scenario; conversations are `NAME-NUMBER`.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    #[serde(skip)]
    pub title: String,
    /// What makes them: a name of [`MAKERS`], or a family of the grammar.
    pub maker: String,
    /// Tokens of a conversation, about.
    pub context: usize,
    /// How many.
    #[serde(default = "one")]
    pub conversations: usize,
    /// Names the stream of random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Facts in each.
    #[serde(default = "eight")]
    pub facts: usize,
    /// Tools are offered (what each maker of the grammar decides itself, it decides itself).
    #[serde(default)]
    pub tools: bool,
    /// The model thinks before it answers.
    #[serde(default)]
    pub thinking: bool,
    /// Prompts are prefilled in chunks of so many tokens.
    pub chunk: Option<usize>,
    /// The last answer is generated greedily by each path, going on from its own words.
    #[serde(default)]
    pub free: bool,
    /// Facts are laid across multiples of these positions.
    #[serde(default)]
    pub edges: Vec<usize>,
    /// Numbers of the conversations to make, one a line, instead of the first ones; what follows a number is for people.
    pub selected: Option<String>,
}

fn one() -> usize {
    1
}

fn eight() -> usize {
    8
}

/// Longest conversation that a recipe may ask for, tokens.
const LONGEST: usize = 1 << 20;
/// Most conversations and facts.
const MOST: usize = 100_000;

/// Makers beside the families of the grammar, and what they make.
pub const MAKERS: [(&str, &str); 11] = [
    ("needle", "facts at every depth of much small talk"),
    ("own", "values that the model chose itself"),
    ("result", "values from a tool's result, with other calls before the question"),
    ("turn-two", "a value told in the first turn and asked in the second"),
    ("corrections", "facts that change again and again"),
    ("edges", "facts laid across the edges of groups, pages and chunks"),
    ("phases", "questions at every phase of the length around the edges of groups, pages and chunks"),
    ("prefix", "conversations that begin alike and go apart"),
    ("page", "one turn with a long answer"),
    ("burst", "names that share words, all asked in lists"),
    ("shares", "every family of the grammar, by its share in the golden model's training"),
];

/// What a maker works with.
struct Bench<'a> {
    recipe: &'a Recipe,
    number: u64,
    tokenizer: &'a Tokenizer,
    encoder: &'a Encoder,
}

impl Recipe {
    /// Refuses a recipe that can't be followed.
    pub(crate) fn check(&self) -> Result<()> {
        let known: Vec<&str> =
            MAKERS.iter().map(|(name, _)| *name).chain(Family::SHARES.map(|(f, _)| f.name())).collect();
        if !known.contains(&self.maker.as_str()) {
            let names = known.join(", ");
            return Err(Error::input("unknown maker").at("maker").expected(names).found(format!("{:?}", self.maker)));
        }
        let limits = [
            ("context", self.context, 256, LONGEST),
            ("conversations", self.conversations, 1, MOST),
            ("facts", self.facts, 1, 1000),
            ("chunk", self.chunk.unwrap_or(1), 1, LONGEST),
        ];
        for (field, found, low, high) in limits {
            if !(low..=high).contains(&found) {
                return Err(Error::input("out of range").at(field).expected(format!("{low} to {high}")).found(found));
            }
        }
        if let Some(&edge) = self.edges.iter().find(|&&e| !(4..=LONGEST).contains(&e)) {
            return Err(Error::input("out of range").at("edges").expected(format!("4 to {LONGEST}")).found(edge));
        }
        if matches!(self.maker.as_str(), "edges" | "phases") && self.edges.is_empty() {
            return Err(Error::input("this maker needs edges").at("edges"));
        }
        self.numbers().map(|_| ())
    }

    /// Numbers of its conversations.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        let Some(text) = &self.selected else { return Ok((0..self.conversations as u64).collect()) };
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        let number = |line: &str| {
            let word = line.split_whitespace().next().unwrap_or_default();
            word.parse::<u64>().map_err(|_| Error::input("not a number").at("selected").found(format!("{word:?}")))
        };
        lines.map(number).collect()
    }

    /// Makes every conversation.
    pub fn make(&self, tokenizer: &Tokenizer, encoder: &Encoder) -> Result<Vec<Scenario>> {
        let numbers = self.numbers()?;
        numbers.into_iter().map(|number| self.one(number, tokenizer, encoder)).collect()
    }

    /// Makes one of them.
    pub fn one(&self, number: u64, tokenizer: &Tokenizer, encoder: &Encoder) -> Result<Scenario> {
        let bench = Bench { recipe: self, number, tokenizer, encoder };
        let mut maker = self.maker.as_str();
        let drawn = match maker {
            "needle" => spread::needle(&bench),
            "own" => spread::own(&bench),
            "result" => spread::result(&bench),
            "turn-two" => spread::turn_two(&bench),
            "corrections" => corrections::make(&bench),
            "edges" => edges::make(&bench)?,
            "phases" => phases::make(&bench)?,
            "prefix" => prefix::make(&bench),
            "page" => page::make(&bench),
            "shares" => {
                let mut r = bench.random();
                let family = Family::draw(&mut r);
                maker = family.name();
                bench.family(family, r)
            }
            other => bench.family(Family::from_name(other).unwrap_or(Family::Mixed), bench.random()),
        };
        let mut scenario = Scenario::of_grammar(format!("{}-{number:03}", self.name), &self.title, drawn);
        maker.clone_into(&mut scenario.maker);
        scenario.chunk = self.chunk;
        scenario.free = self.free;
        Ok(scenario)
    }
}

impl Bench<'_> {
    fn random(&self) -> Random {
        Random::new(self.recipe.seed, self.number)
    }

    fn family(&self, family: Family, r: Random) -> Drawn {
        let texts = self.encoder.texts();
        draw(family, r, self.recipe.context, (&texts.tools_template.text, &texts.effort_a.text))
    }

    /// An empty conversation as the recipe wants it, with its small talk; its system message stands already where tools do.
    fn open(&self, mut r: Random, crowded: bool) -> (Talk, SmallTalk) {
        let s = SmallTalk::new(&mut r);
        let recipe = self.recipe;
        let mut t = Talk::new(r, recipe.context, recipe.tools, recipe.thinking, crowded);
        if recipe.tools {
            system(&mut t, &self.encoder.texts().tools_template.text);
        }
        (t, s)
    }

    fn close(&self, t: Talk) -> Drawn {
        let options = EncodeOptions { thinking: self.recipe.thinking, drop_thinking: true, effort: None };
        Drawn { messages: t.messages, options, interrupted: t.interrupted }
    }
}

/// Small talk until about `target` tokens are used.
fn fill(t: &mut Talk, s: &mut SmallTalk, target: usize) {
    while t.used + 16 < target {
        let most = ((target - t.used) / 10).clamp(1, 40);
        let sentences = t.r.between(1, most);
        turns::chat(t, s, sentences);
    }
}

/// Asks every fact that is open, in random order.
fn ask_all(t: &mut Talk) {
    let mut open: Vec<usize> = (0..t.facts.len()).filter(|&i| !t.facts[i].asked).collect();
    t.r.shuffle(&mut open);
    for i in open {
        turns::ask(t, i);
    }
}

/// Tokens that the questions will need.
fn reserve(recipe: &Recipe) -> usize {
    recipe.facts * if recipe.tools && recipe.thinking { 42 } else { 26 } + 20
}

#[cfg(test)]
mod tests;

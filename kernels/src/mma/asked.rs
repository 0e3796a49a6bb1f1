//! Cases by hand, and a record of what a machine answered to each.

use std::collections::BTreeMap;

use karat_model::Result;

use super::form::{F32, Form};
use super::machine::{Case, Machine, answers};
use super::model::MmaModel;

/// Answers that aren't the model's: so many are told one by one.
const TOLD: usize = 20;

/// One form of one machine under question.
pub(super) struct Asked<'a> {
    machine: &'a dyn Machine,
    pub(super) form: Form,
    /// Products of the first step, in which the cases are laid.
    pub(super) slots: Vec<usize>,
    /// By question: case and answer.
    pub(super) raw: BTreeMap<String, Vec<String>>,
    /// What no answer that was thought of explains.
    pub(super) unexplained: Vec<String>,
    /// Every case that was sent, with its question and answer.
    sent: Vec<(String, Case, u32)>,
}

/// A value as a whole number times a power of two.
pub(super) type Value = (i64, i32);

/// A case that is being put together.
#[derive(Debug, Clone)]
pub(super) struct Made {
    name: String,
    form: Form,
    case: Case,
    /// A value that was asked for has no bits: the case is left out.
    lost: bool,
}

impl Made {
    /// All products zero, the accumulator `c`.
    pub(super) fn new(form: Form, name: impl Into<String>, c: Value) -> Self {
        let bits = F32.encode(c.0, c.1);
        let k = form.products();
        let case = Case { c: bits.unwrap_or(0), a: vec![0; k], b: vec![0; k] };
        Self { name: name.into(), form, case, lost: bits.is_none() }
    }

    /// The accumulator has these bits.
    pub(super) fn c(mut self, bits: u32) -> Self {
        self.case.c = bits;
        self
    }

    /// Product `k` is this value.
    pub(super) fn put(mut self, k: usize, value: Value) -> Self {
        match self.form.factors(value.0, value.1) {
            Some(factors) => self.bits(k, factors.0, factors.1),
            None => {
                self.lost = true;
                self
            }
        }
    }

    /// Product `k` is that of two values.
    pub(super) fn times(mut self, k: usize, a: Value, b: Value) -> Self {
        match self.form.operand(a.0, a.1).zip(self.form.operand(b.0, b.1)) {
            Some((a, b)) => self.bits(k, a, b),
            None => {
                self.lost = true;
                self
            }
        }
    }

    /// Product `k` is that of these bits.
    pub(super) fn bits(mut self, k: usize, a: u16, b: u16) -> Self {
        self.case.a[k] = a;
        self.case.b[k] = b;
        self
    }
}

impl<'a> Asked<'a> {
    pub(super) fn new(machine: &'a dyn Machine, form: Form) -> Self {
        let slots = (0..form.products()).collect();
        Self { machine, form, slots, raw: BTreeMap::new(), unexplained: Vec::new(), sent: Vec::new() }
    }

    /// A case with the accumulator `c`.
    pub(super) fn made(&self, name: impl Into<String>, c: Value) -> Made {
        Made::new(self.form, name, c)
    }

    /// Puts these values into the first products of the first step.
    pub(super) fn case(&self, name: impl Into<String>, c: Value, products: &[Value]) -> Made {
        let made = self.made(name, c);
        match self.slots.get(..products.len()) {
            Some(slots) => slots.iter().zip(products).fold(made, |made, (k, value)| made.put(*k, *value)),
            None => Made { lost: true, ..made },
        }
    }

    /// What the machine answers; none where a case has no bits in this form.
    pub(super) fn ask(&mut self, question: &str, cases: &[Made]) -> Result<Vec<Option<u32>>> {
        let sent: Vec<Case> = cases.iter().filter(|made| !made.lost).map(|made| made.case.clone()).collect();
        let mut found = answers(self.machine, self.form, &sent)?.into_iter();
        let mut out = Vec::new();
        for made in cases {
            let answer = if made.lost { None } else { found.next() };
            let record = self.raw.entry(question.to_string()).or_default();
            record.push(match answer {
                Some((bits, _)) => format!("{}: {bits:08x}", made.name),
                None => format!("{}: no such operands", made.name),
            });
            if let Some((bits, _)) = answer {
                self.sent.push((format!("{question}: {}", made.name), made.case.clone(), bits));
            }
            if answer.is_some_and(|(_, differs)| differs) {
                self.unexplained.push(format!("{question}: {}: another answer 8 rows below", made.name));
            }
            out.push(answer.map(|(bits, _)| bits));
        }
        Ok(out)
    }

    /// The hypothesis whose answers these are.
    pub(super) fn choose<T: Copy>(
        &mut self,
        question: &str,
        found: &[Option<u32>],
        predicted: &[(T, Vec<Option<u32>>)],
        otherwise: T,
    ) -> T {
        // A case without operands speaks for nobody.
        let fits = |all: &[Option<u32>]| all.iter().zip(found).all(|(p, f)| f.is_none() || p == f);
        let said = found.iter().any(Option::is_some);
        match predicted.iter().find(|(_, all)| fits(all)) {
            Some((hypothesis, _)) if said => *hypothesis,
            _ => {
                self.wonder(question, found);
                otherwise
            }
        }
    }

    /// Notes an answer that was not thought of.
    pub(super) fn wonder(&mut self, question: &str, found: &[Option<u32>]) {
        let words: Vec<String> = found.iter().map(|f| f.map_or("-".to_string(), |f| format!("{f:08x}"))).collect();
        self.unexplained.push(format!("{question}: {}", words.join(" ")));
    }

    /// Holds the model that was found against every answer: each question alone may be explained, and all of them not.
    pub(super) fn hold(&mut self, model: &MmaModel) {
        let mut apart = 0;
        for (name, case, answer) in &self.sent {
            let predicted = model.accumulate(case.c, &case.a, &case.b);
            if predicted != *answer {
                apart += 1;
                if apart <= TOLD {
                    self.unexplained.push(format!("{name}: {answer:08x}, by the model {predicted:08x}"));
                }
            }
        }
        if apart > TOLD {
            self.unexplained.push(format!("{} answers more are not the model's", apart - TOLD));
        }
    }

    /// Asks with a small addend of each size 2^-q below 2^`from`, and gives the largest q that was kept whole: `kept(q)` is the answer
    /// then. None: none was.
    pub(super) fn scan(
        &mut self,
        question: &str,
        range: std::ops::RangeInclusive<i32>,
        case: &dyn Fn(&Self, i32) -> Made,
        kept: &dyn Fn(i32) -> u32,
    ) -> Result<Option<i32>> {
        let cases: Vec<Made> = range.clone().map(|q| case(self, q)).collect();
        let found = self.ask(question, &cases)?;
        let of: Vec<(i32, bool)> = range.zip(&found).filter_map(|(q, f)| f.map(|f| (q, f == kept(q)))).collect();
        let first_lost = of.iter().position(|(_, kept)| !kept).unwrap_or(of.len());
        if of[first_lost..].iter().any(|(_, kept)| *kept) {
            self.wonder(&format!("{question}: not all larger ones are kept"), &found);
        }
        Ok(first_lost.checked_sub(1).map(|last| of[last].0))
    }
}

/// Bits of the f32 that a value is; 0 for one that has none.
pub(super) fn f32_bits(value: Value) -> u32 {
    F32.encode(value.0, value.1).unwrap_or(0)
}

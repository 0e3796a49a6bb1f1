//! How a tensor core adds, as data, and what it makes of operands by that: fixed-point arithmetic, nothing but whole numbers.
//!
//! The products of a step and what was summed before are aligned to the largest exponent among them; of each, so many bits below that
//! exponent are kept; the sum of what is left is exact, and is rounded to f32 once. The questions are those of Fasi, Higham,
//! Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021).

use serde::{Deserialize, Serialize};

use super::form::{F32, Form, Number};

/// How a whole number of smaller units becomes one of larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Cut off.
    TowardZero,
    /// To the next lower number: two's complement, cut off.
    Down,
    /// To the nearest; a tie to the even one.
    NearestEven,
}

/// What a product is aligned by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exponent {
    /// The sum of what the operands' exponent fields say: a subnormal's is that of the least normal.
    Fields,
    /// The sum of the operands' own exponents; a product of 2 or more counts as one below.
    Operands,
    /// The product's own.
    Product,
}

/// How one form of mma.sync accumulates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MmaModel {
    /// The form.
    pub form: Form,
    /// The step in which each product of an instruction is added, a digit each.
    pub steps: String,
    /// The accumulator is added behind the last step, as two f32s are added: rounded to the nearest. Else it is part of the first.
    pub accumulator_last: bool,
    /// Bits that are kept of an addend below the largest exponent of its step.
    pub bits: u32,
    /// What becomes of the bits below.
    pub align: Rounding,
    /// How the sum of a step becomes an f32.
    pub round: Rounding,
    /// What a product is aligned by.
    pub exponent: Exponent,
    /// The exponent that an operand of zero counts with; none: such a product takes no part in the alignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_exponent: Option<i32>,
    /// The least exponent that is aligned to; none: there is none, or it cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<i32>,
    /// A subnormal accumulator counts with the exponent of the least normal; else with its own.
    pub subnormal_accumulator_as_normal: bool,
    /// Subnormal operands count; else they are zero.
    pub subnormal_operands: bool,
    /// Subnormal accumulators count; else they are zero.
    pub subnormal_accumulators: bool,
    /// Subnormal results come out; else zeros do.
    pub subnormal_results: bool,
    /// A sum of negative zeros alone is one; else it is positive.
    pub negative_zero: bool,
    /// A negative sum that is rounded to zero keeps its sign.
    pub underflow_sign: bool,
    /// A sum beyond f32 is infinite; else the largest number.
    pub overflow_infinite: bool,
    /// Bits of every NaN that comes out.
    pub nan: u32,
}

/// One addend: `significand` times 2^`unit`, aligned by `top`.
#[derive(Debug, Clone, Copy)]
struct Term {
    negative: bool,
    significand: u64,
    unit: i32,
    top: Option<i32>,
}

/// What a step adds up to before rounding.
#[derive(Debug, Default)]
struct Gathered {
    terms: Vec<Term>,
    nan: bool,
    infinite: [bool; 2],
}

/// Exponent of a value that is not zero.
fn own(significand: u64, unit: i32) -> i32 {
    unit + 63 - significand.leading_zeros() as i32
}

/// `magnitude` over 2^`shift`.
fn rounded(magnitude: u128, negative: bool, shift: u32, how: Rounding) -> u128 {
    if shift == 0 {
        return magnitude;
    }
    let (whole, rest) = match shift {
        1..=127 => (magnitude >> shift, magnitude & ((1 << shift) - 1)),
        _ => (0, magnitude),
    };
    let up = match how {
        Rounding::TowardZero => false,
        Rounding::Down => negative && rest != 0,
        // A rest beyond 127 bits is less than half: terms are far shorter.
        Rounding::NearestEven => {
            shift <= 127 && (rest > 1 << (shift - 1) || rest == 1 << (shift - 1) && whole & 1 == 1)
        }
    };
    whole + u128::from(up)
}

impl Gathered {
    fn accumulator(&mut self, model: &MmaModel, bits: u32) {
        match F32.decode(bits) {
            Number::Nan => self.nan = true,
            Number::Infinite { negative } => self.infinite[usize::from(negative)] = true,
            Number::Finite { negative, significand, unit, fields } => {
                let subnormal = significand >> F32.mantissa() == 0;
                let significand = if subnormal && !model.subnormal_accumulators { 0 } else { u64::from(significand) };
                let top = match significand {
                    0 => None,
                    _ if subnormal && model.subnormal_accumulator_as_normal => Some(fields),
                    _ => Some(own(significand, unit)),
                };
                self.terms.push(Term { negative, significand, unit, top });
            }
        }
    }

    fn product(&mut self, model: &MmaModel, a: u16, b: u16) {
        let flush = |number| match number {
            Number::Finite { negative, significand, unit, fields }
                if significand >> model.form.layout().mantissa() == 0 && !model.subnormal_operands =>
            {
                let _ = significand;
                Number::Finite { negative, significand: 0, unit, fields }
            }
            other => other,
        };
        let pair = (flush(model.form.decode(a)), flush(model.form.decode(b)));
        match pair {
            (
                Number::Finite { negative: na, significand: sa, unit: ua, fields: fa },
                Number::Finite { negative: nb, significand: sb, unit: ub, fields: fb },
            ) => {
                let significand = u64::from(sa) * u64::from(sb);
                let (negative, unit) = (na != nb, ua + ub);
                let each = |s: u32, u: i32, f: i32| match (s, model.exponent) {
                    (0, _) => model.zero_exponent,
                    (_, Exponent::Fields) => Some(f),
                    _ => Some(own(u64::from(s), u)),
                };
                let top = match model.exponent {
                    Exponent::Product if significand != 0 => Some(own(significand, unit)),
                    _ => each(sa, ua, fa).zip(each(sb, ub, fb)).map(|(a, b)| a + b),
                };
                self.terms.push(Term { negative, significand, unit, top });
            }
            (Number::Nan, _) | (_, Number::Nan) => self.nan = true,
            (Number::Infinite { negative: n }, other) | (other, Number::Infinite { negative: n }) => match other {
                Number::Finite { significand: 0, .. } | Number::Nan => self.nan = true,
                Number::Finite { negative, .. } | Number::Infinite { negative } => {
                    self.infinite[usize::from(negative != n)] = true;
                }
            },
        }
    }

    fn sum(&self, model: &MmaModel) -> u32 {
        match self.infinite {
            _ if self.nan => return model.nan,
            [true, true] => return model.nan,
            [true, false] => return f32::INFINITY.to_bits(),
            [false, true] => return f32::NEG_INFINITY.to_bits(),
            [false, false] => {}
        }
        if self.terms.iter().all(|term| term.significand == 0) {
            let negative = model.negative_zero && self.terms.iter().all(|term| term.negative);
            return if negative { F32.sign() } else { 0 };
        }
        let top = self.terms.iter().filter_map(|term| term.top).chain(model.floor).max().unwrap_or(0);
        let unit = top - model.bits as i32;
        let mut sum = 0_i128;
        for term in self.terms.iter().filter(|term| term.significand != 0) {
            let magnitude = u128::from(term.significand);
            let kept = match term.unit - unit {
                left @ 0.. => magnitude << left,
                right => rounded(magnitude, term.negative, right.unsigned_abs(), model.align),
            };
            sum += if term.negative { -(kept as i128) } else { kept as i128 };
        }
        model.to_f32(sum, unit)
    }
}

impl MmaModel {
    /// The f32 that `sum` times 2^`unit` becomes.
    fn to_f32(&self, sum: i128, unit: i32) -> u32 {
        let (negative, magnitude) = (sum < 0, sum.unsigned_abs());
        if magnitude == 0 {
            return 0;
        }
        let sign = if negative { F32.sign() } else { 0 };
        let exponent = unit + 127 - magnitude.leading_zeros() as i32;
        let lowest = exponent.max(F32.least()) - F32.mantissa();
        let digits = match lowest - unit {
            right @ 1.. => rounded(magnitude, negative, right.unsigned_abs(), self.round),
            left => magnitude << left.unsigned_abs(),
        } as u32;
        // The leading digit of a normal number adds one to the exponent's field, and so does a carry.
        let field = (lowest + F32.mantissa() - F32.least()) as u32;
        let subnormal = field == 0 && digits >> F32.mantissa() == 0;
        let bits = u64::from(field) * (1 << F32.mantissa()) + u64::from(digits);
        match u32::try_from(bits) {
            Ok(0) => {
                if self.underflow_sign {
                    sign
                } else {
                    0
                }
            }
            Ok(_) if subnormal && !self.subnormal_results => sign,
            Ok(bits) if bits < f32::INFINITY.to_bits() => sign | bits,
            _ if self.overflow_infinite => sign | f32::INFINITY.to_bits(),
            _ => sign | f32::MAX.to_bits(),
        }
    }

    /// How many steps an instruction has.
    pub fn step_count(&self) -> usize {
        self.steps.bytes().max().map_or(0, |last| usize::from(last.saturating_sub(b'0')) + 1)
    }

    /// Products that are added at once, the most of any step.
    pub fn products_a_step(&self) -> usize {
        let of = |step: usize| self.steps.bytes().filter(|s| usize::from(s.saturating_sub(b'0')) == step).count();
        (0..self.step_count()).map(of).max().unwrap_or(0)
    }

    /// What one instruction makes of accumulator `c` (bits of an f32) and the operands of one output, as many as the form has
    /// products: bits of an f32.
    pub fn accumulate(&self, c: u32, a: &[u16], b: &[u16]) -> u32 {
        let mut sum = if self.accumulator_last { 0 } else { c };
        for step in 0..self.step_count() {
            let mut gathered = Gathered { terms: Vec::with_capacity(a.len() + 1), ..Gathered::default() };
            if step > 0 || !self.accumulator_last {
                gathered.accumulator(self, sum);
            }
            let of_step = self.steps.bytes().map(|s| usize::from(s.saturating_sub(b'0')) == step);
            for ((a, b), _) in a.iter().zip(b).zip(of_step).filter(|(_, own)| *own) {
                gathered.product(self, *a, *b);
            }
            sum = gathered.sum(self);
        }
        if self.accumulator_last {
            let all = f32::from_bits(sum) + f32::from_bits(c);
            sum = if all.is_nan() { self.nan } else { all.to_bits() };
        }
        sum
    }

    /// The same for as many instructions as there are operands for, each into the accumulator of the one before.
    pub fn chain(&self, c: u32, a: &[u16], b: &[u16]) -> u32 {
        let k = self.form.products();
        a.chunks(k).zip(b.chunks(k)).fold(c, |sum, (a, b)| self.accumulate(sum, a, b))
    }
}

#[cfg(test)]
mod tests;

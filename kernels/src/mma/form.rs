//! Forms of mma.sync, and their operands as whole numbers times powers of two.

use serde::{Deserialize, Serialize};

/// A form of mma.sync with f32 sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// m16n8k16 of bf16.
    Bf16,
    /// m16n8k16 of f16.
    F16,
    /// m16n8k32 of E4M3 codes.
    E4m3,
}

/// A value taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// `significand` times 2^`unit`, and the exponent that its fields say: a subnormal's is that of the least normal.
    Finite {
        negative: bool,
        significand: u32,
        unit: i32,
        fields: i32,
    },
    Infinite {
        negative: bool,
    },
    Nan,
}

/// Bits of a floating-point format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    exponent: u32,
    mantissa: u32,
    /// The largest exponent belongs to finite values too, and one code of it to NaN.
    finite: bool,
}

/// f32.
pub(super) const F32: Layout = Layout { exponent: 8, mantissa: 23, finite: false };

impl Layout {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Exponent of the least normal.
    pub(super) fn least(self) -> i32 {
        1 - self.bias()
    }

    /// Digits behind the point.
    pub(super) fn mantissa(self) -> i32 {
        self.mantissa as i32
    }

    pub(super) fn sign(self) -> u32 {
        1 << (self.exponent + self.mantissa)
    }

    pub(super) fn decode(self, bits: u32) -> Number {
        let negative = bits & self.sign() != 0;
        let top = (1 << self.exponent) - 1;
        let (field, digits) = (bits >> self.mantissa & top, bits & ((1 << self.mantissa) - 1));
        match (field, digits) {
            (f, d) if self.finite && f == top && d == (1 << self.mantissa) - 1 => Number::Nan,
            (f, 0) if !self.finite && f == top => Number::Infinite { negative },
            (f, _) if !self.finite && f == top => Number::Nan,
            (0, significand) => {
                let fields = self.least();
                Number::Finite { negative, significand, unit: fields - self.mantissa(), fields }
            }
            (field, digits) => {
                let fields = field as i32 - self.bias();
                let significand = digits | 1 << self.mantissa;
                Number::Finite { negative, significand, unit: fields - self.mantissa(), fields }
            }
        }
    }

    /// The bits of `value` times 2^`unit`, if there are some.
    pub(super) fn encode(self, value: i64, unit: i32) -> Option<u32> {
        let sign = if value < 0 { self.sign() } else { 0 };
        let mut digits = value.unsigned_abs();
        if digits == 0 {
            return Some(sign);
        }
        let zeros = digits.trailing_zeros();
        digits >>= zeros;
        let unit = unit + zeros as i32;
        let top = unit + 63 - digits.leading_zeros() as i32;
        let lowest = top.max(self.least()) - self.mantissa();
        if unit < lowest {
            return None;
        }
        let digits = digits << (unit - lowest);
        let field = if top < self.least() { 0 } else { (top + self.bias()) as u32 };
        let bits = field << self.mantissa | (digits as u32 & ((1 << self.mantissa) - 1));
        let most = (1 << (self.exponent + self.mantissa)) - if self.finite { 1 } else { 1 << self.mantissa };
        (field < 1 << self.exponent && bits < most).then_some(sign | bits)
    }
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::F16, Self::E4m3];

    /// Its name in files, and of its operands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
        }
    }

    /// Products of one instruction for one output.
    pub fn products(self) -> usize {
        if self == Self::E4m3 { 32 } else { 16 }
    }

    pub(super) fn layout(self) -> Layout {
        match self {
            Self::Bf16 => Layout { exponent: 8, mantissa: 7, finite: false },
            Self::F16 => Layout { exponent: 5, mantissa: 10, finite: false },
            Self::E4m3 => Layout { exponent: 4, mantissa: 3, finite: true },
        }
    }

    /// Bits of an operand.
    pub(super) fn width(self) -> u32 {
        if self == Self::E4m3 { 8 } else { 16 }
    }

    pub(super) fn decode(self, bits: u16) -> Number {
        self.layout().decode(u32::from(bits))
    }

    /// The operand `value` times 2^`unit`.
    pub(super) fn operand(self, value: i64, unit: i32) -> Option<u16> {
        self.layout().encode(value, unit).map(|bits| bits as u16)
    }

    /// Two operands, normal ones where there are some, whose product is `value` times 2^`unit`; the first has the sign and the
    /// digits.
    pub(super) fn factors(self, value: i64, unit: i32) -> Option<(u16, u16)> {
        let normal = |bits: u16| match self.decode(bits) {
            Number::Finite { significand, .. } => significand >> self.layout().mantissa != 0,
            _ => false,
        };
        let pairs = || {
            // From the middle outwards.
            (0..600)
                .map(|i| unit.div_euclid(2) + if i % 2 == 0 { i / 2 } else { -(i / 2) - 1 })
                .filter_map(|second| Some((self.operand(value, unit - second)?, self.operand(1, second)?)))
        };
        pairs().find(|(a, b)| normal(*a) && normal(*b)).or_else(|| pairs().next())
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// The value of finite bits.
    fn value(number: Number) -> Option<f64> {
        let Number::Finite { negative, significand, unit, .. } = number else { return None };
        Some(f64::from(significand) * 2f64.powi(unit) * if negative { -1.0 } else { 1.0 })
    }

    #[test]
    fn every_operand_has_the_value_that_its_format_gives_it_and_is_found_by_it() {
        for bits in 0..=u16::MAX {
            let b = f64::from(bf16::from_bits(bits).to_f32());
            assert_eq!(value(Form::Bf16.decode(bits)), b.is_finite().then_some(b), "{bits:x}");
            let f = f16::from_bits(bits).to_f64();
            assert_eq!(value(Form::F16.decode(bits)), f.is_finite().then_some(f), "{bits:x}");
            for form in [Form::Bf16, Form::F16] {
                if let Number::Finite { negative, significand, unit, .. } = form.decode(bits) {
                    let value = i64::from(significand) * if negative { -1 } else { 1 };
                    let found = form.operand(value, unit).unwrap();
                    assert_eq!(found, if value == 0 { 0 } else { bits }, "{form:?} {bits:x}");
                }
            }
        }
        assert_eq!(value(Form::E4m3.decode(0x7e)), Some(448.0));
        assert_eq!(value(Form::E4m3.decode(0x81)), Some(-1.0 / 512.0));
        assert_eq!(Form::E4m3.decode(0x7f), Number::Nan);
        assert_eq!(Form::E4m3.operand(7, 6), Some(0x7e));
        assert_eq!(Form::E4m3.operand(15, 5), None);
        assert_eq!(Form::F16.operand(1, 16), None);
        assert_eq!(Form::F16.operand(1, -25), None);
        assert_eq!(F32.encode(3, -1), Some(1.5f32.to_bits()));
        assert_eq!(F32.encode(1, -149), Some(1));
    }

    #[test]
    fn factors_multiply_to_what_was_asked_for() {
        for form in Form::ALL {
            for (v, unit) in [(1_i64, 0), (-3, -9), (7, 5), (1, -17), (5, 8)] {
                let (a, b) = form.factors(v, unit).unwrap();
                let product = value(form.decode(a)).unwrap() * value(form.decode(b)).unwrap();
                assert_eq!(product, v as f64 * 2f64.powi(unit), "{form:?} {v} 2^{unit}");
            }
        }
        assert!(Form::E4m3.factors(1, -19).is_none() && Form::Bf16.factors(1, 255).is_none());
    }
}

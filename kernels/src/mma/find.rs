//! Questions to a machine, and the model that its answers speak for. Each question is a few cases whose answer each hypothesis
//! predicts, by hand; an answer that none predicts is kept as it came.

use std::collections::BTreeMap;

use karat_model::Result;
use serde::{Deserialize, Serialize};

use super::asked::{Asked, Made, Value, f32_bits};
use super::form::{F32, Form, Number};
use super::machine::Machine;
use super::model::{Exponent, MmaModel, Rounding};

/// What a machine was found to do in one form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormFound {
    /// The model that the answers speak for. Where `unexplained` is not empty, a part of it is a guess.
    pub model: MmaModel,
    /// Answers that no hypothesis predicts.
    pub unexplained: Vec<String>,
    /// Every case with its answer, by question.
    pub raw: BTreeMap<String, Vec<String>>,
}

/// The smallest accumulator beside a product of zero.
const DEEPEST: i32 = 125;

/// Where the cases of a form lie: the exponent of large addends, of the units of an order, and of what is smallest.
struct Scale {
    /// Large addends of most questions.
    high: i32,
    /// Units beside 2^`top` in the question of order: too small to be seen beside it.
    unit: i32,
    top: i32,
    /// Bits below `high` that are asked for.
    reach: i32,
}

fn scale(form: Form) -> Scale {
    match form {
        Form::Bf16 => Scale { high: 0, unit: 0, top: 60, reach: 48 },
        Form::F16 => Scale { high: 28, unit: -8, top: 28, reach: 48 },
        // Units of subnormal operands: 16 normal ones would be seen.
        Form::E4m3 => Scale { high: 16, unit: -14, top: 16, reach: 34 },
    }
}

/// The model that is not known yet: what the papers say of sm_90.
pub(super) fn claimed(form: Form) -> MmaModel {
    MmaModel {
        form,
        steps: "0".repeat(form.products()),
        accumulator_last: false,
        bits: 25,
        align: Rounding::TowardZero,
        round: Rounding::TowardZero,
        exponent: Exponent::Operands,
        zero_exponent: None,
        floor: None,
        subnormal_accumulator_as_normal: false,
        subnormal_operands: true,
        subnormal_accumulators: true,
        subnormal_results: true,
        negative_zero: false,
        underflow_sign: false,
        overflow_infinite: true,
        nan: 0x7fff_ffff,
    }
}

/// Asks a machine everything about one form.
///
/// # Errors
/// The device failed.
pub fn find(machine: &dyn Machine, form: Form) -> Result<FormFound> {
    let mut asked = Asked::new(machine, form);
    let mut model = claimed(form);
    order(&mut asked, &mut model)?;
    products(&mut asked)?;
    kept(&mut asked, &mut model)?;
    rounding(&mut asked, &mut model)?;
    subnormals(&mut asked, &mut model)?;
    exponents(&mut asked, &mut model)?;
    bottom(&mut asked, &mut model)?;
    zeros(&mut asked, &mut model)?;
    specials(&mut asked, &mut model)?;
    carries(&mut asked)?;
    between_steps(&mut asked, &model)?;
    alone(&mut asked)?;
    asked.hold(&model);
    Ok(FormFound { model, unexplained: asked.unexplained, raw: asked.raw })
}

/// Which addends meet first: of two that cancel, large, among units, the units that are added behind their meeting are left.
fn order(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let (form, k) = (asked.form, asked.form.products());
    let Scale { unit, top, .. } = scale(form);
    // Addend 0 is the accumulator.
    let mut cases = Vec::new();
    let mut pairs = Vec::new();
    for i in 0..=k {
        for j in i + 1..=k {
            let value = |n: usize| match n {
                _ if n == i => (1, top),
                _ if n == j => (-1, top),
                _ => (1, unit),
            };
            let made = asked.made(format!("{i} {j}"), value(0));
            cases.push((1..=k).fold(made, |made, n| made.put(n - 1, value(n))));
            pairs.push((i, j));
        }
    }
    let found = asked.ask("order: units left of cancelling addends i and j; 0: the accumulator", &cases)?;
    let left: Vec<usize> = found
        .iter()
        .map(|bits| bits.map_or(usize::MAX, |bits| (f64::from(f32::from_bits(bits)) / 2f64.powi(unit)) as usize))
        .collect();
    // The most units that any partner leaves beside a product: those of later steps (and the accumulator, if it comes last).
    let behind = |n: usize| {
        let own =
            |(pair, left): (&(usize, usize), &usize)| (pair.0 > 0 && (pair.0 == n || pair.1 == n)).then_some(*left);
        pairs.iter().zip(&left).filter_map(own).max().unwrap_or(0)
    };
    let by: Vec<usize> = (1..=k).map(behind).collect();
    let mut levels = by.clone();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    let steps: Vec<usize> = by.iter().map(|b| levels.iter().position(|l| l == b).unwrap_or(0)).collect();
    let later = |step: usize| steps.iter().filter(|s| **s > step).count();
    let predicted = |last: bool, (i, j): (usize, usize)| match (i, last) {
        (0, true) => 0,
        (0, false) => later(steps[j - 1]),
        _ => later(steps[i - 1].max(steps[j - 1])) + usize::from(last),
    };
    let fits = |last: bool| pairs.iter().zip(&left).all(|(pair, left)| predicted(last, *pair) == *left);
    model.accumulator_last = !fits(false) && fits(true);
    if levels.len() > 10 || !(fits(false) || fits(true)) {
        asked.wonder("order: no chain of steps", &[]);
        return Ok(());
    }
    model.steps = steps.iter().map(|s| char::from(b'0' + *s as u8)).collect();
    asked.slots = (0..k).filter(|i| steps[*i] == 0).collect();
    Ok(())
}

/// Whether a product has all its digits.
fn products(asked: &mut Asked<'_>) -> Result<()> {
    let digits = asked.form.layout().mantissa();
    let value = (1 << digits) + 1;
    let made = asked.made("(1 + ulp)^2", (0, 0)).times(asked.slots[0], (value, -digits), (value, -digits));
    let found = asked.ask("products", &[made])?;
    let exact = vec![Some(f32_bits((value * value, -2 * digits)))];
    let short = vec![Some(f32_bits((value + 1, -digits)))];
    if !asked.choose("products: exact", &found, &[(true, exact), (false, short)], false) {
        asked.unexplained.push("products: not exact".to_string());
    }
    Ok(())
}

/// How many bits below the largest addend are kept, of a product and of the accumulator, whichever is the largest.
fn kept(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let Scale { high, reach, .. } = scale(asked.form);
    let small = |q: i32| f32_bits((1, high - q));
    let large = (1, high);
    let negative = (-1, high);
    let products = asked.scan(
        "bits kept: product beside products",
        1..=reach,
        &|asked, q| asked.case(format!("q={q}"), (0, 0), &[large, negative, (1, high - q)]),
        &small,
    )?;
    let accumulator = asked.scan(
        "bits kept: accumulator beside products",
        1..=reach,
        &|asked, q| asked.case(format!("q={q}"), (1, high - q), &[large, negative]),
        &small,
    )?;
    let beside = asked.scan(
        "bits kept: product beside the accumulator",
        1..=reach,
        &|asked, q| asked.case(format!("q={q}"), large, &[negative, (1, high - q)]),
        &small,
    )?;
    match products {
        Some(bits) => model.bits = bits as u32,
        None => asked.unexplained.push("bits kept: none of a product".to_string()),
    }
    // The accumulator that comes last is not aligned with products.
    if !model.accumulator_last && (accumulator != products || beside != products) {
        asked
            .unexplained
            .push(format!("bits kept: {products:?}, of the accumulator {accumulator:?}, beside it {beside:?}"));
    }
    Ok(())
}

/// Rounding of what is aligned, and of the sum.
fn rounding(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let high = scale(asked.form).high;
    let (large, negative) = ((1, high), (-1, high));
    let unit = high - model.bits as i32;
    let at = |units: i64| Some(f32_bits((units, unit)));
    let hypotheses = |toward: [i64; 4], down: [i64; 4], nearest: [i64; 4]| {
        [(Rounding::TowardZero, toward), (Rounding::Down, down), (Rounding::NearestEven, nearest)]
            .map(|(how, units)| (how, units.map(at).to_vec()))
    };
    // 1.5, -1.5, 7/8 and -7/8 units.
    let smalls: [Value; 4] = [(3, unit - 1), (-3, unit - 1), (7, unit - 3), (-7, unit - 3)];
    let predicted = hypotheses([1, -1, 0, 0], [1, -2, 0, -1], [2, -2, 1, -1]);
    let cases: Vec<Made> =
        smalls.iter().map(|v| asked.case(format!("{v:?}"), (0, 0), &[large, negative, *v])).collect();
    let found = asked.ask("alignment: of 1.5, -1.5, 7/8, -7/8 units of a product", &cases)?;
    model.align = asked.choose("alignment", &found, &predicted, model.align);
    if !model.accumulator_last {
        let cases: Vec<Made> = smalls.iter().map(|v| asked.case(format!("{v:?}"), *v, &[large, negative])).collect();
        let found = asked.ask("alignment: of 1.5, -1.5, 7/8, -7/8 units of the accumulator", &cases)?;
        let accumulator = asked.choose("alignment of the accumulator", &found, &predicted, model.align);
        if accumulator != model.align {
            asked.unexplained.push(format!("alignment: {:?}, of the accumulator {accumulator:?}", model.align));
        }
    }
    // A sum of fewer bits is never rounded.
    if model.bits < 23 {
        return Ok(());
    }
    // 2 + its last place + half of it, the same negative, 2 + half a last place. A carry shows what 23 bits below the largest addend
    // would hide.
    let tie = |sign: i64, odd: bool| {
        let last = if odd { (sign, high - 22) } else { (0, 0) };
        asked.case(format!("{sign} {odd}"), last, &[(sign, high), (sign, high), (sign, high - 23)])
    };
    let cases = [tie(1, true), tie(-1, true), tie(1, false)];
    let found = asked
        .ask("rounding of a sum: a tie behind an odd last place, the same negative, behind an even one", &cases)?;
    let sum = |sign: i64, places: i64| Some(f32_bits((sign * ((1 << 23) + places), high - 22)));
    let predicted = [
        (Rounding::TowardZero, vec![sum(1, 1), sum(-1, 1), sum(1, 0)]),
        (Rounding::Down, vec![sum(1, 1), sum(-1, 2), sum(1, 0)]),
        (Rounding::NearestEven, vec![sum(1, 2), sum(-1, 2), sum(1, 0)]),
    ];
    model.round = asked.choose("rounding of a sum", &found, &predicted, model.round);
    Ok(())
}

/// The least subnormal of a form as an operand, and a power of two to multiply it with.
fn least(form: Form) -> (Value, Value) {
    let layout = form.layout();
    let other = match form {
        Form::Bf16 => 127,
        Form::F16 => 15,
        Form::E4m3 => 8,
    };
    ((1, layout.least() - layout.mantissa()), (1, other))
}

/// Whether subnormal operands, accumulators and results count.
fn subnormals(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let (small, large) = least(asked.form);
    let first = asked.slots[0];
    let made = asked.made("least operand", (0, 0)).times(first, small, large);
    let found = asked.ask("subnormal operand", &[made])?;
    let value = f32_bits((1, small.1 + large.1));
    let either = |value: u32| [(true, vec![Some(value)]), (false, vec![Some(0)])];
    model.subnormal_operands = asked.choose("subnormal operand", &found, &either(value), true);
    // No product of small formats is as small as a subnormal f32: it must come as an accumulator.
    let accumulator = (5, -149);
    if asked.form == Form::Bf16 {
        let result = asked.case("product 5 * 2^-145", (0, 0), &[(5, -145)]);
        let found = asked.ask("subnormal result", &[result])?;
        model.subnormal_results = asked.choose("subnormal result", &found, &either(f32_bits((5, -145))), true);
        // Sum and product are normal.
        let beside = asked.case("5 * 2^-149 + 2^-125", accumulator, &[(1, -125)]);
        let found = asked.ask("subnormal accumulator", &[beside])?;
        let predicted = [(true, vec![Some(f32_bits(((1 << 24) + 4, -149)))]), (false, vec![Some(f32_bits((1, -125)))])];
        model.subnormal_accumulators = asked.choose("subnormal accumulator", &found, &predicted, true);
    } else {
        let alone = asked.made("alone", accumulator);
        let found = asked.ask("subnormal accumulator", &[alone])?;
        let kept = asked.choose("subnormal accumulator", &found, &either(f32_bits(accumulator)), true);
        (model.subnormal_accumulators, model.subnormal_results) = (kept, kept);
    }
    Ok(())
}

/// What exponent a product is aligned by, and whether one of zero is.
fn exponents(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let bits = model.bits as i32;
    // The small addend of these questions is the accumulator; a product where that comes last, and E4M3 alone was seen to do so.
    let last = model.accumulator_last;
    if last && asked.form != Form::E4m3 {
        asked.unexplained.push("exponents: not asked where the accumulator comes last".to_string());
        return Ok(());
    }
    let [first, second, third, ..] = asked.slots[..] else { return Ok(()) };
    let high = scale(asked.form).high;
    let (half, other) = (high / 2, high - high / 2);
    let beside = |asked: &Asked<'_>, name: String, small: Value| {
        if last { asked.made(name, (0, 0)).put(third, small) } else { asked.made(name, small) }
    };
    // 1.5 * 1.5 = 2.25: one above the sum of exponents.
    let of_two = asked.scan(
        "exponent of 1.5 * 1.5",
        bits - 3..=bits + 2,
        &|asked, q| {
            let made = beside(asked, format!("q={q}"), (1, high - q)).times(first, (3, half - 1), (3, other - 1));
            made.times(second, (-3, half - 1), (3, other - 1))
        },
        &|q| f32_bits((1, high - q)),
    )?;
    let own_exponent = match of_two {
        Some(q) if q == bits => false,
        Some(q) if q == bits - 1 => true,
        other => {
            asked.unexplained.push(format!("exponent of 1.5 * 1.5: {other:?} bits below kept, of {bits}"));
            false
        }
    };
    if last {
        // Beside subnormals and zeros even the smallest product of E4M3 keeps all its bits: what these are aligned by can't be seen.
        model.exponent = if own_exponent { Exponent::Product } else { Exponent::Operands };
        return Ok(());
    }
    let (small, large) = least(asked.form);
    let value = small.1 + large.1;
    let digits = asked.form.layout().mantissa();
    let of_subnormal = asked.scan(
        "exponent of a subnormal operand",
        bits - digits - 2..=bits + 2,
        &|asked, q| {
            let made = asked.made(format!("q={q}"), (1, value - q)).times(first, small, large);
            made.times(second, (-small.0, small.1), large)
        },
        &|q| f32_bits((1, value - q)),
    )?;
    model.exponent = match of_subnormal {
        _ if own_exponent => Exponent::Product,
        _ if !model.subnormal_operands => Exponent::Operands,
        Some(q) if q == bits => Exponent::Operands,
        Some(q) if q == bits - digits => Exponent::Fields,
        other => {
            asked.unexplained.push(format!("exponent of a subnormal operand: {other:?} bits below kept, of {bits}"));
            Exponent::Operands
        }
    };
    // Beside 0 * large: an accumulator that is smaller than what is kept below the exponent of that is lost.
    let of_zero = asked.scan(
        "exponent of zero",
        1..=DEEPEST,
        &|asked, q| asked.made(format!("2^-{q}"), (1, -q)).times(first, (0, 0), large),
        &|q| f32_bits((1, -q)),
    )?;
    model.zero_exponent = match of_zero {
        Some(DEEPEST) => None,
        Some(q) => Some(bits - q - large.1),
        None => {
            asked.unexplained.push("exponent of zero: nothing kept".to_string());
            None
        }
    };
    if model.zero_exponent.is_some() && asked.form != Form::Bf16 {
        // It was lost beside zeros, whatever it is.
        (model.subnormal_accumulators, model.subnormal_results) = (true, true);
    }
    Ok(())
}

/// The least exponent that is aligned to, and that of a subnormal accumulator: bf16 alone has products that are small enough.
fn bottom(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let bits = model.bits as i32;
    let able = model.round == Rounding::TowardZero && model.align == Rounding::TowardZero && model.subnormal_results;
    if asked.form != Form::Bf16 || !able || model.accumulator_last {
        return Ok(());
    }
    // 2^-149 less something is rounded to zero while that is kept, and 2^-149 once it is lost.
    let of_products = asked.scan(
        "bottom: 2^-149 less a product",
        150..=149 + bits + 2,
        &|asked, q| asked.case(format!("2^-{q}"), (0, 0), &[(1, -149), (-1, -q)]),
        &|_| 0,
    )?;
    let Some(q) = of_products else {
        asked.unexplained.push("bottom: nothing is kept below 2^-149".to_string());
        return Ok(());
    };
    let floor = bits - q;
    model.floor = (floor != -149).then_some(floor);
    if model.subnormal_accumulators {
        let of_accumulator = asked.scan(
            "bottom: an accumulator of 2^-148, less 2^-149 and a product",
            150..=149 + bits + 2,
            &|asked, q| asked.case(format!("2^-{q}"), (1, -148), &[(-1, -149), (-1, -q)]),
            &|_| 0,
        )?;
        let found = of_accumulator.map(|q| bits - q);
        let own = model.floor.unwrap_or(-148).max(-148);
        model.subnormal_accumulator_as_normal = match found {
            Some(exponent) if exponent == own => false,
            Some(exponent) if exponent == F32.least() => true,
            other => {
                asked.unexplained.push(format!("bottom: a subnormal accumulator is aligned by {other:?}"));
                false
            }
        };
    }
    Ok(())
}

/// Signs of sums that are zero.
fn zeros(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let k = asked.form.products();
    let sign = F32.sign();
    let minus = asked.form.layout().sign() as u16;
    let one = asked.form.operand(1, 0).unwrap_or(0);
    let all_negative = (0..k).fold(asked.made("all negative", (0, 0)).c(sign), |made, i| made.bits(i, minus, one));
    let found = asked.ask("zero: of negative zeros alone", &[all_negative])?;
    let either = [(true, vec![Some(sign)]), (false, vec![Some(0)])];
    model.negative_zero = asked.choose("zero: of negative zeros alone", &found, &either, false);
    let high = scale(asked.form).high;
    let lost = high - model.bits as i32 - 3;
    let cases = [
        asked.made("-0 and products of +0", (0, 0)).c(sign),
        asked.case("1 - 1", (0, 0), &[(1, high), (-1, high)]),
        asked.case("1 - 1, accumulator -0", (0, 0), &[(1, high), (-1, high)]).c(sign),
        asked.case("1 - 1 less what alignment loses", (-1, lost), &[(1, high), (-1, high)]),
    ];
    let found = asked.ask("zero: others", &cases)?;
    let down = model.align == Rounding::Down;
    let lost = if down { f32_bits((-1, high - model.bits as i32)) } else { 0 };
    let lost = if model.accumulator_last { found[3] } else { Some(lost) };
    if found[..] != [Some(0), Some(0), Some(0), lost] {
        asked.wonder("zero: not positive", &found);
    }
    if asked.form == Form::Bf16 && model.round == Rounding::TowardZero {
        let made = asked.case("-2^-150", (0, 0), &[(-1, -150)]);
        let found = asked.ask("zero: of a negative sum below all subnormals", &[made])?;
        model.underflow_sign = asked.choose("zero: of a negative sum below all subnormals", &found, &either, false);
    }
    Ok(())
}

/// Infinities, NaN, and sums beyond f32.
fn specials(asked: &mut Asked<'_>, model: &mut MmaModel) -> Result<()> {
    let layout = asked.form.layout();
    let bits_of = |wanted: fn(Number) -> bool| {
        (0..1 << asked.form.width()).map(|b: u32| b as u16).find(|bits| wanted(asked.form.decode(*bits)))
    };
    let nan = bits_of(|n| n == Number::Nan).unwrap_or(0);
    let infinite = bits_of(|n| n == Number::Infinite { negative: false });
    let one = asked.form.operand(1, 0).unwrap_or(0);
    let minus = layout.sign() as u16;
    let (first, second) = (asked.slots[0], asked.slots[1]);
    let form = asked.form;
    let plain = |name: &str, c: f32| Made::new(form, name, (0, 0)).c(c.to_bits());
    let mut cases = vec![
        plain("NaN * 1", 0.0).bits(first, nan, one),
        plain("NaN * 0", 0.0).bits(first, nan, 0),
        asked.made("accumulator NaN with digits", (0, 0)).c(0x7fc1_2345),
        asked.made("accumulator NaN, negative, quiet bit not set", (0, 0)).c(0xff81_2345),
    ];
    if let Some(infinite) = infinite {
        cases.push(plain("inf * 0", 0.0).bits(first, infinite, 0));
        cases.push(plain("inf - inf", 0.0).bits(first, infinite, one).bits(second, infinite | minus, one));
        cases.push(plain("inf - inf of the accumulator", f32::NEG_INFINITY).bits(first, infinite, one));
    }
    let found = asked.ask("NaN", &cases)?;
    match found.first().copied().flatten() {
        Some(bits) if f32::from_bits(bits).is_nan() && found.iter().all(|f| *f == Some(bits)) => model.nan = bits,
        _ => asked.wonder("NaN: not one and the same", &found),
    }
    let mut cases = vec![plain("accumulator inf", f32::INFINITY), plain("accumulator -inf", f32::NEG_INFINITY)];
    let mut predicted = vec![Some(f32::INFINITY.to_bits()), Some(f32::NEG_INFINITY.to_bits())];
    if let Some(infinite) = infinite {
        cases.push(plain("inf * 1", 0.0).bits(first, infinite, one));
        cases.push(plain("inf * -1 - large", f32::MAX).bits(first, infinite, one | minus));
        predicted.extend([Some(f32::INFINITY.to_bits()), Some(f32::NEG_INFINITY.to_bits())]);
    }
    let found = asked.ask("infinities", &cases)?;
    if found != predicted {
        asked.wonder("infinities", &found);
    }
    if asked.form == Form::Bf16 {
        let made = [
            asked.case("largest + 2^127", ((1 << 24) - 1, 104), &[(1, 127)]),
            asked.case("-largest - 2^127", (1 - (1 << 24), 104), &[(-1, 127)]),
            asked.case("product of 2^130", (0, 0), &[(1, 130)]),
        ];
        let found = asked.ask("beyond f32", &made)?;
        let signs = |v: f32| vec![Some(v.to_bits()), Some((-v).to_bits()), Some(v.to_bits())];
        let predicted = [(true, signs(f32::INFINITY)), (false, signs(f32::MAX))];
        model.overflow_infinite = asked.choose("beyond f32", &found, &predicted, true);
        let made = [
            asked.case("largest + 2^127 - 2^127", ((1 << 24) - 1, 104), &[(1, 127), (-1, 127)]),
            asked.case("2^200 - 2^200", (0, 0), &[(1, 200), (-1, 200)]),
        ];
        let found = asked.ask("beyond f32 within a step", &made)?;
        // Of the largest number, aligned with 2^127, nothing is lost.
        if !model.accumulator_last && found != [Some(f32::MAX.to_bits()), Some(0)] {
            asked.wonder("beyond f32 within a step", &found);
        }
    }
    Ok(())
}

/// Whether a full step loses its carries: 1.75 * 1.75 everywhere.
fn carries(asked: &mut Asked<'_>) -> Result<()> {
    let k = asked.form.products();
    let all = |name: &str, sign: i64| {
        let made = asked.made(name, (sign * 49, -4));
        (0..k).fold(made, |made, i| made.times(i, (sign * 7, -2), (7, -2)))
    };
    let found = asked.ask("carries", &[all("all 1.75^2", 1), all("all negative", -1)])?;
    let sum = (k as i64 + 1) * 49;
    if found != [Some(f32_bits((sum, -4))), Some(f32_bits((-sum, -4)))] {
        asked.wonder("carries: lost", &found);
    }
    Ok(())
}

/// Accumulators of many sizes beside products that are all zero: the model that was found must say what comes out.
fn alone(asked: &mut Asked<'_>) -> Result<()> {
    let cases: Vec<Made> =
        (0..14).map(|i| 120 - 20 * i).map(|e| asked.made(format!("5 * 2^{e}"), (5, e.max(-149)))).collect();
    asked.ask("accumulator beside zeros", &cases).map(drop)
}

/// Whether what goes from one step to the next is an f32.
fn between_steps(asked: &mut Asked<'_>, model: &MmaModel) -> Result<()> {
    let Some(next) = model.steps.bytes().position(|s| s == b'1') else { return Ok(()) };
    let high = scale(asked.form).high;
    let made = asked.case("1 + 2^-24, then - 1", (0, 0), &[(1, high), (1, high - 24)]).put(next, (-1, high));
    let found = asked.ask("between steps", &[made])?;
    let rounded =
        if model.round == Rounding::NearestEven || model.bits < 24 { Some(0) } else { found[0].filter(|b| *b == 0) };
    if found[0] != rounded {
        asked.wonder("between steps: more than an f32", &found);
    }
    Ok(())
}

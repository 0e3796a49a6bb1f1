//! A machine and a model on the same operands, bit by bit: random ones, and ones that are made to be hard.

use karat_model::Result;
use serde::{Deserialize, Serialize};

use super::form::{F32, Form, Number};
use super::machine::{COLUMNS, Machine, ROWS, Tiles};
use super::model::MmaModel;

/// Differences of which operands are kept, of each class.
const KEPT: usize = 6;

/// Operands of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// What they are.
    pub name: String,
    /// Instructions one after the other into one accumulator.
    pub chain: usize,
    /// Outputs that were compared.
    pub compared: u64,
    /// Those whose bits differ.
    pub different: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<Differing>,
}

/// An output that the model has otherwise; all in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differing {
    /// The accumulator.
    pub c: String,
    /// Left operands.
    pub a: String,
    /// Right ones.
    pub b: String,
    /// What the device made of them.
    pub device: String,
    /// What the model makes.
    pub model: String,
}

/// Numbers from a counter (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From `low` to `high`.
    fn within(&mut self, low: i32, high: i32) -> i32 {
        low + self.below((high - low + 1) as u64) as i32
    }
}

/// Kinds of operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Like activations and weights: a bell around zero.
    Plain,
    /// Positive ones alone.
    OneSigned,
    /// Exponents far apart.
    Mixed,
    /// Pairs of products that cancel, up to a last place.
    Cancelling,
    /// Few products that are not zero.
    Sparse,
    /// Operands around the least normal, products around the least f32 where the format has such.
    Subnormal,
    /// Any finite bits.
    Bits,
    /// Any bits: infinities and NaN among them.
    Special,
}

const KINDS: [(Kind, &str); 8] = [
    (Kind::Plain, "a bell around zero"),
    (Kind::OneSigned, "all positive"),
    (Kind::Mixed, "exponents far apart"),
    (Kind::Cancelling, "products that cancel in pairs"),
    (Kind::Sparse, "few products that are not zero"),
    (Kind::Subnormal, "around the smallest"),
    (Kind::Bits, "any finite bits"),
    (Kind::Special, "any bits, with infinities and NaN"),
];

/// Exponents that operands of a form have.
fn range(form: Form) -> (i32, i32) {
    match form {
        Form::Bf16 => (-126, 127),
        Form::F16 => (-14, 15),
        Form::E4m3 => (-6, 8),
    }
}

/// Any digits with this sign and exponent, a subnormal where the exponent is too small.
fn with_exponent(random: &mut Random, form: Form, exponent: i32, negative: bool) -> u16 {
    let digits = form.layout().mantissa();
    let (least, most) = range(form);
    let exponent = exponent.clamp(least - digits, most);
    let drop = (least - exponent).clamp(0, digits);
    let significand = (1 << digits | random.below(1 << digits) as i64) >> drop;
    let value = if negative { -significand } else { significand };
    let sign = if negative { form.layout().sign() as u16 } else { 0 };
    form.operand(value, exponent - digits + drop).unwrap_or(sign)
}

/// Operands of a row or a column.
fn vector(random: &mut Random, form: Form, kind: Kind, left: bool, span: i32, width: usize) -> Vec<u16> {
    let (least, most) = range(form);
    let mut one = |i: usize| -> u16 {
        let negative = random.next() & 1 == 1;
        match kind {
            Kind::Plain | Kind::Cancelling => {
                // The exponent of a bell: half of the values lie within one of the top.
                let down = (random.next() | 1 << 20).trailing_zeros() as i32;
                with_exponent(random, form, 1.min(most) - down.min(span.max(4)), negative)
            }
            Kind::OneSigned => {
                let down = random.within(0, 3);
                with_exponent(random, form, -down, false)
            }
            Kind::Mixed => {
                let e = random.within(-span, span);
                with_exponent(random, form, e.clamp(least, most), negative)
            }
            Kind::Sparse => {
                // The same few places on both sides.
                let there = (i * 7 + span as usize).is_multiple_of(5) || random.below(6) == 0;
                let e = random.within(-span, span);
                let sign = if negative { form.layout().sign() as u16 } else { 0 };
                if there { with_exponent(random, form, e.clamp(least, most), negative) } else { sign }
            }
            Kind::Subnormal => {
                let digits = form.layout().mantissa();
                let e = match form {
                    Form::Bf16 if span % 3 > 0 => random.within(-88, -62),
                    Form::Bf16 if left => random.within(least - digits, least + 3),
                    Form::Bf16 => random.within(-30, 127),
                    _ => random.within(least - digits, least + 2),
                };
                // A zero beside a large operand.
                if left && random.below(4) == 0 {
                    return 0;
                }
                with_exponent(random, form, e, negative)
            }
            Kind::Bits | Kind::Special => {
                let bits = random.below(1 << form.width()) as u16;
                match form.decode(bits) {
                    Number::Finite { .. } => bits,
                    _ if kind == Kind::Special => bits,
                    _ => 0,
                }
            }
        }
    };
    (0..width).map(&mut one).collect()
}

/// The value of an operand.
fn value(form: Form, bits: u16) -> f64 {
    match form.decode(bits) {
        Number::Finite { negative, significand, unit, .. } => {
            f64::from(significand) * 2f64.powi(unit) * if negative { -1.0 } else { 1.0 }
        }
        _ => 0.0,
    }
}

/// An accumulator for these operands.
fn accumulator(random: &mut Random, values: &[f64], kind: Kind, a: &[u16], b: &[u16]) -> u32 {
    let products = || a.iter().zip(b).map(|(a, b)| values[usize::from(*a)] * values[usize::from(*b)]);
    let largest = products().fold(0.0_f64, |top, p| top.max(p.abs()));
    let about = if largest > 0.0 { largest.log2().floor() as i32 } else { 0 };
    let sign = if random.next() & 1 == 1 && kind != Kind::OneSigned { F32.sign() } else { 0 };
    let digits = random.below(1 << 23) as u32;
    let at = |exponent: i32| match exponent {
        e @ -126..=127 => sign | ((e + 127) as u32) << 23 | digits,
        ..-126 => sign | digits >> (-126 - exponent).clamp(0, 31),
        _ => sign | 254 << 23 | digits,
    };
    match random.below(8) {
        0 => 0,
        1 => sign,
        2 => at(about),
        3 => at(about + random.within(0, 3)),
        4 => at(about + random.within(-30, 30)),
        5 => at(random.within(-150, if kind == Kind::Special { 128 } else { about.clamp(-149, 127) })),
        6 if kind == Kind::Special => random.next() as u32,
        // What the products add up to, negative, up to a few last places.
        _ => {
            let sum = -products().sum::<f64>() as f32;
            if sum.is_finite() { sum.to_bits() ^ random.below(4) as u32 } else { 0 }
        }
    }
}

/// One tile more.
fn tile(random: &mut Random, tiles: &mut Tiles, kind: Kind, values: &[f64]) {
    let (form, width) = (tiles.form, tiles.width());
    let span = match form {
        Form::Bf16 => random.within(1, 50),
        Form::F16 => random.within(1, 14),
        Form::E4m3 => random.within(1, 8),
    };
    let mut columns: Vec<Vec<u16>> = (0..COLUMNS).map(|_| vector(random, form, kind, false, span, width)).collect();
    let mut rows: Vec<Vec<u16>> = (0..ROWS).map(|_| vector(random, form, kind, true, span, width)).collect();
    if kind == Kind::Cancelling {
        // Partners anywhere; of every third row, one digit is off.
        let mut order: Vec<usize> = (0..width).collect();
        (1..width).for_each(|i| order.swap(i, random.below(i as u64 + 1) as usize));
        for pair in order.chunks_exact(2) {
            columns.iter_mut().for_each(|column| column[pair[1]] = column[pair[0]]);
            for (i, row) in rows.iter_mut().enumerate() {
                let off = u16::from(i % 3 == 0 && random.below(4) == 0);
                row[pair[1]] = row[pair[0]] ^ form.layout().sign() as u16 ^ off;
            }
        }
    }
    for row in &rows {
        for column in &columns {
            tiles.c.push(accumulator(random, values, kind, row, column));
        }
    }
    rows.iter().for_each(|row| tiles.a.extend(row));
    columns.iter().for_each(|column| tiles.b.extend(column));
}

fn hex(form: Form, values: &[u16]) -> String {
    let digits = form.width() as usize / 4;
    values.iter().map(|v| format!("{v:0digits$x}")).collect::<Vec<_>>().join(" ")
}

/// Compares `tiles` tiles of each kind of single instructions, and half as many of chains of four: 128 outputs a tile.
///
/// # Errors
/// The device failed.
pub fn compare(machine: &dyn Machine, model: &MmaModel, tiles: usize, threads: usize) -> Result<Vec<Class>> {
    let values: Vec<f64> = (0..1 << model.form.width()).map(|bits: u32| value(model.form, bits as u16)).collect();
    let mut out = Vec::new();
    for (n, (kind, name)) in KINDS.into_iter().enumerate() {
        for (chain, tiles) in [(1, tiles), (4, tiles.div_ceil(2))] {
            let mut random = Random((n as u64) << 32 | chain as u64 | (model.form as u64) << 48);
            let mut all = Tiles::new(model.form, chain);
            (0..tiles).for_each(|_| tile(&mut random, &mut all, kind, &values));
            let found = machine.run(&all)?;
            let share = found.len().div_ceil(threads.max(1)).max(1);
            let counts: Vec<(u64, Vec<Differing>)> = std::thread::scope(|scope| {
                let one = |at: usize, found: &[u32]| {
                    let (mut different, mut first) = (0, Vec::new());
                    for (i, device) in found.iter().enumerate() {
                        let (a, b, c) = all.of(at + i);
                        let model_bits = model.chain(c, a, b);
                        if model_bits == *device {
                            continue;
                        }
                        different += 1;
                        if first.len() < KEPT {
                            first.push(Differing {
                                c: format!("{c:08x}"),
                                a: hex(all.form, a),
                                b: hex(all.form, b),
                                device: format!("{device:08x}"),
                                model: format!("{model_bits:08x}"),
                            });
                        }
                    }
                    (different, first)
                };
                let parts: Vec<_> = found
                    .chunks(share)
                    .enumerate()
                    .map(|(i, part)| scope.spawn(move || one(i * share, part)))
                    .collect();
                let joined = parts.into_iter().map(std::thread::ScopedJoinHandle::join);
                joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            });
            let different = counts.iter().map(|(n, _)| n).sum();
            let first = counts.into_iter().flat_map(|(_, first)| first).take(KEPT).collect();
            out.push(Class { name: name.to_string(), chain, compared: found.len() as u64, different, first });
        }
    }
    Ok(out)
}

//! Makes a tensor by its recipe: shards joined, chunks stitched, axes turned, values rounded.

use karat_model::{Error, Result};
use karat_seam::Data;

use super::Recipe;
use super::plan::Part;
use super::rule::{Join, Rule};
use crate::Dtype;
use crate::import::Array;
use crate::values::decode;

/// A tensor that a recipe made.
pub struct Built {
    /// The tensor.
    pub array: Array,
    /// What is wrong with it though it could be made: replicas that differ.
    pub problem: Option<String>,
}

/// Makes a tensor. `get` gives a tensor of the dump. Errors (input): parts that don't fit each other or the rule.
pub(crate) fn build(recipe: &Recipe, get: &dyn Fn(&str) -> Result<Array>) -> Result<Built> {
    let Some(rule) = &recipe.rule else {
        let name = recipe.parts.first().map_or("", |p| p.name.as_str());
        return Ok(Built { array: get(name)?, problem: None });
    };
    let mut problem = None;
    let mut chunks: Vec<(&Part, Array)> = Vec::new();
    for group in recipe.parts.chunk_by(|a, b| a.chunk == b.chunk) {
        let shards = group.iter().map(|p| get(&p.name)).collect::<Result<Vec<_>>>()?;
        if let Some((p, a)) =
            group.iter().zip(&shards).find(|(_, a)| rule.rank.is_some_and(|rank| rank != a.shape().len()))
        {
            let error =
                Error::input("tensor has another number of axes than the rule names").at(format!("tensor {}", p.name));
            return Err(error.expected(rule.rank.unwrap_or(0)).found(format!("shape {:?}", a.shape())));
        }
        let names: Vec<&str> = group.iter().map(|p| p.name.as_str()).collect();
        let whole = match rule.shard.as_ref().map(|(_, join, axis)| (*join, *axis)) {
            Some((Join::Concat, axis)) => concat(&shards, axis).map_err(|e| e.at(names.join(", ")))?,
            Some((Join::Sum, _)) => sum(&shards).map_err(|e| e.at(names.join(", ")))?,
            Some((Join::Replica, _)) => {
                problem = problem.or(differing_replica(&names, &shards)?);
                shards[0].clone()
            }
            None => shards[0].clone(),
        };
        chunks.push((&group[0], whole));
    }
    let mut array = stitch(rule, chunks, get)?;
    for (axis, [start, end]) in &rule.keep {
        array = array.cut(*axis, *start..*end)?;
    }
    array = turn(rule, recipe.slice, array)?;
    if let Some(wanted) = &rule.reshape {
        array = reshape(&array, wanted)?;
    }
    if let Some(dtype) = rule.cast {
        array = cast(&array, dtype)?;
    }
    Ok(Built { array, problem })
}

/// Cuts the selected indices out and puts the axes that are left in order.
fn turn(rule: &Rule, slice: Option<usize>, mut array: Array) -> Result<Array> {
    // Axis numbers of the rule that are still there, in the array's order.
    let mut left: Vec<usize> = (0..array.shape().len()).collect();
    let mut cuts = rule.select.clone();
    cuts.extend(rule.unstack.as_ref().zip(slice).map(|((axis, _), index)| (*axis, index)));
    if let Some(((axis, layers), _)) = rule.unstack.as_ref().zip(slice)
        && array.shape().get(*axis) != Some(&layers.len())
    {
        let error = Error::input("`layers` doesn't name each index of the axis")
            .expected(format!("{} layers", array.shape().get(*axis).unwrap_or(&0)));
        return Err(error.found(layers.len()));
    }
    cuts.sort_unstable_by(|a, b| b.cmp(a));
    for (axis, index) in cuts {
        array = array.cut(axis, index..index.saturating_add(1))?.without(axis)?;
        left.remove(axis);
    }
    if let Some(order) = &rule.order {
        for at in (0..left.len()).rev() {
            if !order.contains(&left[at]) {
                array = array.without(at)?;
                left.remove(at);
            }
        }
        let place = |axis: &usize| left.iter().position(|l| l == axis);
        let order: Option<Vec<usize>> = order.iter().map(place).collect();
        array = array.permuted(&order.unwrap_or_default())?;
    }
    Ok(array)
}

/// The chunks of a tensor in the order of their positions, or of their numbers.
fn stitch(rule: &Rule, chunks: Vec<(&Part, Array)>, get: &dyn Fn(&str) -> Result<Array>) -> Result<Array> {
    let Some((_, axis, positions)) = &rule.chunks else {
        return chunks.into_iter().next().map(|(_, a)| a).ok_or_else(|| Error::input("no part of the tensor is there"));
    };
    let arrays: Vec<Array> = chunks.iter().map(|(_, a)| a.clone()).collect();
    let Some(pattern) = positions else { return concat(&arrays, *axis) };
    let mut order: Vec<(i64, usize)> = Vec::new();
    for (part, array) in &chunks {
        let name =
            pattern.fill(&part.words).ok_or_else(|| Error::input("`positions` has a word that `from` doesn't have"))?;
        let fail = |what: &str| Error::input(what).at(format!("tensor {name}"));
        let list = get(&name)?;
        let Data::I64(values) = decode(list.dtype(), list.shape(), &list.read()?)?.data else {
            return Err(fail("positions are not integers").found(list.dtype().name()));
        };
        let rows = array.shape().get(*axis).copied().unwrap_or(0);
        if values.len() != rows {
            return Err(fail("positions don't fit the chunk")
                .expected(format!("{rows}, one a row of {}", part.name))
                .found(values.len()));
        }
        for value in values {
            order.push((value, order.len()));
        }
    }
    order.sort_unstable();
    if let Some(twice) = order.windows(2).find(|w| w[0].0 == w[1].0) {
        return Err(Error::input("two chunks hold one position").found(format!("position {}", twice[0].0)));
    }
    let places: Vec<usize> = order.iter().map(|(_, at)| *at).collect();
    take(&concat(&arrays, *axis)?, *axis, &places)
}

/// Extent before an axis, and bytes of everything after it.
fn blocks(shape: &[usize], axis: usize, dtype: Dtype) -> (usize, usize) {
    (shape[..axis].iter().product(), shape[axis + 1..].iter().product::<usize>() * dtype.size())
}

fn concat(parts: &[Array], axis: usize) -> Result<Array> {
    let Some(first) = parts.first() else { return Err(Error::input("no part of the tensor is there")) };
    if parts.len() == 1 {
        return Ok(first.clone());
    }
    let rest = |a: &Array| {
        let mut shape = a.shape().to_vec();
        (axis < shape.len()).then(|| shape.remove(axis))?;
        Some((shape, a.dtype()))
    };
    if rest(first).is_none() || parts.iter().any(|p| rest(p) != rest(first)) {
        let found =
            parts.iter().map(|p| format!("{} {:?}", p.dtype().name(), p.shape())).collect::<Vec<_>>().join(", ");
        return Err(Error::input("parts don't fit each other").expected("equal extents but for one axis").found(found));
    }
    let held = parts.iter().map(Array::read).collect::<Result<Vec<_>>>()?;
    let (outer, inner) = blocks(first.shape(), axis, first.dtype());
    let mut out = Vec::with_capacity(held.iter().map(|b| b.len()).sum());
    for o in 0..outer {
        for (bytes, part) in held.iter().zip(parts) {
            let run = part.shape()[axis] * inner;
            out.extend_from_slice(bytes.get(o * run..(o + 1) * run).unwrap_or_default());
        }
    }
    let mut shape = first.shape().to_vec();
    shape[axis] = parts.iter().map(|p| p.shape()[axis]).sum();
    Array::held(first.dtype(), shape, out)
}

/// Some indices of an axis.
fn take(array: &Array, axis: usize, places: &[usize]) -> Result<Array> {
    let bytes = array.read()?;
    let (outer, inner) = blocks(array.shape(), axis, array.dtype());
    let extent = array.shape()[axis];
    let mut out = Vec::with_capacity(bytes.len());
    for o in 0..outer {
        for place in places {
            let at = (o * extent + place) * inner;
            out.extend_from_slice(bytes.get(at..at + inner).unwrap_or_default());
        }
    }
    let mut shape = array.shape().to_vec();
    shape[axis] = places.len();
    Array::held(array.dtype(), shape, out)
}

fn numbers(array: &Array) -> Result<Vec<f64>> {
    match decode(array.dtype(), array.shape(), &array.read()?)?.data {
        Data::F32(v) => Ok(v.into_iter().map(f64::from).collect()),
        Data::F64(v) => Ok(v),
        other => Err(Error::input("only floats are added up or rounded").found(other.dtype())),
    }
}

/// Partial sums added in f64 in the order of the shards, rounded once: to F64 where one part is, else to F32.
fn sum(parts: &[Array]) -> Result<Array> {
    let Some(first) = parts.first() else { return Err(Error::input("no part of the tensor is there")) };
    let mut total = numbers(first)?;
    for part in &parts[1..] {
        if part.shape() != first.shape() {
            let error = Error::input("parts don't fit each other").expected(format!("shape {:?}", first.shape()));
            return Err(error.found(format!("{:?}", part.shape())));
        }
        for (t, v) in total.iter_mut().zip(numbers(part)?) {
            *t += v;
        }
    }
    let wide = parts.iter().any(|p| p.dtype() == Dtype::F64);
    from_numbers(&total, first.shape(), if wide { Dtype::F64 } else { Dtype::F32 })
}

fn cast(array: &Array, dtype: Dtype) -> Result<Array> {
    if array.dtype() == dtype { Ok(array.clone()) } else { from_numbers(&numbers(array)?, array.shape(), dtype) }
}

/// Values rounded to a type, to nearest even.
fn from_numbers(values: &[f64], shape: &[usize], dtype: Dtype) -> Result<Array> {
    let bytes = match dtype {
        Dtype::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::Bf16 => values.iter().flat_map(|v| half::bf16::from_f32(to_odd(*v)).to_le_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|v| half::f16::from_f32(to_odd(*v)).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
    };
    Array::held(
        if matches!(dtype, Dtype::F64 | Dtype::Bf16 | Dtype::F16) { dtype } else { Dtype::F32 },
        shape.to_vec(),
        bytes,
    )
}

/// f32 with the last bit set where it is not exact: rounding it on to a narrower type is then as if there had been one
/// rounding. (half's own conversion from f64 doesn't look at the lower half of its bits.)
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || !near.is_finite() || near.to_bits() & 1 == 1 {
        return near;
    }
    if f64::from(near) < value { near.next_up() } else { near.next_down() }
}

/// Another shape over the same elements; one extent may be -1.
fn reshape(array: &Array, wanted: &[i64]) -> Result<Array> {
    let count: usize = array.shape().iter().product();
    let wrong = || {
        Error::input("tensor can't have this shape")
            .expected(format!("{wanted:?}"))
            .found(format!("{:?}", array.shape()))
    };
    let known =
        wanted.iter().filter(|d| **d >= 0).try_fold(1usize, |n, d| n.checked_mul(*d as usize)).ok_or_else(wrong)?;
    let open = wanted.iter().filter(|d| **d < 0).count();
    let rest = if open == 1 && known > 0 { count / known } else { 1 };
    let shape: Vec<usize> = wanted.iter().map(|d| usize::try_from(*d).unwrap_or(rest)).collect();
    if open > 1 || shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)) != Some(count) {
        return Err(wrong());
    }
    Array::held(array.dtype(), shape, array.read()?.into_owned())
}

/// The first shard that is not the first one's bytes.
fn differing_replica(names: &[&str], shards: &[Array]) -> Result<Option<String>> {
    let first = shards[0].read()?;
    for (name, shard) in names.iter().zip(shards).skip(1) {
        let bytes = shard.read()?;
        if shard.shape() != shards[0].shape() || bytes != first {
            let at = first.iter().zip(bytes.iter()).position(|(a, b)| a != b).unwrap_or(0) / shards[0].dtype().size();
            return Ok(Some(format!("replicas differ: {name} is not {} (first at element {at})", names[0])));
        }
    }
    Ok(None)
}

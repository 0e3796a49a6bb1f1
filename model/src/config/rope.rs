//! Rotary embedding: `rope_theta`, `compress_rope_theta` and `rope_scaling`, or `rope_parameters` (nested or flat).

use serde_json::json;

use super::Yarn;
use super::fields::{Fields, agree};
use crate::{Error, Result};

/// What the file says about rope.
pub(super) struct Rope {
    pub(super) theta: f64,
    pub(super) compress_theta: f64,
    pub(super) yarn: Yarn,
    /// Rotated dims of a head.
    pub(super) head_dim: usize,
}

/// YaRN's parameters as far as one spelling gives them, with the spelling's name.
#[derive(Default)]
struct Scaling {
    factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    original: Option<f64>,
}

/// Reads every spelling of spec 1 and makes sure that they agree.
pub(super) fn read(f: &Fields<'_>, head_dim: usize) -> Result<Rope> {
    let mut theta = f.f64("rope_theta")?;
    let mut compress_theta = f.f64("compress_rope_theta")?;
    let mut partial = f.f64("partial_rotary_factor")?;
    let mut scaling = match f.object("rope_scaling")? {
        Some(table) => Some(yarn(&table, &mut partial)?),
        None => None,
    };
    if let Some(table) = f.object("rope_parameters")? {
        let (main, compress) = (table.object("main")?, table.object("compress")?);
        let named = match (main, compress) {
            (Some(main), Some(compress)) => {
                theta = agree(("rope_theta", theta), ("rope_parameters.main.rope_theta", main.f64("rope_theta")?))?;
                plain(&main, &mut partial)?;
                let inner = compress.f64("rope_theta")?;
                compress_theta =
                    agree(("compress_rope_theta", compress_theta), ("rope_parameters.compress.rope_theta", inner))?;
                if let Some(key) = table.unread().first() {
                    return Err(Error::input("unknown field").at(table.path(key)).expected("main and compress only"));
                }
                yarn(&compress, &mut partial)?
            }
            (None, None) => {
                // Flat: YaRN's keys with one theta, which may be either base if the file names both.
                match (table.f64("rope_theta")?, theta, compress_theta) {
                    (Some(flat), None, _) => theta = Some(flat),
                    (Some(flat), Some(main), compress) if flat != main && Some(flat) != compress => {
                        return Err(Error::input("two spellings of one fact disagree")
                            .at("rope_parameters.rope_theta")
                            .expected(format!("{main} as in rope_theta"))
                            .found(flat)
                            .hint("remove the wrong one"));
                    }
                    _ => {}
                }
                yarn(&table, &mut partial)?
            }
            _ => {
                return Err(Error::input("half a nested table")
                    .at(f.path("rope_parameters"))
                    .expected("both main and compress, or neither"));
            }
        };
        scaling = Some(match scaling {
            Some(first) => merge(&first, &named)?,
            None => named,
        });
    }
    let scaling = scaling.ok_or_else(|| {
        f.missing("rope_scaling").hint("compressed layers use YaRN: give rope_scaling, or rope_parameters.compress")
    })?;
    let missing = |key: &str| f.missing(&format!("rope_scaling.{key}"));
    Ok(Rope {
        theta: theta.ok_or_else(|| f.missing("rope_theta"))?,
        compress_theta: compress_theta.ok_or_else(|| {
            f.missing("compress_rope_theta")
                .hint("160000 in the released models; 40000 is only a default of the inference code's argument class")
        })?,
        yarn: Yarn {
            factor: scaling.factor.ok_or_else(|| missing("factor"))?,
            beta_fast: scaling.beta_fast.ok_or_else(|| missing("beta_fast"))?,
            beta_slow: scaling.beta_slow.ok_or_else(|| missing("beta_slow"))?,
            original_max_position_embeddings: scaling
                .original
                .ok_or_else(|| missing("original_max_position_embeddings"))?,
        },
        head_dim: rotated(f, partial, head_dim)?,
    })
}

/// Rotated dims: `qk_rope_head_dim`, or `partial_rotary_factor` of the head.
fn rotated(f: &Fields<'_>, partial: Option<f64>, head_dim: usize) -> Result<usize> {
    let given = f.usize("qk_rope_head_dim")?;
    let mut computed = None;
    if let Some(factor) = partial {
        let dims = factor * head_dim as f64;
        if !(0.0..=head_dim as f64).contains(&dims) || (dims - dims.round()).abs() > 1e-6 {
            return Err(Error::input("rotates no whole number of dims")
                .at(f.path("partial_rotary_factor"))
                .expected(format!("a whole part of head_dim {head_dim}"))
                .found(format!("{factor} x {head_dim} = {dims}")));
        }
        computed = Some(dims.round() as usize);
    }
    agree(("qk_rope_head_dim", given), ("partial_rotary_factor x head_dim", computed))?
        .ok_or_else(|| f.missing("qk_rope_head_dim").hint("give it, or partial_rotary_factor"))
}

/// The rotated part may be repeated in each table.
fn partial_of(table: &Fields<'_>, partial: &mut Option<f64>) -> Result<()> {
    let here = table.f64("partial_rotary_factor")?;
    *partial = agree(("partial_rotary_factor", *partial), (&table.path("partial_rotary_factor"), here))?;
    Ok(())
}

/// Sliding layers: no scaling.
fn plain(table: &Fields<'_>, partial: &mut Option<f64>) -> Result<()> {
    for key in ["rope_type", "type"] {
        table.only(key, &json!("default"), "sliding layers use plain rope, without YaRN")?;
    }
    partial_of(table, partial)?;
    unknown(table)
}

/// Compressed layers: YaRN whose attention factor is 1.
fn yarn(table: &Fields<'_>, partial: &mut Option<f64>) -> Result<Scaling> {
    let (a, b) = (table.text("rope_type")?, table.text("type")?);
    let kind = agree((&table.path("rope_type"), a), (&table.path("type"), b))?
        .ok_or_else(|| table.missing("rope_type").hint("yarn is the only kind this architecture has"))?;
    if kind != "yarn" {
        return Err(Error::input("unsupported rope type").at(table.path("rope_type")).expected("yarn").found(kind));
    }
    table.ignore("rope_theta");
    partial_of(table, partial)?;
    let one = "cos and sin are not multiplied and the softmax scale stays as it is (spec 2.6)";
    table.only("attention_factor", &json!(1.0), one)?;
    for key in ["mscale", "mscale_all_dim"] {
        table.only(key, &json!(0), one)?;
    }
    table.only("truncate", &json!(true), "the ramp's ends are rounded outwards (spec 2.6)")?;
    let scaling = Scaling {
        factor: table.f64("factor")?,
        beta_fast: table.f64("beta_fast")?,
        beta_slow: table.f64("beta_slow")?,
        original: table.f64("original_max_position_embeddings")?,
    };
    unknown(table)?;
    Ok(scaling)
}

fn unknown(table: &Fields<'_>) -> Result<()> {
    match table.unread().first() {
        Some(key) => Err(Error::input("unknown field").at(table.path(key)).hint(super::keys::advice(key))),
        None => Ok(()),
    }
}

fn merge(a: &Scaling, b: &Scaling) -> Result<Scaling> {
    let one = |key: &str, x, y| agree((&format!("rope_scaling.{key}"), x), (&format!("rope_parameters: {key}"), y));
    Ok(Scaling {
        factor: one("factor", a.factor, b.factor)?,
        beta_fast: one("beta_fast", a.beta_fast, b.beta_fast)?,
        beta_slow: one("beta_slow", a.beta_slow, b.beta_slow)?,
        original: one("original_max_position_embeddings", a.original, b.original)?,
    })
}

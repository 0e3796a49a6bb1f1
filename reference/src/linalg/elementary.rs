//! exp and ln(1 + e^x) of f32 arguments without branches, so that loops over them become vector loops.
//!
//! The f64 steps are those of the definition (`libm`'s exp and log1p, after FreeBSD's msun), in the same order and
//! without contraction; only the branches are selections, and what they exclude for f32 arguments is left out. Tests
//! compare every eighth f32, or with `KARAT_EVERY_F32=1` every one, with the definition.

const LN2_HI: f64 = 6.931_471_803_691_238e-1;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
const INV_LN2: f64 = std::f64::consts::LOG2_E;

/// |x| from which e^x is reduced by multiples of ln 2: just above ln(2) / 2.
const REDUCED_FROM: f64 = f64::from_bits(0x3fd6_2e43_0000_0000);
/// |x| from which e^x is not 1 + x.
const CURVED_FROM: f64 = f64::from_bits(0x3e30_0001_0000_0000);
/// 1.5 * 2^52: an integer below 2^51 added to it stands in the low bits.
const INTEGER: f64 = 6_755_399_441_055_744.0;

/// e^x in f64, as `libm` computes it, for |x| <= 150; beyond, e^150 and e^-150, which an f32 can't tell from infinity
/// and 0. NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    const P: [f64; 5] = [
        f64::from_bits(0x3FC5_5555_5555_553E),
        f64::from_bits(0xBF66_C16C_16BE_BD93),
        f64::from_bits(0x3F11_566A_AF25_DE2C),
        f64::from_bits(0xBEBB_BD41_C5D2_6BF1),
        f64::from_bits(0x3E66_3769_72BE_A4D0),
    ];
    let x = if x > 150.0 { 150.0 } else { x };
    let x = if x < -150.0 { -150.0 } else { x };
    let half = if x < 0.0 { -0.5 } else { 0.5 };
    let nearest = (INV_LN2 * x + half).trunc();
    let k = if x.abs() < REDUCED_FROM { 0.0 } else { nearest };
    let hi = x - k * LN2_HI;
    let lo = k * LN2_LO;
    let r = hi - lo;
    let rr = r * r;
    let c = r - rr * (P[0] + rr * (P[1] + rr * (P[2] + rr * (P[3] + rr * P[4]))));
    let y = 1.0 + (r * c / (2.0 - c) - lo + hi);
    // |k| <= 217, so 2^k and the product are normal numbers and the product is exact.
    let two_to_k = f64::from_bits((k + INTEGER).to_bits().wrapping_add(1023) << 52);
    if x.abs() < CURVED_FROM { 1.0 + x } else { y * two_to_k }
}

/// ln(1 + x) in f64, as `libm` computes it, for 0 <= x < 2^53. NaN stays NaN.
#[inline(always)]
pub(super) fn log1p(x: f64) -> f64 {
    const LG: [f64; 7] = [
        f64::from_bits(0x3FE5_5555_5555_5593),
        f64::from_bits(0x3FD9_9999_9997_FA04),
        f64::from_bits(0x3FD2_4924_9422_9359),
        f64::from_bits(0x3FCC_71C5_1D8E_78AF),
        f64::from_bits(0x3FC7_4664_96CB_03DE),
        f64::from_bits(0x3FC3_9A09_D078_C69F),
        f64::from_bits(0x3FC2_F112_DF3E_5244),
    ];
    /// sqrt(2) - 1 and sqrt(2) / 2 in the high word, as the definition compares them.
    const SQRT2_LESS_1: f64 = f64::from_bits(0x3FDA_827A_0000_0000);
    const HALF_SQRT2: u64 = 0x3FE6_A09E << 32;
    const ONE: u64 = 0x3FF0_0000 << 32;
    let near = x < SQRT2_LESS_1;
    let u = 1.0 + x;
    let shifted = u.to_bits().wrapping_add(ONE - HALF_SQRT2);
    // The exponent as a float: an integer in the low bits of 2^52.
    let k = f64::from_bits((shifted >> 52) | 0x4330_0000_0000_0000) - (4_503_599_627_370_496.0 + 1023.0);
    let left = if k >= 2.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let c = left / u;
    let f = f64::from_bits((shifted & 0x000F_FFFF_FFFF_FFFF).wrapping_add(HALF_SQRT2)) - 1.0;
    let (k, c, f) = if near { (0.0, 0.0, x) } else { (k, c, f) };
    let hfsq = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let t1 = w * (LG[1] + w * (LG[3] + w * LG[5]));
    let t2 = z * (LG[0] + w * (LG[2] + w * (LG[4] + w * LG[6])));
    let r = t2 + t1;
    s * (hfsq + r) + (k * LN2_LO + c) - hfsq + f + k * LN2_HI
}

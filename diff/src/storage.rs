//! Storage formats as data: spacing of values, largest value, RMS error of one rounding.

/// Format in which the candidate stores a tensor's elements (not the f32 that carries them here).
///
/// Block-scaled formats have no spacing that the value alone tells, so ULP distance and saturation are not counted for
/// them ([`Storage::ulp_exponent`] and [`Storage::largest`] are `None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Storage {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
    /// E4M3 without a scale (largest value 448).
    E4m3,
    /// E4M3 times a scale per block.
    E4m3Block,
    /// MXFP4: E2M1 times a power of two per 32 values.
    Mxfp4,
    /// NVFP4: E2M1 times an E4M3 scale per 16 values.
    Nvfp4,
}

/// Explicit mantissa bits, exponent of the smallest normal number, largest finite value.
struct Layout {
    mantissa: i32,
    min_exponent: i32,
    largest: f64,
}

impl Storage {
    /// Every format.
    pub const ALL: &'static [Storage] =
        &[Self::F64, Self::F32, Self::Bf16, Self::F16, Self::E4m3, Self::E4m3Block, Self::Mxfp4, Self::Nvfp4];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::E4m3Block => "e4m3-block",
            Self::Mxfp4 => "mxfp4",
            Self::Nvfp4 => "nvfp4",
        }
    }

    fn layout(self) -> Option<Layout> {
        let (mantissa, min_exponent, largest) = match self {
            Self::F64 => (52, -1022, f64::MAX),
            Self::F32 => (23, -126, f32::MAX as f64),
            Self::Bf16 => (7, -126, 3.389_531_389_251_535_5e38),
            Self::F16 => (10, -14, 65504.0),
            Self::E4m3 => (3, -6, 448.0),
            Self::E4m3Block | Self::Mxfp4 | Self::Nvfp4 => return None,
        };
        Some(Layout { mantissa, min_exponent, largest })
    }

    /// Largest finite value; a candidate value of this size counts as saturated.
    pub fn largest(self) -> Option<f64> {
        self.layout().map(|l| l.largest)
    }

    /// `e` such that neighbours of `x` in this format are `2^e` apart (in the binade that holds `x`).
    pub fn ulp_exponent(self, x: f64) -> Option<i32> {
        self.layout().map(|l| exponent(x).max(l.min_exponent) - l.mantissa)
    }

    /// The two constants of [`Storage::ulp_exponent`], for the inner loop: `(mantissa bits, smallest exponent)`.
    pub(crate) fn spacing(self) -> Option<(i32, i32)> {
        self.layout().map(|l| (l.mantissa, l.min_exponent))
    }
}

/// `floor(log2(|x|))` of a normal f64; -1023 for zero and subnormals (which no f32 or narrower value is).
pub(crate) fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// One kind of rounding with the relative L2 error that it alone costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rounding {
    /// f32 storage.
    F32,
    /// TF32 operands.
    Tf32,
    /// fp16 storage.
    F16,
    /// bf16 storage.
    Bf16,
    /// bf16 operands of a product, f32 accumulator, whatever K.
    Bf16Gemm,
    /// E4M3 in blocks of 128 with an f32 scale.
    E4m3F32Scale,
    /// E4M3 in blocks of 128 with a power-of-two scale.
    E4m3Pow2Scale,
    /// Both operands of a product in E4M3.
    E4m3Gemm,
    /// NVFP4.
    Nvfp4,
    /// MXFP4.
    Mxfp4,
}

impl Rounding {
    /// Every kind.
    pub const ALL: &'static [Rounding] = &[
        Self::F32,
        Self::Tf32,
        Self::F16,
        Self::Bf16,
        Self::Bf16Gemm,
        Self::E4m3F32Scale,
        Self::E4m3Pow2Scale,
        Self::E4m3Gemm,
        Self::Nvfp4,
        Self::Mxfp4,
    ];

    /// Typical rel-L2 of this rounding, measured on synthetic data. f32 has bf16's value with 16 bits more.
    pub fn rel_l2(self) -> f64 {
        match self {
            Self::F32 => 1.7e-3 / 65536.0,
            Self::Tf32 | Self::F16 => 2.1e-4,
            Self::Bf16 => 1.7e-3,
            Self::Bf16Gemm => 2.3e-3,
            Self::E4m3F32Scale => 2.6e-2,
            Self::E4m3Pow2Scale => 2.7e-2,
            Self::E4m3Gemm => 3.6e-2,
            Self::Nvfp4 => 9.5e-2,
            Self::Mxfp4 => 1.2e-1,
        }
    }

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Bf16Gemm => "bf16-gemm",
            Self::E4m3F32Scale => "e4m3-f32-scale",
            Self::E4m3Pow2Scale => "e4m3-pow2-scale",
            Self::E4m3Gemm => "e4m3-gemm",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
        }
    }
}

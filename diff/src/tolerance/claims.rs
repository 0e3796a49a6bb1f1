//! What number format a candidate claims, and the coarsest rounding on the way to each tap.

use karat_seam::Tap;

use crate::storage::Rounding;

/// What the candidate says it computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claims {
    /// f32 throughout.
    F32,
    /// bf16 activations and operands, nothing quantised but the weights.
    Bf16,
    /// The released code's QAT mode: FP8 activations and KV, FP4 indexer, bf16 storage (spec 2.15, column OFF dtype).
    Official,
    /// SGLang: as official but for an FP8 indexer.
    Sglang,
    /// vLLM with its default FP8 indexer; otherwise as official.
    Vllm,
}

impl Claims {
    /// Every value.
    pub const ALL: &'static [Claims] = &[Self::F32, Self::Bf16, Self::Official, Self::Sglang, Self::Vllm];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Official => "official",
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }

    /// The value with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }

    /// The coarsest rounding between a layer's input and this tap, for a row that is compared with the same input on
    /// both sides.
    pub fn rounding(self, tap: Tap) -> Rounding {
        match self {
            Self::F32 => Rounding::F32,
            Self::Bf16 => bf16(tap),
            Self::Official | Self::Sglang | Self::Vllm => self.quantised(tap),
        }
    }

    /// Spec 2.12: linears quantise their input to E4M3 with power-of-two scales in blocks of 128; KV is E4M3 with
    /// power-of-two scales in blocks of 64; index queries and keys are FP4 in blocks of 32, or FP8 in the engines (2.8).
    fn quantised(self, tap: Tap) -> Rounding {
        use Tap as T;
        let indexer = if self == Self::Official { Rounding::Mxfp4 } else { Rounding::E4m3Pow2Scale };
        match tap {
            T::AttnIndexQ | T::AttnIndexK | T::StateIndexK => indexer,
            T::AttnIndexScore if self == Self::Official => indexer,
            // One quantised operand.
            T::In | T::AttnQr | T::AttnQ | T::AttnKv | T::AttnCkv | T::StateWin | T::StateCkv => {
                Rounding::E4m3Pow2Scale
            }
            // Two: scores and attention read quantised KV, the experts quantise again in the middle; what follows in
            // the block stands on them.
            T::AttnIndexScore | T::AttnO | T::AttnLse | T::AttnOa | T::AttnOut => Rounding::E4m3Gemm,
            tap if (T::HcAttnOut..=T::HFinal).contains(&tap) && tap != T::FfnIdx => Rounding::E4m3Gemm,
            _ => bf16(tap),
        }
    }
}

/// bf16 storage of every activation and operand. Coefficients, routing weights and logits are computed in f32 from
/// bf16 values.
fn bf16(tap: Tap) -> Rounding {
    use Tap as T;
    match tap {
        T::Embed | T::HcAttnPre | T::HcAttnPost | T::HcAttnComb | T::HcAttnCollapsed | T::AttnIn => Rounding::Bf16,
        _ => Rounding::Bf16Gemm,
    }
}

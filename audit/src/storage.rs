//! In which format a candidate stores each tap: what an ULP is there, and which values are saturated.
//!
//! This is storage alone (spec 2.15, column "OFF dtype"). What error a tap may have is another question: it follows
//! from the coarsest rounding between the layer's input and the tap, which is `karat_diff::Claims::rounding`.

use karat_diff::{Claims, Storage};
use karat_seam::Tap;

/// Storage format of a tap under a claim.
pub fn storage(claims: Claims, tap: Tap) -> Storage {
    match claims {
        Claims::F32 => Storage::F32,
        Claims::Bf16 => stored_bf16(tap),
        Claims::Official => match tap {
            // Index queries and keys are E2M1 codes with a power-of-two scale per 32 dims (2.8).
            Tap::AttnIndexQ | Tap::AttnIndexK => Storage::Mxfp4,
            other => stored_quantised(other),
        },
        Claims::Sglang | Claims::Vllm => match tap {
            // The engines score E4M3 queries and keys (2.8, D7) and keep f32 scores.
            Tap::AttnIndexQ | Tap::AttnIndexK => Storage::E4m3Block,
            Tap::AttnIndexScore => Storage::F32,
            other => stored_quantised(other),
        },
    }
}

/// With an FP8 cache: the unrotated dims of KV rows and entries are E4M3 with a scale per 64 channels (2.5, 2.7).
fn stored_quantised(tap: Tap) -> Storage {
    match tap {
        Tap::AttnKv | Tap::AttnCkv => Storage::E4m3Block,
        other => stored_bf16(other),
    }
}

/// Every activation in bf16, except what the spec keeps in f32.
fn stored_bf16(tap: Tap) -> Storage {
    match tap {
        // mHC coefficients: GEMM, sigmoid and Sinkhorn are f32 and never stored narrower (2.3).
        Tap::HcAttnPre | Tap::HcAttnPost | Tap::HcAttnComb => Storage::F32,
        Tap::HcFfnPre | Tap::HcFfnPost | Tap::HcFfnComb => Storage::F32,
        // Compressor rows and scores: f32 GEMM, kept in f32 state (2.7).
        Tap::AttnKvp | Tap::AttnGateScore | Tap::AttnIndexKvp | Tap::AttnIndexGateScore => Storage::F32,
        // Softmax statistics (2.9), router (2.11), logits (2.13).
        Tap::AttnLse | Tap::FfnRouterLogits | Tap::FfnWt | Tap::Logits => Storage::F32,
        _ => Storage::Bf16,
    }
}

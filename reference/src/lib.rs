//! The golden forward pass of DeepSeek-V4-Flash on CPU: readable above all, in f32 and f64.
pub mod linalg;

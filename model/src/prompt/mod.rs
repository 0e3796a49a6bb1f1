//! Tokenizer and prompt encoder: messages to text to ids (spec section 5).

pub mod special;
mod texts;

pub use texts::{EncodingTexts, Release, Text};

#[cfg(test)]
pub(crate) use texts::sha256_hex;

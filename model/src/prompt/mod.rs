//! Tokenizer and prompt encoder: messages to text to ids (spec section 5).

mod encoder;
mod json;
mod message;
mod python;
pub mod special;
mod texts;
mod tokenizer;

pub use encoder::{Effort, EncodeOptions, Encoder, Part, PartSpan, Prompt};
pub use json::{Json, JsonError};
pub use message::{Arguments, Message, Role, Task, ToolCall};
pub use python::{FromPython, encoding_from_python};
pub use texts::{EncodingTexts, Release, Text};
pub use tokenizer::{EncodedPrompt, IdSpan, Tokenizer};

#[cfg(test)]
pub(crate) use texts::sha256_hex;

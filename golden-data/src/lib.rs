//! Data of the mini golden model: conversations by scenario family, rendered by the project's own encoder to ids and loss
//! classes; and the model's tokenizer.

pub mod families;
pub mod marks;
pub mod random;
pub mod render;
pub mod small_talk;
pub mod talk;
pub mod turns;
pub mod vocabulary;
pub mod words;

#[cfg(test)]
mod tests;

//! Data of the mini golden model: conversations of the grammar in `karat-scenarios`, rendered by the project's own encoder
//! to ids and loss classes; and the model's tokenizer.

pub mod render;
pub mod vocabulary;

#[cfg(test)]
mod tests;

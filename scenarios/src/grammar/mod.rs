//! The grammar of the mini golden model's conversations: small talk, facts, tools, interruptions, in a small vocabulary.
//! The model was trained on it, so what is asked of the model is said in it.

pub mod families;
pub mod marks;
pub mod random;
pub mod small_talk;
pub mod talk;
pub mod turns;
pub mod words;

//! Tokenizer and prompt encoder: messages to text to ids (spec section 5).

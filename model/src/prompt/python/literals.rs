//! Joins literals as Python does: side by side, or with a plus between them.

use super::lexer::{Lexer, Token};

/// The text of every string literal, and of every run of literals that Python joins.
pub(super) fn all(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut run: Vec<String> = Vec::new();
    // Inside of brackets a new line separates nothing.
    let mut depth = 0_usize;
    let mut plus = false;
    let mut finish = |run: &mut Vec<String>| {
        if run.len() > 1 {
            found.push(run.concat());
        }
        found.append(run);
    };
    for token in Lexer::new(source) {
        match token {
            Token::Str(text) => run.push(text),
            Token::NewLine if depth > 0 => continue,
            // One plus joins; two are an operator and a sign.
            Token::Plus if !plus && !run.is_empty() => {
                plus = true;
                continue;
            }
            Token::NewLine | Token::Plus | Token::Other => finish(&mut run),
            Token::Open => {
                depth += 1;
                finish(&mut run);
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                finish(&mut run);
            }
        }
        plus = false;
    }
    finish(&mut run);
    found
}

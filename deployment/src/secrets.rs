//! Values that are never kept: of names like keys, tokens and passwords, and of credentials in URLs.

/// What stands in a value's place.
pub(crate) const HIDDEN: &str = "<hidden>";

/// Ends of a part of a name that mean a secret.
const ENDS: &[&str] = &[
    "key",
    "keys",
    "token",
    "tokens",
    "password",
    "passwords",
    "passwd",
    "pwd",
    "pass",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "passphrase",
    "authorization",
    "cookie",
    "bearer",
    "auth",
    "signature",
    "dsn",
];

/// True for a name whose value must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty()).any(|part| {
        // max_total_tokens and its kin count; `tokens` alone in a name doesn't make its value a secret.
        part != "tokens" && ENDS.iter().any(|end| part.ends_with(end))
    })
}

/// A text with the values of secret names replaced. It looks for NAME=VALUE, NAME: VALUE, "NAME": "VALUE", --NAME VALUE,
/// Bearer VALUE and user:password@ in URLs.
pub(crate) fn hide(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if is_name(c) {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            out.push_str(name);
            rest = after;
            if is_secret(name) {
                let flag = name.starts_with("--") || name.eq_ignore_ascii_case("bearer");
                let value = value_at(after, flag);
                // A log counts tokens: #token: 4096.
                let counts = name == "token" && after[value.clone()].chars().all(|c| c.is_ascii_digit());
                if value.start < value.end && !counts {
                    out.push_str(&after[..value.start]);
                    out.push_str(HIDDEN);
                    rest = &after[value.end..];
                }
            } else if let Some(user) = after.strip_prefix("://")
                && let Some(at) = user.find(|c: char| c.is_whitespace() || matches!(c, '@' | '/' | '"' | '\''))
                && user[at..].starts_with('@')
            {
                out.push_str("://");
                out.push_str(HIDDEN);
                rest = &user[at..];
            }
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// Where in the text after a name its value stands; an empty range when the name has none. After a flag, blanks alone lead
/// to it.
fn value_at(after: &str, flag: bool) -> std::ops::Range<usize> {
    let none = 0..0;
    let mut at = 0;
    let skip = |at: usize, what: &dyn Fn(char) -> bool| after[at..].find(|c| !what(c)).map_or(after.len(), |n| at + n);
    // The quote that closes the name.
    at = skip(at, &|c| matches!(c, '"' | '\'' | '\\' | ']'));
    let blank = skip(at, &|c| c == ' ' || c == '\t');
    let signed = skip(blank, &|c| matches!(c, '=' | ':'));
    if signed == blank && !(flag && blank > at) {
        return none;
    }
    at = skip(signed, &|c| c == ' ' || c == '\t');
    let scheme = after[at..].get(..7).is_some_and(|word| word.eq_ignore_ascii_case("bearer "));
    if scheme {
        at += 7;
    }
    let quoted = skip(at, &|c| c == '\\');
    let end = match after[quoted..].chars().next() {
        Some(q @ ('"' | '\'')) => {
            at = quoted + 1;
            after[at..].find(q).map_or(after.len(), |n| at + n)
        }
        _ => after[at..]
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ')' | '"' | '\''))
            .map_or(after.len(), |n| at + n),
    };
    at..end
}

#[cfg(test)]
mod tests;

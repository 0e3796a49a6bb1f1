//! Where an endpoint is.

use karat_model::{Error, Result};

/// A checked base URL: scheme, host, port and a path before the API's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    base: String,
}

impl Address {
    /// Reads `http://HOST[:PORT][/PATH]`; a `/v1` at the end is the API's own and left out. What may hold a secret (a user, a
    /// query) is refused: an address is written into bundles.
    ///
    /// # Errors
    /// A usage error for anything else, and for `https` where the program was built without it.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |what: &str| Error::usage(what).at("--endpoint").expected("http://HOST[:PORT][/PATH]");
        if text.contains('@') {
            // Not shown: it may be a password.
            return Err(refuse("the address holds a user").hint("keys come from the environment only (--key-env)"));
        }
        if text.contains(['?', '#']) || text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err(refuse("the address holds more than scheme, host, port and path"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse("not a URL").found(format!("{text:?}")))?;
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "http" => {}
            "https" if cfg!(feature = "tls") => {}
            "https" => {
                return Err(refuse("this karat was built without https").hint(
                    "build it with `--features tls` (that compiles C), or put a proxy that ends https in front of the server",
                ));
            }
            other => return Err(refuse("unknown scheme").found(format!("{other:?}"))),
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = match host.rsplit_once(':') {
            Some((_, port)) if !host.ends_with(']') => port.parse::<u16>().is_ok_and(|p| p > 0),
            _ => true,
        };
        if host.is_empty() || host.starts_with(':') || !port {
            return Err(refuse("no host, or a port that is none").found(format!("{text:?}")));
        }
        let path = path.trim_matches('/');
        let path = path.strip_suffix("v1").map_or(path, |p| if p.is_empty() || p.ends_with('/') { p } else { path });
        let path = path.trim_matches('/');
        let slash = if path.is_empty() { "" } else { "/" };
        Ok(Self { base: format!("{scheme}://{}{slash}{path}", host.to_ascii_lowercase()) })
    }

    /// The URL of a path that begins with a slash.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The base, for messages and bundles.
    pub fn label(&self) -> &str {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_v1_and_slashes() {
        for (given, base) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("HTTP://Host/v1/", "http://host"),
            ("http://host:1/a/v1", "http://host:1/a"),
            ("http://host/av1", "http://host/av1"),
            ("http://[::1]:30000/", "http://[::1]:30000"),
        ] {
            assert_eq!(Address::parse(given).unwrap().label(), base, "{given}");
        }
    }

    #[test]
    fn what_is_no_address_or_may_hold_a_secret_is_refused_without_showing_it() {
        for given in ["host:80", "ftp://h", "http://", "http://h:99999", "http://h:0", "http://h/a b", "http://h/\u{7}"]
        {
            assert!(Address::parse(given).is_err(), "{given}");
        }
        for given in ["http://user:s3cret@host", "http://host/?key=s3cret", "http://host/#s3cret"] {
            let error = Address::parse(given).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}

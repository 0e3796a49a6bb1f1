//! `karat doctor --proxy`: what a proxy in front of a model changes.

use std::time::Duration;

use karat_bundle::Verdict;
use karat_endpoint::proxy::{Check, State, Upstream, check};
use karat_endpoint::{Address, Client, Manners, Trouble};
use serde_json::json;

use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::{output, stop};

pub(crate) fn proxy(url: &str, listen: &str, key_env: &str, globals: Globals) -> Result<u8> {
    let address = Address::parse(url).map_err(|e| Failure::usage(e.to_string().replace("--endpoint", "--proxy")))?;
    let upstream = Upstream::start(listen)
        .map_err(|e| Failure::usage(format!("--listen {listen}: the address can't be listened on: {e}")))?;
    let manners =
        Manners { timeout: Duration::from_secs(30), retries: 0, wait: Duration::ZERO, stop: stop::on_interrupt() };
    let client = Client::new(address, std::env::var(key_env).ok(), manners);
    let checks = check(&client, &upstream).map_err(|trouble| match trouble {
        Trouble::Infra(what, _) => Failure::retry(&format!("infra: {url}: {what}")),
        Trouble::Stopped => Failure::interrupted(),
        other => other.into_error(url).into(),
    })?;
    let verdict = match () {
        () if checks.iter().any(|c| c.state == State::Wrong) => Verdict::Fail,
        () if checks.iter().any(|c| c.state == State::NoAnswer) => Verdict::Infra,
        () if checks.iter().any(|c| c.state == State::Unseen) => Verdict::Unproven,
        () => Verdict::Pass,
    };
    if globals.json {
        let one = |c: &Check| json!({"check": c.name, "state": c.state.name(), "detail": c.detail});
        let list: Vec<serde_json::Value> = checks.iter().map(one).collect();
        output::json(&json!({"verdict": verdict.name(), "exit_code": verdict.exit_code(), "checks": list}));
    } else {
        let style = output::Style::of_stdout();
        let wrong = checks.iter().filter(|c| c.state != State::Right).count();
        let (name, exit) = (verdict.name(), verdict.exit_code());
        let mut lines =
            vec![format!("{}: {wrong} of {} checks are not right", style.verdict(exit, name), checks.len())];
        for c in &checks {
            let detail =
                if c.detail.is_empty() { String::new() } else { format!("  {}", karat_model::Plain(&c.detail)) };
            lines.push(format!("{:<36}{}{detail}", c.name, c.state.name()));
        }
        output::stdout(&lines.join("\n"));
    }
    Ok(verdict.exit_code())
}

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::address::Address;
use crate::client::Manners;
use crate::serve::{Answer, Request, Serving};

static STOP: AtomicBool = AtomicBool::new(false);

fn client(url: &str) -> Client<'static> {
    let manners = Manners { timeout: Duration::from_secs(10), retries: 0, wait: Duration::ZERO, stop: &STOP };
    Client::new(Address::parse(url).unwrap(), None, manners)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    None,
    Drops(&'static str),
    StripsReasoning,
    Buffers,
    Renames,
}

/// A proxy that forwards, and does one kind of harm.
fn proxy(harm: Harm, upstream: String) -> Serving {
    let forward = move |request: &Request, answer: &mut Answer| -> std::io::Result<()> {
        let client = client(&upstream);
        let mut body = request.json();
        if let (Harm::Drops(field), Some(fields)) = (harm, body.as_object_mut()) {
            fields.shift_remove(field);
        }
        let change = |text: String| -> String {
            let mut value: Value = serde_json::from_str(&text).unwrap_or_default();
            match harm {
                Harm::StripsReasoning => {
                    for part in ["/choices/0/delta", "/choices/0/message"] {
                        if let Some(part) = value.pointer_mut(part).and_then(Value::as_object_mut) {
                            part.shift_remove("reasoning_content");
                        }
                    }
                    value.to_string()
                }
                Harm::Renames => {
                    value["model"] = json!("gpt");
                    value.to_string()
                }
                _ => text,
            }
        };
        if body["stream"] != true {
            return match client.post(&request.path, &body) {
                Ok(value) => answer.whole(200, "application/json", &change(value.to_string())),
                Err(_) => answer.with_headers(429, "application/json", "retry-after: 3\r\n", "{}"),
            };
        }
        let mut events = client.stream(&request.path, &body).map_err(|e| std::io::Error::other(e.to_string()))?;
        answer.begin()?;
        let mut held = Vec::new();
        while let Ok(Some(data)) = events.next_data() {
            if harm == Harm::Buffers {
                held.push(data);
            } else {
                answer.event(&change(data))?;
            }
        }
        for data in held {
            answer.event(&data)?;
        }
        answer.event("[DONE]")?;
        answer.end()
    };
    Serving::start("127.0.0.1:0", Arc::new(forward)).unwrap()
}

fn wrong(harm: Harm) -> Vec<String> {
    let upstream = Upstream::start("127.0.0.1:0").unwrap();
    let proxy = proxy(harm, upstream.url());
    let checks = check(&client(&proxy.url()), &upstream).unwrap();
    assert_eq!(checks.len(), 17, "{checks:?}");
    checks.into_iter().filter(|c| c.state != State::Right).map(|c| format!("{}: {}", c.name, c.detail)).collect()
}

#[test]
fn a_proxy_that_forwards_is_right_and_each_harm_is_named() {
    let none: [&str; 0] = [];
    assert_eq!(wrong(Harm::None), none);
    let found = wrong(Harm::Drops("top_k"));
    assert!(found.len() == 1 && found[0] == "parameters arrive: top_k is lost", "{found:?}");
    let found = wrong(Harm::StripsReasoning);
    assert!(found.len() == 3 && found.iter().take(2).all(|f| f.starts_with("reasoning of")), "{found:?}");
    let found = wrong(Harm::Renames);
    assert!(found.len() == 2 && found[0].contains("karat-upstream-7"), "{found:?}");
    let found = wrong(Harm::Buffers);
    assert!(found.iter().any(|f| f.starts_with("a stream is not held back")), "{found:?}");
}

#[test]
fn a_proxy_that_leads_elsewhere_or_nowhere_is_told() {
    let upstream = Upstream::start("127.0.0.1:0").unwrap();
    let elsewhere = Upstream::start("127.0.0.1:0").unwrap();
    let found = check(&client(&elsewhere.url()), &upstream);
    assert!(matches!(found, Err(Trouble::Refused(_))), "{found:?}");
    let gone = elsewhere.url();
    drop(elsewhere);
    assert!(check(&client(&gone), &upstream).unwrap_err().is_infra());
}

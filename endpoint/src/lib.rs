//! Live endpoints: what a running server recalls, how its logits lie beside golden's, what its toggles do, and what a proxy
//! in front of it changes.
//!
//! A server that fails to answer (time-out, rate limit, 5xx, a cut stream) says nothing of its model: such runs end as
//! `infra`, never as `fail`. Keys come from the environment, go into one header, and are in nothing that is written.

mod address;
pub mod api;
mod client;
pub mod interrupted;
pub mod logits;
mod process;
pub mod proxy;
pub mod recall;
mod requests;
pub mod scored;
pub mod serve;
mod speed;
mod sse;
mod talk;
pub mod template;
mod toggles;
pub mod topk;
mod trouble;
pub mod verdict;
mod words;

pub use address::Address;
pub use client::{Client, Manners};
pub use process::{Process, Start, end_all};
pub use requests::Kind;
pub use speed::{Speed, Spread};
pub use sse::Events;
pub use talk::{Answered, Before, Conversation, Habits};
pub use toggles::{Set, Toggles};
pub use trouble::Trouble;

#[cfg(test)]
mod tests;

//! A running server in the place of a path: what its commands have in common.

mod audit;
mod proxy;
mod recall;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use karat_endpoint::api::{self, Api, Renderer, Route, Server};
use karat_endpoint::{Address, Client, Manners, Trouble};
use karat_model::prompt::{Encoder, Tokenizer};
use serde_json::{Map, Value};

use crate::args::Globals;
use crate::failure::{Failure, Result};
use crate::model::Source;
use crate::stop;

pub(crate) use audit::audit;
pub(crate) use proxy::proxy;
pub(crate) use recall::recall;

/// How a server is reached.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// A running server: http://HOST:PORT
    #[arg(long, value_name = "URL", help_heading = "A running server")]
    pub(crate) endpoint: Option<String>,
    /// Whose API it speaks
    #[arg(long, value_name = "openai|sglang|vllm", default_value = "openai", help_heading = "A running server")]
    pub(crate) api: String,
    /// What is sent: chat (messages), completions or SGLang's generate (ids, rendered for --model)
    #[arg(long, value_name = "ROUTE", default_value = "chat", help_heading = "A running server")]
    pub(crate) route: String,
    /// Name of the model in requests; by default the first that the server names
    #[arg(long, value_name = "NAME", help_heading = "A running server")]
    pub(crate) model_name: Option<String>,
    /// Environment variable that holds the key; it is sent to this server and written nowhere
    #[arg(long, value_name = "VARIABLE", default_value = "KARAT_API_KEY", help_heading = "A running server")]
    pub(crate) key_env: String,
    /// Seconds that a request may take
    #[arg(long, value_name = "S", default_value_t = 120.0, help_heading = "A running server")]
    pub(crate) timeout: f64,
    /// Times that a request is sent again after a time-out, a rate limit or a server's error
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=10))]
    #[arg(help_heading = "A running server")]
    pub(crate) retries: u32,
    /// More fields of every request, a JSON object (they replace karat's own)
    #[arg(long, value_name = "JSON", help_heading = "A running server")]
    pub(crate) extra: Option<String>,
    /// Ask for whole answers: nothing can be interrupted then
    #[arg(long, help_heading = "A running server")]
    pub(crate) no_stream: bool,
}

/// How conversations are held.
#[derive(Debug, Args)]
pub(crate) struct Holding {
    /// Conversations at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    #[arg(help_heading = "A running server")]
    pub(crate) concurrency: u16,
    /// Times over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    #[arg(help_heading = "A running server")]
    pub(crate) repeats: u16,
    /// Ask nothing more once so many requests were sent
    #[arg(long, value_name = "N", help_heading = "A running server")]
    pub(crate) requests: Option<u64>,
    /// Tokens that an answer may have, at least
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "A running server")]
    pub(crate) max_tokens: usize,
    /// Give every N-th question up once while its answer comes, then ask again (0: never)
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "A running server")]
    pub(crate) abort_every: usize,
    /// Start the server under each set of toggles of this file (TOML, karat-ab/1), and stop it again
    #[arg(long, value_name = "FILE", requires = "endpoint", help_heading = "A running server")]
    pub(crate) ab: Option<PathBuf>,
    /// With --ab: only this set: none, all, or names with commas between
    #[arg(long, value_name = "LIST", requires = "ab", help_heading = "A running server")]
    pub(crate) toggles: Option<String>,
}

impl Connect {
    fn address(&self) -> Result<Address> {
        Ok(Address::parse(self.endpoint.as_deref().unwrap_or_default())?)
    }

    fn api(&self) -> Result<Api> {
        let found = Api::from_name(&self.api);
        found.ok_or_else(|| Failure::usage(format!("--api: expected {}, found `{}`", Api::NAMES.join(", "), self.api)))
    }

    fn client(&self) -> Result<Client<'static>> {
        if !(self.timeout > 0.0 && self.timeout <= 86_400.0) {
            return Err(Failure::usage(format!("--timeout: expected seconds over 0, found {}", self.timeout)));
        }
        let key = std::env::var(&self.key_env).ok();
        let manners = Manners {
            timeout: Duration::from_secs_f64(self.timeout),
            retries: self.retries,
            wait: Duration::from_millis(500),
            stop: stop::on_interrupt(),
        };
        Ok(Client::new(self.address()?, key, manners))
    }

    fn extra(&self) -> Result<Map<String, Value>> {
        match self.extra.as_deref().map(serde_json::from_str) {
            None => Ok(Map::new()),
            Some(Ok(Value::Object(fields))) => Ok(fields),
            // Not shown: somebody may have put a key there.
            Some(_) => Err(Failure::usage("--extra: expected a JSON object")),
        }
    }

    /// The server, without its model's name.
    fn server(&self, source: &Source) -> Result<Server<'static>> {
        let route = Route::from_name(&self.route).ok_or_else(|| {
            Failure::usage(format!("--route: expected {}, found `{}`", Route::NAMES.join(", "), self.route))
        })?;
        let renderer = match route {
            Route::Chat => None,
            _ => Some(Renderer {
                tokenizer: Tokenizer::of(&source.checkpoint)?,
                encoder: Encoder::of(&source.checkpoint)?,
            }),
        };
        let server = Server {
            client: self.client()?,
            api: self.api()?,
            route,
            model: self.model_name.clone().unwrap_or_default(),
            streams: !self.no_stream,
            extra: self.extra()?,
            renderer,
        };
        server.check()?;
        Ok(server)
    }

    /// Asks the server for its model's name, unless one was given.
    fn name_model(&self, server: &mut Server<'_>) -> Result<()> {
        if self.model_name.is_none() {
            server.model = api::model_name(&server.client).map_err(|t| failure(t, server))?;
        }
        Ok(())
    }

    /// The arguments as they may be written down: what --extra holds stays here.
    fn command() -> Vec<String> {
        let mut hide = false;
        let one = |word: String| {
            let hidden = std::mem::replace(&mut hide, word == "--extra");
            match word.split_once('=') {
                _ if hidden => "...".to_owned(),
                Some(("--extra", _)) => "--extra=...".to_owned(),
                _ => word,
            }
        };
        std::env::args().skip(1).map(one).collect()
    }
}

/// A request's trouble as the end of a command.
fn failure(trouble: Trouble, server: &Server<'_>) -> Failure {
    let place = server.client.address().label();
    match trouble {
        Trouble::Stopped => Failure::interrupted(),
        Trouble::Infra(what, _) => Failure::retry(&format!("infra: {place}: {what}")),
        other => other.into_error(place).into(),
    }
}

/// Threads are karat's own; a server's are its own.
fn job<'a>(
    source: &Source,
    inputs: karat_audit::Inputs,
    globals: Globals,
    progress: &'a crate::progress::Progress,
) -> karat_audit::Job<'a> {
    karat_audit::Job { command: Connect::command(), ..crate::inputs::job(source, inputs, globals, progress) }
}

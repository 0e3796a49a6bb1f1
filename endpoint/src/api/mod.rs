//! What a server speaks: requests and answers of the completion APIs that people run.

mod chat;
mod generate;
mod prompt;
mod reply;

use karat_model::prompt::{EncodeOptions, Encoder, Message, Tokenizer, special};
use karat_model::{Error, Result as ModelResult};
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::sse::Events;
use crate::trouble::{Result, Trouble};

pub use chat::{message_json, tools_json};
pub use reply::{Call, Reply, Times, Usage};

/// Whose API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Chat completions and completions, nothing else.
    OpenAi,
    /// The same and SGLang's `/generate`.
    Sglang,
    /// The same with vLLM's extensions.
    Vllm,
}

impl Api {
    /// The words on the command line.
    pub const NAMES: [&'static str; 3] = ["openai", "sglang", "vllm"];

    /// The API of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "openai" => Some(Self::OpenAi),
            "sglang" => Some(Self::Sglang),
            "vllm" => Some(Self::Vllm),
            _ => None,
        }
    }

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/v1/chat/completions`: messages; the server renders and tokenises them.
    Chat,
    /// `/v1/completions`: token ids that karat rendered.
    Completions,
    /// SGLang's `/generate`: token ids that karat rendered.
    Generate,
}

impl Route {
    /// The words on the command line.
    pub const NAMES: [&'static str; 3] = ["chat", "completions", "generate"];

    /// The route of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "chat" => Some(Self::Chat),
            "completions" => Some(Self::Completions),
            "generate" => Some(Self::Generate),
            _ => None,
        }
    }

    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Generate => "/generate",
        }
    }
}

/// Makes ids of a conversation: the tokenizer and encoder of a checkpoint that karat holds.
#[derive(Debug)]
pub struct Renderer {
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its prompt encoder.
    pub encoder: Encoder,
}

impl Renderer {
    /// Ids of a prompt that the model answers.
    pub fn ids(&self, messages: &[Message], options: &EncodeOptions) -> ModelResult<Vec<u32>> {
        Ok(self.tokenizer.encode_prompt(&self.encoder.encode(messages, options)?)?.ids)
    }
}

/// A server, how it is asked, and for which model.
#[derive(Debug)]
pub struct Server<'a> {
    /// The connection.
    pub client: Client<'a>,
    /// Whose API.
    pub api: Api,
    /// What is sent.
    pub route: Route,
    /// Name of the model in requests.
    pub model: String,
    /// Answers come as a stream. Without, nothing can be interrupted, and there is no time to the first token.
    pub streams: bool,
    /// Fields of every request beside karat's own.
    pub extra: Map<String, Value>,
    /// Needed for every route but chat.
    pub renderer: Option<Renderer>,
}

/// The name of the served model: the first of `/v1/models`.
pub fn model_name(client: &Client<'_>) -> Result<String> {
    let (models, _) = client.patiently(|| client.get("/v1/models"));
    let models = models?;
    let first = models.get("data").and_then(|d| d.get(0)).and_then(|m| m.get("id")).and_then(Value::as_str);
    first.map(str::to_owned).ok_or_else(|| Trouble::malformed("/v1/models names no model; name it with --model-name"))
}

impl Server<'_> {
    /// Checks that the route can be taken.
    ///
    /// # Errors
    /// A usage error for SGLang's route at another server, and for ids without a renderer.
    pub fn check(&self) -> ModelResult<()> {
        if self.route == Route::Generate && self.api != Api::Sglang {
            return Err(Error::usage("only SGLang has /generate").at("--route").hint("use --api sglang"));
        }
        if self.route != Route::Chat && self.renderer.is_none() {
            return Err(Error::usage("this route takes ids, which need a checkpoint's tokenizer").at("--route"));
        }
        Ok(())
    }

    /// One request: the answer to `messages`, greedily, of at most `most` tokens. `enough` looks at what has come so far; when
    /// it says true the connection is closed at once, and the answer is what had come ([`Reply::closed`]).
    pub fn ask(
        &self,
        messages: &[Message],
        options: &EncodeOptions,
        most: usize,
        enough: Option<&mut dyn FnMut(&Reply) -> bool>,
    ) -> Result<Reply> {
        let body = self.body(messages, options, most)?;
        let started = std::time::Instant::now();
        if !self.streams {
            let answer = self.client.post(self.route.path(), &body)?;
            let mut reply = Reply::default();
            self.read(&answer, &mut reply, false)?;
            self.split(&mut reply, options);
            reply.times.total = started.elapsed().as_secs_f64();
            return reply.whole();
        }
        let mut events = self.client.stream(self.route.path(), &body)?;
        self.follow(&mut events, options, enough)
    }

    fn follow(
        &self,
        events: &mut Events,
        options: &EncodeOptions,
        mut enough: Option<&mut dyn FnMut(&Reply) -> bool>,
    ) -> Result<Reply> {
        let mut reply = Reply::default();
        if let Some(enough) = enough.as_deref_mut()
            && enough(&reply)
        {
            reply.closed = true;
            return Ok(reply);
        }
        while let Some(data) = events.next_data()? {
            if self.client.is_stopped() {
                return Err(Trouble::Stopped);
            }
            let value: Value = serde_json::from_str(&data).map_err(|e| {
                let shown: String = data.chars().take(80).collect();
                Trouble::malformed(format!("an event of the stream is not JSON ({e}): {shown:?}"))
            })?;
            let before = reply.said_bytes();
            self.read(&value, &mut reply, true)?;
            let now = events.started.elapsed().as_secs_f64();
            if reply.said_bytes() > before {
                reply.times.first.get_or_insert(now);
                reply.times.last = now;
                reply.chunks += 1;
            }
            reply.times.total = now;
            if let Some(enough) = enough.as_deref_mut()
                && enough(&reply)
            {
                reply.closed = true;
                self.split(&mut reply, options);
                return Ok(reply);
            }
        }
        reply.done = events.done;
        self.split(&mut reply, options);
        reply.whole()
    }

    fn body(&self, messages: &[Message], options: &EncodeOptions, most: usize) -> Result<Value> {
        let mut body = match self.route {
            Route::Chat => chat::body(self, messages, options, most),
            route => {
                let renderer = self.renderer.as_ref().ok_or_else(|| Trouble::Refused("no tokenizer".to_owned()))?;
                let ids = renderer.ids(messages, options).map_err(|e| Trouble::Refused(e.to_string()))?;
                match route {
                    Route::Generate => generate::body(&ids, most, self.streams),
                    _ => prompt::body(self, &ids, most),
                }
            }
        };
        if let Value::Object(fields) = &mut body {
            fields.extend(self.extra.clone());
        }
        Ok(body)
    }

    fn read(&self, value: &Value, reply: &mut Reply, is_event: bool) -> Result<()> {
        if value.get("error").is_some_and(|e| !e.is_null()) {
            let what = crate::client::message(value).unwrap_or_else(|| "no reason given".to_owned());
            let what: String = what.chars().take(300).collect();
            // An error behind a 200: the engine failed while it ran.
            return Err(Trouble::infra(format!("the server reports an error in its answer: {what}")));
        }
        match self.route {
            Route::Chat => chat::read(value, reply, is_event),
            Route::Completions => prompt::read(value, reply),
            Route::Generate => generate::read(value, reply),
        }
    }

    /// Text that was generated from ids holds the reasoning's end and the special tokens.
    fn split(&self, reply: &mut Reply, options: &EncodeOptions) {
        if self.route == Route::Chat {
            return;
        }
        let text = std::mem::take(&mut reply.content);
        let text = text.split(special::EOS).next().unwrap_or_default();
        match text.split_once(special::END_THINK) {
            Some((reasoning, content)) => {
                reasoning.clone_into(&mut reply.reasoning);
                content.clone_into(&mut reply.content);
            }
            None if options.thinking => text.clone_into(&mut reply.reasoning),
            None => text.clone_into(&mut reply.content),
        }
    }
}

/// Fields that every OpenAI-like request has.
fn common(server: &Server<'_>, most: usize) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), json!(server.model));
    fields.insert("max_tokens".to_owned(), json!(most));
    fields.insert("temperature".to_owned(), json!(0));
    fields.insert("stream".to_owned(), json!(server.streams));
    if server.streams {
        fields.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    fields
}

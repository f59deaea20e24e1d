//! Constraints: answers that follow a grammar, token by token, by llguidance.
//!
//! A [`Grammar`] is compiled against a vocabulary ([`Grammars`]) into a [`Compiled`] constraint, which answers start from.
//! Each holds a [`Constraint`]: which tokens may come next. A token stands for its bytes, so any tokens may spell an answer;
//! special tokens spell nothing and come only where a grammar names them, and those that end an answer only where it may
//! end.
//!
//! What a request brings is bounded: its size and depth before it is read, the work of compiling it, the time of that, and
//! the work of each step. Past a bound it is an error; so nothing that a request says can take longer.

mod gbnf;
mod lark;
mod masks;
mod tokens;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, SimpleVob};
use llguidance::{Logger, Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::Error;
use masks::{Mask, Masks};
pub use tokens::{Spelling, TokenTable};

/// How long compiling may take.
const PATIENCE: Duration = Duration::from_millis(900);
/// The most bytes of a grammar.
const MAX_BYTES: usize = 1 << 20;
/// The deepest nesting of a grammar.
const MAX_DEPTH: usize = 200;
/// The most compilations that go on behind their time. Each ends by its own bounds.
const MAX_LATE: usize = 8;
/// Stack of a thread that compiles: nesting is walked by recursion, and this holds far more than may be nested.
const STACK: usize = 64 << 20;
/// Spaces between the parts of a JSON document: none, one, or a line's end and the next line's indentation. More would let a
/// model go on with spaces for ever.
const JSON_SPACE: &str = r"( |\n[ \t]{0,20})";

/// What an answer must look like.
#[derive(Clone, PartialEq, Debug)]
pub enum Grammar {
    /// A JSON document for which this JSON schema holds (draft 4 to 2020-12). What cannot be enforced is refused.
    JsonSchema(Value),
    /// A text that this regular expression matches from its beginning to its end. The syntax is that of Rust's `regex`.
    Regex(String),
    /// llama.cpp's grammars. The answer begins with the rule `root`.
    Gbnf(String),
    /// Lark grammars, as llguidance reads them. The answer begins with the rule `start`.
    Lark(String),
}

impl Grammar {
    /// A JSON schema from its text.
    ///
    /// # Errors
    /// [`Error::Grammar`] where it is no JSON, or nested too deep.
    pub fn json_schema(text: &str) -> Result<Self, Error> {
        let fault = |why: String| Error::Grammar { kind: Kind::JsonSchema, why };
        if text.len() > MAX_BYTES {
            return Err(fault(too_long(text.len())));
        }
        let schema = serde_json::from_str(text).map_err(|e| fault(format!("it is not JSON: {e}")))?;
        Ok(Grammar::JsonSchema(schema))
    }

    /// Any JSON object.
    pub fn json_object() -> Self {
        Grammar::JsonSchema(json!({ "type": "object" }))
    }

    fn kind(&self) -> Kind {
        match self {
            Grammar::JsonSchema(_) => Kind::JsonSchema,
            Grammar::Regex(_) => Kind::Regex,
            Grammar::Gbnf(_) => Kind::Gbnf,
            Grammar::Lark(_) => Kind::Lark,
        }
    }

    /// Checks size and depth, without recursion.
    fn check(&self) -> Result<(), String> {
        let (bytes, depth) = match self {
            Grammar::JsonSchema(schema) => measure(schema),
            Grammar::Regex(text) | Grammar::Gbnf(text) | Grammar::Lark(text) => (text.len(), nesting(text)),
        };
        if bytes > MAX_BYTES {
            return Err(too_long(bytes));
        }
        if depth > MAX_DEPTH {
            return Err(format!("it is nested {depth} deep, and at most {MAX_DEPTH} is taken"));
        }
        Ok(())
    }
}

/// The kinds of [`Grammar`], for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is its name")]
pub enum Kind {
    JsonSchema,
    Regex,
    Gbnf,
    Lark,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::JsonSchema => "JSON schema",
            Kind::Regex => "regular expression",
            Kind::Gbnf => "GBNF grammar",
            Kind::Lark => "Lark grammar",
        })
    }
}

fn too_long(bytes: usize) -> String {
    format!("it has {bytes} bytes, and at most {MAX_BYTES} are taken")
}

/// About how many bytes a value's text has, and how deep it is nested.
fn measure(value: &Value) -> (usize, usize) {
    let (mut bytes, mut deepest) = (0usize, 0);
    let mut left = vec![(value, 1)];
    while let Some((value, depth)) = left.pop() {
        deepest = depth.max(deepest);
        bytes = bytes.saturating_add(match value {
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                left.extend(items.iter().map(|item| (item, depth + 1)));
                items.len() + 2
            }
            Value::Object(fields) => {
                left.extend(fields.values().map(|value| (value, depth + 1)));
                fields.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        });
    }
    (bytes, deepest)
}

/// How deep brackets are nested in a text, at most: those within quotes count too, so it may be less.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = depth.max(deepest);
    }
    deepest
}

/// A vocabulary that grammars can be compiled against. Clones are the same one.
#[derive(Clone)]
pub struct Grammars {
    inner: Arc<Inner>,
}

struct Inner {
    factory: ParserFactory,
    vocabulary: usize,
    masks: Masks,
    /// Compilations that go on behind their time.
    late: AtomicUsize,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").field("vocabulary", &self.inner.vocabulary).finish_non_exhaustive()
    }
}

impl Grammars {
    /// For these tokens, one a row of logits; rows beyond them cannot come under a constraint. It takes about a second for a
    /// hundred thousand, so it is made once a model.
    ///
    /// # Errors
    /// [`Error::Tokens`] for a vocabulary that cannot be searched.
    pub fn new(table: &TokenTable) -> Result<Self, Error> {
        let fault = |e: String| Error::Tokens(first_line(&e));
        let tokens = tokens::environment(table).map_err(fault)?;
        let caps = InferenceCapabilities::default();
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&tokens, caps, &slices).map_err(|e| fault(e.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        let inner =
            Inner { factory, vocabulary: table.len(), masks: Masks::start(), late: AtomicUsize::new(0) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Compiles a grammar, within a second.
    ///
    /// # Errors
    /// [`Error::Grammar`] for what cannot be read or enforced, takes too long, or has no beginning in this vocabulary.
    pub fn compile(&self, grammar: &Grammar) -> Result<Compiled, Error> {
        let kind = grammar.kind();
        let fault = |why: String| Error::Grammar { kind, why };
        grammar.check().map_err(fault)?;
        if self.inner.late.load(Ordering::Relaxed) >= MAX_LATE {
            return Err(fault("too many others take too long to compile at the moment".into()));
        }
        let (inner, grammar) = (Arc::clone(&self.inner), grammar.clone());
        let (sender, result) = mpsc::sync_channel(1);
        self.inner.late.fetch_add(1, Ordering::Relaxed);
        let work = move || {
            let compiled = inner.compile(&grammar);
            inner.late.fetch_sub(1, Ordering::Relaxed);
            // Nobody may wait for it any more.
            let _ = sender.send(compiled);
        };
        let thread = thread::Builder::new().name("cera-grammar".into()).stack_size(STACK).spawn(work);
        if let Err(e) = thread {
            self.inner.late.fetch_sub(1, Ordering::Relaxed);
            return Err(fault(format!("no thread could be started to compile it: {e}")));
        }
        match result.recv_timeout(PATIENCE) {
            Ok(compiled) => {
                let (matcher, first) = compiled.map_err(fault)?;
                let grammars = self.clone();
                Ok(Compiled {
                    shared: Arc::new(Shared { grammars, kind, matcher: Mutex::new(matcher), first }),
                })
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(fault(format!("it takes longer than {} ms to compile", PATIENCE.as_millis())))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(fault("it cannot be compiled".into())),
        }
    }
}

impl Inner {
    fn compile(&self, grammar: &Grammar) -> Result<(Matcher, SimpleVob), String> {
        let top = match grammar {
            Grammar::JsonSchema(schema) => TopLevelGrammar::from_json_schema(with_options(schema)?),
            Grammar::Regex(text) => TopLevelGrammar::from_regex(text),
            Grammar::Gbnf(text) => TopLevelGrammar::from_lark(lark::from_gbnf(&gbnf::parse(text)?)?),
            Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        };
        let parser = self.factory.create_parser_from_init_ext(
            llguidance::api::GrammarInit::Serialized(top),
            Logger::new(0, 0),
            InferenceCapabilities::default(),
            self.factory.limits().clone(),
        );
        let mut matcher = Matcher::new(Ok(parser.map_err(|e| reason(&e.to_string()))?));
        let first = matcher.compute_mask_or_eos().map_err(|e| {
            let why = reason(&e.to_string());
            if why.contains("NoExtension") {
                "no token of the vocabulary can begin it".to_owned()
            } else {
                why
            }
        })?;
        if first.is_zero() {
            return Err("no token of the vocabulary can begin it".into());
        }
        Ok((matcher, first))
    }
}

/// The schema with our way to write spaces, unless it has one of its own.
fn with_options(schema: &Value) -> Result<Value, String> {
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => return Err("no document satisfies `false`".into()),
        Value::Object(_) => schema.clone(),
        _ => return Err("a schema is an object, or true".into()),
    };
    if let Some(fields) = schema.as_object_mut() {
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        if let Some(options) = options.as_object_mut()
            && !["whitespace_flexible", "whitespace_pattern"].iter().any(|o| options.contains_key(*o))
        {
            options.insert("whitespace_pattern".into(), JSON_SPACE.into());
        }
    }
    Ok(schema)
}

/// What llguidance says, without the state of its parser that may be behind it.
fn reason(text: &str) -> String {
    let text = text.split("\n<state>").next().unwrap_or(text);
    let text = text.split("<non-verbose/>").next().unwrap_or(text).trim();
    match text.strip_prefix("panic: ") {
        Some(panic) => format!("it cannot be compiled: {}", first_line(panic)),
        None => text.chars().take(600).collect(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

/// A grammar that is ready for any number of answers. Clones are the same one.
#[derive(Clone)]
pub struct Compiled {
    shared: Arc<Shared>,
}

struct Shared {
    grammars: Grammars,
    kind: Kind,
    /// At the beginning.
    matcher: Mutex<Matcher>,
    /// The tokens that an answer can begin with.
    first: SimpleVob,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").field("kind", &self.shared.kind).finish_non_exhaustive()
    }
}

impl Compiled {
    /// A constraint for one answer, at its beginning.
    pub fn start(&self) -> Constraint {
        // Tables that the matcher makes as it goes are bounded a matcher, so each answer has its own.
        let matcher = self.shared.matcher.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
        let mask = Mask { allowed: self.shared.first.clone(), time: Duration::ZERO };
        let state = State::Ready(Box::new((matcher, mask)));
        Constraint { compiled: self.clone(), state, last_mask: Duration::ZERO }
    }
}

/// Which tokens may come next in one answer.
///
/// The next mask is made on another thread as soon as a token is [accepted](Self::accept), so that it is there when the
/// model's logits are.
pub struct Constraint {
    compiled: Compiled,
    state: State,
    last_mask: Duration,
}

enum State {
    /// The tokens that may come next are known.
    Ready(Box<(Matcher, Mask)>),
    /// They are being found out.
    Away(masks::Reply),
    /// The answer is complete: nothing may come.
    Complete,
    /// It failed, and fails again.
    Failed(Error),
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("kind", &self.compiled.shared.kind).finish_non_exhaustive()
    }
}

impl Constraint {
    /// Rules out, by `-inf`, all tokens of a row of logits that may not come next.
    ///
    /// # Errors
    /// [`Error::Step`] where finding them takes too much work, or nothing at all may follow.
    pub fn apply(&mut self, logits: &mut [f32]) -> Result<(), Error> {
        let (_, mask) = self.ready()?;
        let words = mask.allowed.as_slice();
        for (chunk, logits) in logits.chunks_mut(32).enumerate() {
            match words.get(chunk).copied().unwrap_or(0) {
                0 => logits.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                word => {
                    for (bit, logit) in logits.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a token may come next.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn allows(&mut self, token: u32) -> Result<bool, Error> {
        let vocabulary = self.compiled.shared.grammars.inner.vocabulary;
        let (_, mask) = self.ready()?;
        Ok((token as usize) < vocabulary && mask.allowed.is_allowed(token))
    }

    /// Takes a token that was chosen.
    ///
    /// # Errors
    /// [`Error::Step`] for one that may not come.
    pub fn accept(&mut self, token: u32) -> Result<(), Error> {
        self.ready()?;
        let State::Ready(mut ready) = std::mem::replace(&mut self.state, State::Complete) else {
            return Ok(());
        };
        if let Err(e) = ready.0.consume_token(token) {
            return Err(self.fail(&e.to_string()));
        }
        if !ready.0.is_stopped() {
            self.state = State::Away(self.compiled.shared.grammars.inner.masks.ask(ready.0));
        } else if !ready.0.stop_reason().is_ok() {
            let why = ready.0.stop_reason().to_string();
            return Err(self.fail(&why));
        }
        Ok(())
    }

    /// Whether the answer is complete: nothing may follow but its end.
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// How long the work for the last mask took that was used.
    pub fn last_mask(&self) -> Duration {
        self.last_mask
    }

    fn fail(&mut self, why: &str) -> Error {
        let error = Error::Step { kind: self.compiled.shared.kind, why: reason(why) };
        self.state = State::Failed(error.clone());
        error
    }

    fn ready(&mut self) -> Result<&mut (Matcher, Mask), Error> {
        if let State::Away(reply) = &self.state {
            match reply.wait() {
                Ok(ready) => {
                    self.last_mask = ready.1.time;
                    self.state = State::Ready(Box::new(ready));
                }
                Err(why) => return Err(self.fail(&why)),
            }
        }
        match &mut self.state {
            State::Ready(ready) => Ok(ready),
            State::Failed(error) => Err(error.clone()),
            State::Complete | State::Away(_) => {
                let kind = self.compiled.shared.kind;
                Err(Error::Step { kind, why: "the answer is complete: nothing may follow".into() })
            }
        }
    }
}

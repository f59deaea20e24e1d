//! What a model's answer is made of: text, reasoning, calls of tools.
//!
//! Models write all three as one text, each family with markers of its own. [`ReplyFormat`] finds out from the model's
//! chat template which these are; [`ReplyParser`] takes an answer apart while it arrives. What it gives does not
//! depend on how the answer was cut into pieces.
//!
//! **A call that is not whole and well-formed is text.** So a call is given out when its last character is there,
//! and what looks like one and is none stays in the answer as the model wrote it, with a flag. Nothing is repaired:
//! a guess at what a model meant to do is not a thing to act upon.

mod calls;
mod harmony;
mod literal;
mod parse;

use serde_json::Value as Json;

pub use parse::ReplyParser;

/// A part of an answer, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPart {
    /// More text for the reader.
    Text(String),
    /// More of what the model thought before it answered.
    Reasoning(String),
    /// A call, whole.
    Call(ToolCall),
    /// The text that follows looks like a call, and cannot be read as one.
    Malformed,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's own name, where the format has one.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// How a model marks reasoning and calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyFormat {
    reasoning: Option<Fence>,
    calls: Option<Style>,
    tools: bool,
}

/// The markers around a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    open: &'static str,
    close: &'static str,
}

/// How calls are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Marked calls.
    Marked(Marked),
    /// The answer is one JSON object `{"name": …, "parameters": {…}}` (Llama 3), or a list of Python calls (Llama 3.2).
    Bare,
    /// Messages in channels, a call being a message to a tool (gpt-oss).
    Harmony,
}

/// Calls between markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marked {
    /// Begins a call, or a list of calls.
    open: &'static str,
    /// What is between.
    body: Body,
    /// Ends it. Empty where only the body's own end shows.
    close: &'static str,
    /// What else may stand around calls and means nothing.
    around: &'static [&'static str],
}

/// What stands between the markers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// A JSON object with a name and arguments, or a list of them.
    Json,
    /// A name in some frame, then the arguments as a JSON object.
    Headed,
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>` (Qwen 3 Coder).
    Parameters,
    /// `<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>` (DeepSeek V3.2, MiniMax).
    Invoke,
    /// `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>` (GLM).
    KeysAndValues,
    /// `[name(key=value)]` in Python's literals (LFM2).
    Python,
    /// `call:NAME{key:value}`, with this marker around strings (Gemma).
    Gemma(&'static str),
}

/// One family's way to write calls.
struct Known {
    /// The template has all of these.
    signs: &'static [&'static str],
    marked: Marked,
}

const fn known(
    signs: &'static [&'static str],
    open: &'static str,
    body: Body,
    close: &'static str,
    around: &'static [&'static str],
) -> Known {
    Known { signs, marked: Marked { open, body, close, around } }
}

/// The first that fits counts: those with more signs stand before those with fewer.
const KNOWN: &[Known] = &[
    // Mistral: a list of objects (to Nemo), `name[ARGS]{…}` (since Small 3.2), with an id between in some.
    known(&["[TOOL_CALLS]"], "[TOOL_CALLS]", Body::Headed, "", &[]),
    // DeepSeek V3, R1 and V3.1.
    known(
        &["<｜tool▁call▁begin｜>"],
        "<｜tool▁call▁begin｜>",
        Body::Headed,
        "<｜tool▁call▁end｜>",
        &["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "```"],
    ),
    // Kimi K2.
    known(
        &["<|tool_calls_section_begin|>"],
        "<|tool_call_begin|>",
        Body::Headed,
        "<|tool_call_end|>",
        &["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
    ),
    // DeepSeek V3.2 and V4; MiniMax M2.
    known(
        &["｜DSML｜", "function_calls"],
        "<｜DSML｜function_calls>",
        Body::Invoke,
        "</｜DSML｜function_calls>",
        &[],
    ),
    known(&["｜DSML｜", "tool_calls"], "<｜DSML｜tool_calls>", Body::Invoke, "</｜DSML｜tool_calls>", &[]),
    known(&["<minimax:tool_call>"], "<minimax:tool_call>", Body::Invoke, "</minimax:tool_call>", &[]),
    known(&["<|tool_call_start|>"], "<|tool_call_start|>", Body::Python, "<|tool_call_end|>", &[]),
    // LFM2's first templates only say that a list of tools begins.
    known(&["<|tool_list_start|>"], "<|tool_call_start|>", Body::Python, "<|tool_call_end|>", &[]),
    // Gemma 4, and FunctionGemma.
    known(&["<|tool_call>", "<|\"|>"], "<|tool_call>", Body::Gemma("<|\"|>"), "<tool_call|>", &[]),
    known(
        &["<start_function_call>"],
        "<start_function_call>",
        Body::Gemma("<escape>"),
        "<end_function_call>",
        &[],
    ),
    known(&["<tool_call>", "<arg_key>"], "<tool_call>", Body::KeysAndValues, "</tool_call>", &[]),
    known(&["<tool_call>", "<function="], "<tool_call>", Body::Parameters, "</tool_call>", &[]),
    // Seed-OSS.
    known(&["<seed:tool_call>"], "<seed:tool_call>", Body::Parameters, "</seed:tool_call>", &[]),
    // Apriel, MiniMax M1.
    known(&["<tool_calls>"], "<tool_calls>", Body::Json, "</tool_calls>", &[]),
    // Hermes, Qwen 2.5 and 3, SmolLM3, Granite 4.
    known(&["<tool_call>"], "<tool_call>", Body::Json, "</tool_call>", &[]),
    // Granite 3, Phi 4 mini.
    known(&["<|tool_call|>"], "<|tool_call|>", Body::Json, "<|/tool_call|>", &[]),
    // Functionary.
    known(&["<function="], "<function=", Body::Headed, "</function>", &[]),
    // Nemotron Nano 2, GigaChat 3.1.
    known(&["<TOOLCALL>"], "<TOOLCALL>", Body::Json, "</TOOLCALL>", &[]),
    known(&["<|function_call|>"], "<|function_call|>", Body::Json, "", &[]),
];

/// Markers of reasoning; the first whose opening or closing one the template has counts.
const REASONING: &[Fence] = &[
    Fence { open: "<seed:think>", close: "</seed:think>" },
    Fence { open: "[THINK]", close: "[/THINK]" },
    Fence { open: "<|channel>thought", close: "<channel|>" },
    Fence { open: "<think>", close: "</think>" },
];

impl ReplyFormat {
    /// Neither reasoning nor calls: all is text.
    pub const PLAIN: Self = Self { reasoning: None, calls: None, tools: false };

    /// The format that a chat template shows.
    pub fn of(template: &str) -> Self {
        if template.contains("<|channel|>") && template.contains("<|message|>") {
            return Self { reasoning: None, calls: Some(Style::Harmony), tools: true };
        }
        let tools = template.contains("tools");
        let marked = KNOWN.iter().find(|known| known.signs.iter().all(|sign| template.contains(sign)));
        let bare = template.contains("ipython") || template.contains("\"parameters\"");
        let calls = match marked {
            Some(known) => Some(Style::Marked(known.marked)),
            None => (tools && bare).then_some(Style::Bare),
        };
        let shown = |fence: &&Fence| template.contains(fence.open) || template.contains(fence.close);
        Self { reasoning: REASONING.iter().find(shown).copied(), calls, tools }
    }

    /// Whether the template takes tools and writes their calls in a way that is known here.
    pub fn has_tools(&self) -> bool {
        self.tools && self.calls.is_some()
    }

    /// Whether the model marks what it thinks.
    pub fn has_reasoning(&self) -> bool {
        self.reasoning.is_some() || self.calls == Some(Style::Harmony)
    }

    /// The markers, which are control tokens in some vocabularies: they have to be in the text that is parsed.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut markers = Vec::new();
        if let Some(fence) = self.reasoning {
            markers.extend([fence.open, fence.close]);
        }
        match self.calls {
            Some(Style::Harmony) => markers.extend(harmony::MARKERS),
            Some(Style::Bare) => markers.push(parse::PYTHON_TAG),
            Some(Style::Marked(marked)) => {
                markers.extend([marked.open, marked.close]);
                markers.extend(marked.around);
                markers.extend(match marked.body {
                    Body::Headed => calls::SEPARATORS,
                    Body::Gemma("<escape>") => &["<escape>"],
                    Body::Gemma(_) => &["<|\"|>", "<|channel>"],
                    Body::Invoke => &["｜DSML｜"],
                    Body::KeysAndValues => &["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
                    _ => &[],
                });
            }
            None => {}
        }
        markers.retain(|marker| !marker.is_empty());
        markers
    }

    /// A parser of one answer. `prompt` is what the answer goes on from: it may end within reasoning. `tools` are those
    /// that the request offers, in OpenAI's form; without any, nothing is read as a call.
    pub fn parser(&self, prompt: &str, tools: &[Json]) -> ReplyParser {
        ReplyParser::new(*self, prompt, tools)
    }
}

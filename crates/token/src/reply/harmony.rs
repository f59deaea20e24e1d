//! Answers in channels, as gpt-oss gives them (OpenAI's "harmony" response format).
//!
//! An answer is a row of messages, each `HEADER<|message|>BODY` and a token that ends it. The header names the channel:
//! `analysis` is reasoning, `final` the answer, `commentary` a remark to the reader or, with a recipient
//! `to=functions.NAME`, a call whose arguments are the body.

/// Begins a message, its channel, its body.
pub(super) const START: &str = "<|start|>";
pub(super) const MESSAGE: &str = "<|message|>";
const CHANNEL: &str = "<|channel|>";
/// What ends a body. The last two end the answer too.
pub(super) const ENDS: [&str; 4] = ["<|end|>", START, "<|call|>", "<|return|>"];

pub(super) const MARKERS: [&str; 7] =
    [START, CHANNEL, "<|constrain|>", MESSAGE, "<|end|>", "<|call|>", "<|return|>"];

/// Where a message's body goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Reasoning,
    Text,
    Tool(String),
}

/// Reads a header: what stands before [`MESSAGE`].
pub(super) fn target(header: &str) -> Target {
    let words = |text: &str| text.replace("<|constrain|>", " ").replace(CHANNEL, " ");
    let recipient = words(header).split_whitespace().find_map(|w| w.strip_prefix("to=").map(str::to_owned));
    if let Some(recipient) = recipient {
        let name = recipient.strip_prefix("functions.").unwrap_or(&recipient);
        return Target::Tool(name.to_owned());
    }
    let channel = header.rsplit_once(CHANNEL).map_or("", |(_, channel)| channel.trim_start());
    if channel.starts_with("analysis") { Target::Reasoning } else { Target::Text }
}

/// Whether a header holds nothing that a reader should see.
pub(super) fn is_blank(header: &str) -> bool {
    header.replace(START, "").replace("assistant", "").trim().is_empty()
}

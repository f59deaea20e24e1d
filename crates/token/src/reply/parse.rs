//! Takes an answer apart, character by character, so that the cuts of the stream cannot show.

use serde_json::Value as Json;

use super::calls::{self, JsonEnd, Types};
use super::harmony::{self, Target};
use super::{Body, Fence, Marked, ReplyFormat, ReplyPart, Style, ToolCall, literal};

/// Begins calls in Llama 3's answers, where it is there at all.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

/// Takes one answer apart. See [`ReplyFormat::parser`].
#[derive(Debug, Clone)]
pub struct ReplyParser {
    reasoning: Option<Fence>,
    calls: Option<Style>,
    names: Vec<String>,
    types: Types,
    state: State,
    /// Characters that may become a marker.
    held: String,
    /// Blanks behind text, which go out if more text follows and are dropped if a call does.
    blanks: String,
    /// The part before ended with a marker: blanks are the frame's.
    fresh: bool,
    /// No text has gone out yet, so reasoning may begin.
    silent: bool,
    out: Vec<ReplyPart>,
}

#[derive(Debug, Clone)]
enum State {
    Text,
    Reasoning,
    /// Within a call: what followed its opening marker.
    Call {
        open: &'static str,
        body: String,
        json: Option<(usize, JsonEnd)>,
    },
    Header(String),
    Message(Target, String),
}

/// What a character led to.
enum Found {
    Reasoning,
    Call(&'static str),
    Nothing,
}

impl ReplyParser {
    pub(super) fn new(format: ReplyFormat, prompt: &str, tools: &[Json]) -> Self {
        let harmony = format.calls == Some(Style::Harmony);
        let inside = format.reasoning.is_some_and(|fence| prompt.trim_end().ends_with(fence.open));
        let state = match () {
            () if harmony && prompt.trim_end().ends_with(harmony::MESSAGE) => {
                let header = prompt.rsplit(harmony::START).next().unwrap_or_default();
                State::Message(
                    harmony::target(header.trim_end().trim_end_matches(harmony::MESSAGE)),
                    String::new(),
                )
            }
            () if harmony => State::Header(String::new()),
            () if inside => State::Reasoning,
            () => State::Text,
        };
        let name = |tool: &Json| Some(tool.get("function").unwrap_or(tool).get("name")?.as_str()?.to_owned());
        Self {
            reasoning: format.reasoning,
            calls: format.calls.filter(|_| harmony || format.tools && !tools.is_empty()),
            names: tools.iter().filter_map(name).collect(),
            types: Types::new(tools),
            state,
            held: String::new(),
            blanks: String::new(),
            fresh: inside,
            silent: true,
            out: Vec::new(),
        }
    }

    /// Takes the next piece of the answer; gives the parts that it completes.
    pub fn push(&mut self, piece: &str) -> Vec<ReplyPart> {
        if self.reasoning.is_none() && self.calls.is_none() {
            return if piece.is_empty() { Vec::new() } else { vec![ReplyPart::Text(piece.to_owned())] };
        }
        piece.chars().for_each(|c| self.char(c));
        self.given()
    }

    /// The answer has ended. A call that is not whole was none.
    pub fn finish(&mut self) -> Vec<ReplyPart> {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text => {
                let held = std::mem::take(&mut self.held);
                self.text(&held);
                let blanks = std::mem::take(&mut self.blanks);
                if !self.fresh {
                    self.emit(&blanks);
                }
            }
            State::Reasoning => {
                let held = std::mem::take(&mut self.held);
                self.thought(&held);
            }
            State::Call { open, body, .. } => match self.read(open, &body) {
                Some(calls) => self.called(calls),
                None => self.malformed(open, &body),
            },
            State::Header(header) => {
                if !harmony::is_blank(&header) {
                    self.out.push(ReplyPart::Malformed);
                    self.emit(&header);
                }
            }
            State::Message(target, body) => {
                let held = std::mem::take(&mut self.held);
                self.message(&target, body, &held);
            }
        }
        self.given()
    }

    /// The parts so far, neighbours of one kind joined.
    fn given(&mut self) -> Vec<ReplyPart> {
        let mut parts: Vec<ReplyPart> = Vec::new();
        for part in self.out.drain(..) {
            match (parts.last_mut(), part) {
                (Some(ReplyPart::Text(text)), ReplyPart::Text(more)) => text.push_str(&more),
                (Some(ReplyPart::Reasoning(text)), ReplyPart::Reasoning(more)) => text.push_str(&more),
                (_, part) => parts.push(part),
            }
        }
        parts
    }

    fn char(&mut self, c: char) {
        match &mut self.state {
            State::Text => self.text_char(c),
            State::Reasoning => {
                let close = self.reasoning.map_or("", |fence| fence.close);
                self.held.push(c);
                if self.held.ends_with(close) {
                    self.held.truncate(self.held.len() - close.len());
                    let text = std::mem::take(&mut self.held);
                    self.thought(&text);
                    self.blanks.clear();
                    self.fresh = true;
                    self.state = State::Text;
                } else {
                    let ready = self.ready(&[close]);
                    self.thought(&ready);
                }
            }
            State::Call { .. } => self.call_char(c),
            State::Header(header) => {
                header.push(c);
                if header.ends_with(harmony::MESSAGE) {
                    header.truncate(header.len() - harmony::MESSAGE.len());
                    self.state = State::Message(harmony::target(header), String::new());
                    self.fresh = true;
                }
            }
            State::Message(..) => self.message_char(c),
        }
    }

    fn text_char(&mut self, c: char) {
        if self.bare_call_begins(c) {
            self.held.clear();
            self.begin("", Some(c));
            return;
        }
        self.held.push(c);
        match self.found() {
            Found::Nothing => {}
            Found::Reasoning => {
                self.blanks.clear();
                self.fresh = true;
                self.state = State::Reasoning;
                return;
            }
            Found::Call(open) => {
                self.begin(open, None);
                return;
            }
        }
        let markers = self.watched();
        let ready = self.ready(&markers);
        self.text(&ready);
    }

    /// Whether an unmarked call begins here: as the first thing of an answer, or behind another call.
    fn bare_call_begins(&self, c: char) -> bool {
        let sign = c == '{' || c == '[';
        self.calls == Some(Style::Bare) && sign && self.silent && self.held.trim().is_empty()
    }

    /// The markers that mean something here.
    fn watched(&self) -> Vec<&'static str> {
        let mut markers = Vec::with_capacity(8);
        if let Some(fence) = self.reasoning.filter(|_| self.silent) {
            markers.push(fence.open);
        }
        match self.calls {
            Some(Style::Marked(Marked { open, around, close, .. })) => {
                markers.push(open);
                // Frames of calls are text elsewhere; those that open a list may stand anywhere.
                markers.extend(around.iter().filter(|m| self.fresh || m.contains("begin")));
                if self.fresh && !close.is_empty() {
                    markers.push(close);
                }
            }
            Some(Style::Bare) => {
                markers.push(PYTHON_TAG);
                if self.fresh {
                    markers.push(";");
                }
            }
            _ => {}
        }
        markers
    }

    /// Looks for a marker at the end of what is held; one that only frames is dropped.
    fn found(&mut self) -> Found {
        let Some(marker) = self.watched().into_iter().find(|m| self.held.ends_with(m)) else {
            return Found::Nothing;
        };
        let mut before = std::mem::take(&mut self.held);
        before.truncate(before.len() - marker.len());
        self.text(&before);
        match self.calls {
            _ if self.reasoning.is_some_and(|fence| fence.open == marker) => Found::Reasoning,
            Some(Style::Marked(marked)) if marked.open == marker => Found::Call(marker),
            Some(Style::Bare) if marker == PYTHON_TAG => Found::Call(marker),
            _ => {
                self.blanks.clear();
                self.fresh = true;
                Found::Nothing
            }
        }
    }

    /// Takes out of what is held all that cannot become a marker.
    fn ready(&mut self, markers: &[&str]) -> String {
        let keep = markers.iter().map(|marker| overlap(&self.held, marker)).max().unwrap_or(0);
        self.held.drain(..self.held.len() - keep).collect()
    }

    fn begin(&mut self, open: &'static str, first: Option<char>) {
        self.state = State::Call { open, body: String::new(), json: None };
        if let Some(c) = first {
            self.call_char(c);
        }
    }

    fn call_char(&mut self, c: char) {
        let State::Call { open, body, json } = &mut self.state else { return };
        let open = *open;
        body.push(c);
        let (is_json, close) = match self.calls {
            Some(Style::Marked(marked)) => {
                // LFM2 may be asked for JSON in place of Python.
                let python = marked.body == Body::Python && body.trim_start().starts_with('{');
                (python || matches!(marked.body, Body::Json | Body::Headed), marked.close)
            }
            // Python's list has no objects behind its bracket.
            _ => (body.starts_with('{') || !open.is_empty() && body.trim_start().starts_with('{'), ""),
        };
        if is_json {
            if let Some((_, end)) = json {
                if end.push(c) {
                    let body = std::mem::take(body);
                    return match self.read(open, &body) {
                        Some(calls) => self.called(calls),
                        None => self.malformed(open, &body),
                    };
                }
            } else if matches!(c, '{' | '[') && !headed_name(body) {
                let mut end = JsonEnd::default();
                end.push(c);
                *json = Some((body.len() - c.len_utf8(), end));
            }
        }
        if open.is_empty() && !is_json && !may_be_calls(body) {
            let body = std::mem::take(body);
            return self.malformed(open, &body);
        }
        let in_text = json.as_ref().is_some_and(|(_, end)| end.in_text());
        if in_text {
            return;
        }
        let whole = match close {
            "" => None,
            close => body.strip_suffix(close).map(str::to_owned),
        };
        let whole = match (self.calls, whole) {
            (Some(Style::Bare), _) if !is_json && c == ']' => Some(body.clone()),
            (_, whole) => whole,
        };
        let Some(whole) = whole else { return };
        match self.read(open, &whole) {
            Some(calls) => self.called(calls),
            // A closing marker, or a bracket, may stand within an argument.
            None if !is_json => {}
            None => {
                let State::Call { body, .. } = &mut self.state else { return };
                let body = std::mem::take(body);
                self.malformed(open, &body);
            }
        }
    }

    /// The calls that the body of a call is.
    fn read(&self, open: &str, body: &str) -> Option<Vec<ToolCall>> {
        match self.calls? {
            Style::Marked(marked) => match marked.body {
                Body::Json => calls::json(body),
                Body::Headed if body.trim_start().starts_with(['{', '[']) => calls::json(body),
                Body::Headed => {
                    let at = body.find('{')?;
                    Some(vec![calls::headed(body.get(..at)?, body.get(at..)?)?])
                }
                Body::Parameters => calls::parameters(body, &self.types),
                Body::Invoke => calls::invoke(body, &self.types),
                Body::KeysAndValues => calls::keys_and_values(body, &self.types),
                Body::Python if body.trim_start().starts_with(['{']) => calls::json(body),
                Body::Python => literal::python(body).or_else(|| calls::json(body)),
                Body::Gemma(quote) => literal::gemma(body, quote),
            },
            Style::Bare => {
                let calls = match body.trim_start().starts_with('{') {
                    true => calls::json(body),
                    false => literal::python(body).or_else(|| calls::json(body)),
                };
                // Without a marker only a tool's name tells a call from an answer in JSON.
                calls.filter(|calls| !open.is_empty() || calls.iter().all(|c| self.names.contains(&c.name)))
            }
            Style::Harmony => None,
        }
    }

    fn called(&mut self, calls: Vec<ToolCall>) {
        self.out.extend(calls.into_iter().map(ReplyPart::Call));
        self.blanks.clear();
        self.fresh = true;
        self.silent = true;
        self.state = State::Text;
    }

    /// What began as a call goes out as text.
    fn malformed(&mut self, open: &str, body: &str) {
        // An answer may be JSON and no call; nothing marked it as one.
        if !open.is_empty() {
            self.out.push(ReplyPart::Malformed);
        }
        self.state = State::Text;
        let blanks = std::mem::take(&mut self.blanks);
        if !self.fresh {
            self.emit(&blanks);
        }
        self.fresh = false;
        self.emit(open);
        self.emit(body);
    }

    /// Text, less the blanks that may belong to a frame.
    fn text(&mut self, text: &str) {
        let text = if self.fresh { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        let end = text.trim_end().len();
        let (solid, blanks) = text.split_at_checked(end).unwrap_or((text, ""));
        if !solid.is_empty() {
            let before = std::mem::take(&mut self.blanks);
            self.emit(&before);
            self.emit(solid);
            self.fresh = false;
        }
        self.blanks.push_str(blanks);
    }

    fn emit(&mut self, text: &str) {
        if !text.is_empty() {
            self.silent &= text.trim().is_empty();
            self.out.push(ReplyPart::Text(text.to_owned()));
        }
    }

    /// Reasoning, less the blanks at its two ends.
    fn thought(&mut self, text: &str) {
        let text = if self.fresh { text.trim_start() } else { text };
        let end = text.trim_end().len();
        let (solid, blanks) = text.split_at_checked(end).unwrap_or((text, ""));
        if !solid.is_empty() {
            let before = std::mem::take(&mut self.blanks);
            self.out.push(ReplyPart::Reasoning(before + solid));
            self.fresh = false;
        }
        self.blanks.push_str(blanks);
    }

    fn message_char(&mut self, c: char) {
        self.held.push(c);
        let found = harmony::ENDS.into_iter().find(|end| self.held.ends_with(end));
        let ready = match found {
            Some(end) => {
                let mut held = std::mem::take(&mut self.held);
                held.truncate(held.len() - end.len());
                held
            }
            None => self.ready(&harmony::ENDS),
        };
        let next = if found.is_some() { State::Header(String::new()) } else { State::Text };
        let State::Message(target, mut body) = std::mem::replace(&mut self.state, next) else { return };
        if found.is_some() {
            self.message(&target, body, &ready);
            return;
        }
        match &target {
            Target::Reasoning => self.thought(&ready),
            Target::Text => self.text(&ready),
            Target::Tool(_) => body.push_str(&ready),
        }
        self.state = State::Message(target, body);
    }

    /// The last of a message.
    fn message(&mut self, target: &Target, mut body: String, last: &str) {
        match target {
            Target::Reasoning => {
                self.thought(last);
                self.blanks.clear();
            }
            Target::Text => {
                self.text(last);
                let blanks = std::mem::take(&mut self.blanks);
                if !self.fresh {
                    self.emit(&blanks);
                }
            }
            Target::Tool(name) => {
                body.push_str(last);
                let call = calls::headed(name, if body.trim().is_empty() { "{}" } else { &body });
                match call {
                    Some(call) => self.out.push(ReplyPart::Call(call)),
                    None => {
                        self.out.push(ReplyPart::Malformed);
                        self.emit(&body);
                    }
                }
            }
        }
        self.fresh = true;
    }
}

/// Whether a bracket at the end of `body` belongs to a marker behind a name, such as `[ARGS]`.
fn headed_name(body: &str) -> bool {
    body.ends_with('[') && body.trim_start().len() > 1
}

/// Whether an unmarked list may still become one of calls: of Python's, or of objects.
fn may_be_calls(body: &str) -> bool {
    let inner = body.trim_start_matches('[').trim_start();
    let name_end = inner.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '-'));
    match name_end {
        None => true,
        Some(0) => inner.starts_with('{'),
        Some(end) => inner.get(end..).is_some_and(|rest| rest.starts_with('(')),
    }
}

/// Length in bytes of the longest end of `text` that is a proper beginning of `marker`.
fn overlap(text: &str, marker: &str) -> usize {
    let longest = marker.len().saturating_sub(1).min(text.len());
    let mut lengths = (1..=longest).rev();
    let begins = |n: &usize| {
        let start = text.len() - n;
        text.is_char_boundary(start) && text.get(start..).is_some_and(|end| marker.starts_with(end))
    };
    lengths.find(begins).unwrap_or(0)
}

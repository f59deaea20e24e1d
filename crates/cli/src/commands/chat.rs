//! `cera chat`: a conversation at the terminal.

use std::io::{self, IsTerminal, Write};

use cera::{Engine, Finish, Options, Request, Sequence};
use rustyline::error::ReadlineError;
use rustyline::{Behavior, DefaultEditor};
use serde_json::json;

use crate::args::{AnswerArgs, DiskArgs, ModelArgs, TemplateArgs};
use crate::conversation::{Conversation, template};
use crate::failure::Failure;
use crate::{answer, model};

const HELP: &str = "\
/reset  forget the conversation
/help   show this
/exit   leave, as Ctrl-D does
//      begins a message that begins with /
Ctrl-C breaks off an answer; a line that ends with \\ goes on in the next.";

/// A conversation: what was said stays in the model's cache, so each turn costs only what is new.
///
/// Reads lines from the terminal, or from standard input where that is a file or a pipe. There, and with --json, a
/// message that is refused ends the program; at the terminal the conversation goes on without it.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    disk: DiskArgs,
}

/// Where lines come from.
enum Lines {
    Terminal(Box<DefaultEditor>),
    Pipe(io::Stdin),
}

/// A line, or why there is none.
enum Line {
    Text(String),
    Interrupted,
    End,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let request = args.answer.request()?;
    let mut engine =
        model::load(&args.model, &Options { disk: args.disk.options(), ..model::options(&args.model) })?;
    let Some(template) = template(&engine, &args.template)? else {
        return Err(Failure::with_next(
            "the model has no chat template, so it cannot tell who is speaking",
            "Use `cera run`, or give a template with --chat-template FILE.",
        ));
    };
    let mut conversation = Conversation::new(template, args.template.system.as_deref());
    let mut sequence = engine.sequence();
    let mut lines = Lines::open()?;
    let terminal = matches!(lines, Lines::Terminal(_));
    if terminal {
        eprintln!("/help shows what there is; Ctrl-D leaves.");
    }
    loop {
        let line = match lines.message()? {
            Line::Text(line) => line,
            Line::Interrupted => {
                eprintln!("Ctrl-D or /exit leaves.");
                continue;
            }
            Line::End => return Ok(()),
        };
        match line.trim() {
            "" => {}
            "/exit" => return Ok(()),
            "/help" => eprintln!("{HELP}"),
            "/reset" => {
                conversation.reset();
                sequence.rewind(0);
                eprintln!("The conversation is forgotten.");
            }
            command
                if command.starts_with('/')
                    && !command.starts_with("//")
                    && !command.contains(char::is_whitespace) =>
            {
                eprintln!("There is no {command}; /help shows what there is.");
            }
            _ => {
                conversation.user(unescaped(&line));
                match conversation.put(engine.tokenizer()?, &mut sequence) {
                    Ok(()) => answer(&mut engine, &mut sequence, &mut conversation, &request, json)?,
                    Err(Failure::Failed { what, .. }) if terminal && !json => {
                        conversation.take_back();
                        eprintln!(
                            "error: {what}\nThe message was not sent. /reset forgets what was said before."
                        );
                    }
                    Err(refusal) => {
                        if let (true, Failure::Failed { what, .. }) = (json, &refusal) {
                            writeln!(io::stdout().lock(), "{}", json!({ "error": what }))?;
                        }
                        return Err(refusal);
                    }
                }
            }
        }
    }
}

/// The answer to what was put. Where it is broken off before it begins, the message is taken back: the model would
/// read an empty answer as its own way to answer.
fn answer(
    engine: &mut Engine,
    sequence: &mut Sequence,
    conversation: &mut Conversation,
    request: &Request,
    json: bool,
) -> Result<(), Failure> {
    let answer = answer::give(engine, sequence, request, !json)?;
    if json {
        writeln!(io::stdout().lock(), "{}", answer.to_json(request))?;
    } else if answer.report.finish != Finish::Eog {
        eprintln!("[{}]", answer.ending());
    }
    if answer.report.finish == Finish::Cancelled && answer.text.is_empty() {
        conversation.take_back();
        eprintln!("The answer had not begun. The message is taken back.");
        return Ok(());
    }
    conversation.answered(engine.tokenizer()?, sequence, &answer.text)
}

/// The message that a line means: `//` at its beginning is a `/` that begins no command.
fn unescaped(line: &str) -> &str {
    let message = line.trim_start().strip_prefix('/').filter(|rest| rest.starts_with('/'));
    message.unwrap_or(line)
}

impl Lines {
    fn open() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Lines::Pipe(io::stdin()));
        }
        // The terminal itself, not standard output, which may lead into a file.
        let config = rustyline::Config::builder().behavior(Behavior::PreferTerm).build();
        let editor = DefaultEditor::with_config(config).map_err(terminal)?;
        Ok(Lines::Terminal(Box::new(editor)))
    }

    /// The next message: one line, or several where all but the last end with a backslash.
    fn message(&mut self) -> Result<Line, Failure> {
        let mut message = String::new();
        loop {
            let prompt = if message.is_empty() { "> " } else { ". " };
            let line = match self.line(prompt)? {
                Line::Text(line) => line,
                Line::End if !message.is_empty() => return Ok(Line::Text(message)),
                other => return Ok(other),
            };
            let Some(start) = line.strip_suffix('\\') else {
                message.push_str(&line);
                return Ok(Line::Text(message));
            };
            message.push_str(start);
            message.push('\n');
        }
    }

    fn line(&mut self, prompt: &str) -> Result<Line, Failure> {
        match self {
            Lines::Terminal(editor) => match editor.readline(prompt) {
                Ok(line) => {
                    // A history that is full forgets its oldest line.
                    editor.add_history_entry(&line).map_err(terminal)?;
                    Ok(Line::Text(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(e) => Err(terminal(e)),
            },
            Lines::Pipe(stdin) => {
                let mut line = String::new();
                let read = stdin.read_line(&mut line);
                match read.map_err(|e| Failure::new(format_args!("standard input cannot be read: {e}")))? {
                    0 => Ok(Line::End),
                    _ => Ok(Line::Text(line.trim_end_matches(['\n', '\r']).to_string())),
                }
            }
        }
    }
}

fn terminal(e: ReadlineError) -> Failure {
    Failure::new(format_args!("the terminal cannot be used: {e}"))
}

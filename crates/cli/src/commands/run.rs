//! `cera run`: one prompt, one answer.

use std::io::{self, Write};
use std::time::Instant;

use cera::{Finish, Options};
use clap::builder::FalseyValueParser;

use crate::args::{AnswerArgs, DiskArgs, InputArgs, ModelArgs, PlainTextArgs, TemplateArgs};
use crate::conversation::{Conversation, template};
use crate::failure::Failure;
use crate::input::Input;
use crate::{answer, input, model};

/// Answers one prompt. Where the model has a chat template, the prompt is a user's message; otherwise, and with
/// --raw, the model goes on from the text.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Go on from the text as it stands, without the chat template.
    #[arg(long, env = "CERA_RAW", value_parser = FalseyValueParser::new(), conflicts_with_all = ["chat_template", "system"])]
    raw: bool,
    #[command(flatten)]
    plain: PlainTextArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    disk: DiskArgs,
}

/// Runs the command. `start` is when the program started.
pub fn run(args: &Args, json: bool, start: Instant) -> Result<(), Failure> {
    let request = args.answer.request()?;
    let input = input::read(&args.input)?;
    let mut engine =
        model::load(&args.model, &Options { disk: args.disk.options(), ..model::options(&args.model) })?;

    let template = match &input {
        Input::Text(_) if !args.raw => template(&engine, &args.template)?,
        _ => None,
    };
    let templated = template.is_some();
    let tokens = match (template, &input) {
        (Some(template), Input::Text(text)) => {
            let mut conversation = Conversation::new(template, args.template.system.as_deref());
            conversation.user(text);
            conversation.tokens(engine.tokenizer()?)?
        }
        _ if args.template.system.is_some() => {
            let what = "--system needs a chat template, and there is none";
            return Err(Failure::with_next(what, "Give one with --chat-template FILE."));
        }
        _ => input::tokens(&input, || engine.tokenizer(), args.plain)?,
    };
    let mut sequence = engine.sequence();
    sequence.append(&tokens)?;

    let before = start.elapsed();
    let answer = answer::give(&mut engine, &mut sequence, &request, !json)?;
    if json {
        let mut object = answer.to_json(&request);
        let first = answer.report.first_token.map(|t| (before + t).as_secs_f64());
        object["start_to_first_token_seconds"] = first.into();
        object["chat_template"] = templated.into();
        writeln!(io::stdout().lock(), "{object}")?;
    } else {
        eprintln!("{}", answer.summary());
    }
    match answer.report.finish {
        Finish::Cancelled => Err(Failure::Interrupted),
        _ => Ok(()),
    }
}

//! The `cera` program: results on standard output, everything else on standard error.
//!
//! Exit codes: 0, 1 for a failure, 2 for a wrong call, 130 where Ctrl-C ended it. Whoever reads the results may
//! close the pipe at any time; the program ends quietly then.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod commands;
mod conversation;
mod failure;
mod grammar;
mod input;
mod interrupt;
mod model;
mod output;
mod progress;
mod sampling;

use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Parser, Subcommand};

/// Runs language models.
///
/// Every flag has a twin in the environment, shown behind it. Results go to standard output, everything else to
/// standard error. Exit codes: 0, 1 for a failure, 2 for a wrong call.
#[derive(Parser)]
#[command(name = "cera", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Results as JSON: one object, or one a line.
    #[arg(long, global = true, env = "CERA_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    Chat(commands::chat::Args),
    Inspect(commands::inspect::Args),
    Plan(commands::plan::Args),
    Tokenize(commands::tokenize::Args),
    Logits(commands::logits::Args),
    Embed(commands::embed::Args),
    Rerank(commands::rerank::Args),
    Bench(commands::bench::Args),
    Doctor(commands::doctor::Args),
    Quantize(commands::quantize::Args),
    Convert(commands::convert::Args),
    Pull(commands::pull::Args),
    List(commands::list::Args),
}

fn main() -> ExitCode {
    let start = std::time::Instant::now();
    let Cli { command, json } = Cli::parse_from(args::long_flags(std::env::args_os()));
    let done = interrupt::listen().and_then(|()| match command {
        Command::Run(args) => commands::run::run(&args, json, start),
        Command::Chat(args) => commands::chat::run(&args, json),
        Command::Inspect(args) => commands::inspect::run(&args, json),
        Command::Plan(args) => commands::plan::run(&args, json),
        Command::Tokenize(args) => commands::tokenize::run(&args, json),
        Command::Logits(args) => commands::logits::run(&args, json),
        Command::Embed(args) => commands::embed::run(&args, json),
        Command::Rerank(args) => commands::rerank::run(&args, json),
        Command::Bench(args) => commands::bench::run(&args, json),
        Command::Doctor(args) => commands::doctor::run(&args, json),
        Command::Quantize(args) => commands::quantize::run(&args, json),
        Command::Convert(args) => commands::convert::run(&args, json),
        Command::Pull(args) => commands::pull::run(&args, json),
        Command::List(args) => commands::list::run(&args, json),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

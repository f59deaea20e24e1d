//! The time from the start of a process to its first token: the program itself is started as its users start it.

use std::path::Path;
use std::process::Command;

use clap::CommandFactory;

use super::measure::Random;
use super::process::{Fault, seconds_to_line};
use crate::args::ModelArgs;

/// Tokens of the prompt.
pub const PROMPT: usize = 32;

/// Seconds from the start of `cera run` to its first token, after a prompt of [`PROMPT`] random tokens.
pub fn seconds(model: &Path, args: &ModelArgs, vocabulary: usize) -> Result<f64, Fault> {
    let own = std::env::current_exe().map_err(|error| Fault::Start { program: "cera".into(), error })?;
    let mut random = Random(0);
    let ids: Vec<String> = (0..PROMPT).map(|_| random.below(vocabulary).to_string()).collect();
    let mut command = Command::new(own);
    // The twins of the flags are meant for this process.
    let cli = crate::Cli::command();
    for arg in cli.get_arguments().chain(cli.get_subcommands().flat_map(|c| c.get_arguments())) {
        if let Some(twin) = arg.get_env() {
            command.env_remove(twin);
        }
    }
    command.arg("run").arg("-m").arg(model).args(["--ids", &ids.join(",")]);
    command.args(["-n", "1", "--temp", "0", "--ignore-eos", "--json"]);
    command.args(args.words());
    // The answer is one line, printed when its only token is there; then the process tidies up.
    seconds_to_line(&mut command, &|line| line.starts_with('{'))
}

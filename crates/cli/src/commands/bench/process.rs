//! Programs that are run to be measured, and how they fail.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use crate::failure::Failure;

/// How a program that is measured fails.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is not there, or cannot be run.
    #[error("`{program}` cannot be started: {error}")]
    Start {
        /// As it was called.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// It ended with a failure.
    #[error("`{program}` failed ({status}): {said}")]
    Ended {
        /// As it was called.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last that it said.
        said: String,
    },
    /// What it printed are not the results that were asked for.
    #[error("`{program}` did not answer as expected: {why}")]
    Answer {
        /// As it was called.
        program: String,
        /// What is wrong.
        why: String,
    },
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let next = match &fault {
            Fault::Start { .. } => "Give the path of the built program.",
            Fault::Ended { .. } => "Run it by hand with the same file to see all that it says.",
            Fault::Answer { .. } => {
                "llama-bench and llama-batched-bench of llama.cpp and of ik_llama.cpp are understood."
            }
        };
        Failure::with_next(fault, next)
    }
}

/// What a program printed.
pub struct Printed {
    /// On standard output.
    pub out: String,
    /// On standard error.
    pub err: String,
}

/// Runs a program to its end.
pub fn printed(command: &mut Command) -> Result<Printed, Fault> {
    run(command, &mut |_| {})
}

/// Seconds from a program's start to the first line of its output that `is_it` picks. The program is run to its end.
pub fn seconds_to_line(command: &mut Command, is_it: &dyn Fn(&str) -> bool) -> Result<f64, Fault> {
    let start = Instant::now();
    let mut seconds = None;
    run(command, &mut |line| {
        if seconds.is_none() && is_it(line) {
            seconds = Some(start.elapsed().as_secs_f64());
        }
    })?;
    let program = name(command);
    seconds.ok_or_else(|| Fault::Answer { program, why: "no line with a result".into() })
}

/// Runs a program to its end and shows each line of its output as it comes.
fn run(command: &mut Command, on_line: &mut dyn FnMut(&str)) -> Result<Printed, Fault> {
    let program = name(command);
    let start = |error| Fault::Start { program: program.clone(), error };
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Read both at once: a program whose pipe is full waits.
    let (out, err) = thread::scope(|scope| {
        let err = scope.spawn(|| {
            let mut bytes = Vec::new();
            let _ = stderr.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut out = String::new();
        if let Some(pipe) = stdout {
            let mut lines = BufReader::new(pipe);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line);
                on_line(&text);
                out.push_str(&text);
                line.clear();
            }
        }
        (out, err.join().unwrap_or_default())
    });
    let status = child.wait().map_err(start)?;
    if !status.success() {
        let said = [&err, &out].into_iter().find_map(|text| last_line(text));
        let said = said.unwrap_or("it said nothing").to_owned();
        return Err(Fault::Ended { program, status, said });
    }
    Ok(Printed { out, err })
}

/// The last line that is not empty.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|l| !l.is_empty())
}

/// The program as it is called.
pub fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let fault = printed(&mut Command::new("/no/such/program")).err().unwrap();
        assert!(
            matches!(fault, Fault::Start { .. }) && fault.to_string().contains("/no/such/program"),
            "{fault}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn the_line_is_waited_for_and_a_failure_says_what_the_program_said() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let is_two = |line: &str| line.trim() == "two";
        let seconds =
            seconds_to_line(&mut shell("echo one; sleep 0.1; echo two; sleep 0.3"), &is_two).unwrap();
        assert!((0.1..0.3).contains(&seconds), "{seconds}");
        assert!(matches!(seconds_to_line(&mut shell("echo one"), &is_two), Err(Fault::Answer { .. })));
        let fault = printed(&mut shell("echo out; echo no memory >&2; exit 3")).err().unwrap().to_string();
        assert!(fault.contains("no memory") && fault.contains('3') && fault.contains("sh"), "{fault}");
        // More than a pipe holds, on both.
        let both = "for i in $(seq 20000); do echo 0123456789; echo 0123456789 >&2; done";
        let printed = printed(&mut shell(both)).unwrap();
        assert_eq!((printed.out.len(), printed.err.len()), (220_000, 220_000));
    }
}

//! How the program fails: one sentence, what to do next, and the exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Why the program ends early.
#[derive(Debug)]
pub enum Failure {
    /// The call makes no sense: exit code 2.
    Call(String),
    /// Something did not work: exit code 1. Says what, and what may help.
    Failed { what: String, next: Option<String> },
    /// The user broke off: exit code 130, as for any program that an interrupt ends.
    Interrupted,
    /// Whoever read the results has gone; there is nobody to tell.
    Closed,
}

impl Failure {
    /// Something did not work.
    pub fn new(what: impl fmt::Display) -> Self {
        Failure::Failed { what: what.to_string(), next: None }
    }

    /// The same, with what to do next.
    pub fn with_next(what: impl fmt::Display, next: impl Into<String>) -> Self {
        Failure::Failed { what: what.to_string(), next: Some(next.into()) }
    }

    /// Says it on standard error; gives the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Call(what) => {
                eprintln!("error: {what}\nTry `cera help` or `--help` behind the command.");
                ExitCode::from(2)
            }
            Failure::Failed { what, next } => {
                eprintln!("error: {what}");
                if let Some(next) = next {
                    eprintln!("{next}");
                }
                ExitCode::FAILURE
            }
            Failure::Interrupted => ExitCode::from(130),
            Failure::Closed => ExitCode::SUCCESS,
        }
    }
}

/// From writing results: files that the user names are read and written where their names can be told.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::new(format_args!("standard output cannot be written: {error}")),
        }
    }
}

impl From<cera::Error> for Failure {
    fn from(error: cera::Error) -> Self {
        let next = match &error {
            cera::Error::Context { .. } => {
                "Shorten the prompt, or ask for a longer context with -c, up to the model's own."
            }
            cera::Error::NoTokenizer => "Give token ids with --ids, or use a file with a vocabulary.",
            cera::Error::File(_) => "Check the file with `cera inspect`, or fetch it again with `cera pull`.",
            cera::Error::Option(_) => "Change -c or --chunk.",
            cera::Error::Backend(cera_backend::Error::Memory { .. }) => {
                "Ask for a shorter context with -c, or use a smaller file."
            }
            cera::Error::Arch(_) | cera::Error::Backend(cera_backend::Error::Unsupported { .. }) => {
                "`cera inspect` shows what the file holds; the README lists what runs."
            }
            cera::Error::Folder(cera_convert::Error::Again { .. }) => {
                "Begin with a file or folder that is not quantized yet."
            }
            cera::Error::Folder(cera_convert::Error::Blind { .. }) => {
                "Take a larger mix, or write a file with `cera quantize --imatrix`."
            }
            _ => return Failure::new(error),
        };
        Failure::with_next(error, next)
    }
}

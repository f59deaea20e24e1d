//! Model files that the program writes.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use cera_gguf::Checkpoint;
use clap::Args;
use clap::builder::FalseyValueParser;

use crate::failure::Failure;
use crate::interrupt::Answering;
use crate::progress;

/// How a file is written.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// The file to write.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Write over a file that is there.
    #[arg(long, env = "CERA_FORCE", value_parser = FalseyValueParser::new())]
    pub force: bool,
    /// Threads [default: one a processor].
    #[arg(short, long, env = "CERA_THREADS")]
    pub threads: Option<NonZeroUsize>,
}

impl OutputArgs {
    /// Refuses to write over a file unasked.
    pub fn check(&self) -> Result<(), Failure> {
        if self.force || !self.output.exists() {
            return Ok(());
        }
        let what = format!("{:?} is there already", self.output);
        Err(Failure::with_next(what, "Name another file, or write over it with --force."))
    }

    /// Writes the file, with a bar of that name; gives its bytes. Ctrl-C leaves nothing behind.
    pub fn save(&self, model: &dyn Checkpoint, what: &str) -> Result<u64, Failure> {
        let answering = Answering::begin();
        let bar = progress::bytes(what);
        let mut told = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
            answering.flow()
        };
        let mut pool = rayon::ThreadPoolBuilder::new();
        if let Some(threads) = self.threads {
            pool = pool.num_threads(threads.get());
        }
        let pool = pool.build().map_err(Failure::new)?;
        let saved = pool.install(|| cera::save(model, Path::new(&self.output), &mut told));
        bar.finish_and_clear();
        saved.map_err(refused)
    }
}

/// What to do where a model cannot be read or written like this.
pub fn refused(error: cera_convert::Error) -> Failure {
    use cera_convert::Error::{Again, Blind, Pre, Stopped};
    match error {
        Stopped => Failure::Interrupted,
        Again { .. } => Failure::with_next(
            error,
            "Begin with the original, or do it all the same with --allow-requantize.",
        ),
        Blind { .. } => Failure::with_next(error, "Give some with --imatrix, or take a larger mix."),
        Pre { .. } => Failure::with_next(
            error,
            "If you know which it is, name it with --pre; ids are compared all the same.",
        ),
        error => cera::Error::from(error).into(),
    }
}

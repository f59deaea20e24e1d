//! `cargo xtask fetch`: models into the cache, through the code that the product uses.

use crate::{models, vocabs};
use cera_hub::{Hub, Progress, Settings};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Fetches each model, or the vocabularies, and prints the path.
pub fn run(names: &[&str]) -> Result<(), String> {
    for name in names {
        let path = if *name == "vocabs" { vocabs::fetch()? } else { fetch(name)? };
        println!("{}", path.display());
    }
    Ok(())
}

/// The file of a model by short name, downloaded first where needed.
pub fn fetch(name: &str) -> Result<PathBuf, String> {
    let settings = Settings::from_env().map_err(|e| e.to_string())?;
    let for_tests = models::CATALOGUE.iter().any(|e| e.name == name);
    let catalogue = if for_tests { models::CATALOGUE } else { cera_hub::catalogue::CATALOGUE };
    Hub::new(settings, catalogue).fetch(name, &mut Lines::default()).map_err(|e| e.to_string())
}

/// Progress as lines, seldom: the output goes to a log as often as to a screen.
#[derive(Default)]
struct Lines {
    total: Option<u64>,
    last: u64,
    told: Option<Instant>,
}

const SELDOM: Duration = Duration::from_secs(10);

impl Progress for Lines {
    fn start(&mut self, what: &str, total: Option<u64>) {
        eprintln!("fetching {what}");
        *self = Self { total, last: 0, told: Some(Instant::now()) };
    }

    fn at(&mut self, bytes: u64) {
        self.last = bytes;
        if self.told.is_none_or(|t| t.elapsed() >= SELDOM) {
            let of = self.total.map_or(String::new(), |t| format!(" of {}", t >> 20));
            eprintln!("  {}{of} MiB", bytes >> 20);
            self.told = Some(Instant::now());
        }
    }

    fn finish(&mut self) {
        eprintln!("  {} MiB here", self.last >> 20);
    }

    fn note(&mut self, text: &str) {
        eprintln!("  {text}");
    }
}

//! From the flags to a file, a backend and an engine.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cera::{Engine, Options, Recipe, Source};
use cera_backend::{Backend, KvType, KvTypes, Reference};
use cera_cpu::Cpu;
use cera_hub::Hub;
use indicatif::ProgressBar;

use crate::args::{CacheType, Device, ModelArgs, Tier, value_name};
use crate::failure::Failure;
use crate::progress;

/// The file that a model's name stands for; fetched where it is not on this machine.
pub fn file(model: &str) -> Result<PathBuf, Failure> {
    let hub = Hub::from_env().map_err(Failure::new)?;
    hub.fetch(model, &mut Download { bar: None }).map_err(Failure::new)
}

/// An open model, with its matrices as the flags want them.
pub fn open(path: &Path, args: &ModelArgs) -> Result<Source, Failure> {
    let source = Source::open(path).map_err(cera::Error::from)?;
    match args.quant {
        None => Ok(source),
        Some(mix) => Ok(source.quantized(Recipe::new(mix)).map_err(cera::Error::from)?.0),
    }
}

/// A backend, and how it will run.
pub struct Chosen {
    pub backend: Box<dyn Backend>,
    pub threads: usize,
    /// The instructions it uses, where there is a choice.
    pub tier: Option<&'static str>,
}

/// The backend that the flags ask for.
pub fn backend(args: &ModelArgs) -> Result<Chosen, Failure> {
    match args.device {
        Device::Reference => {
            if args.threads.is_some() || args.cpu_tier.is_some() {
                let what = "--threads and --cpu-tier belong to --device cpu: the reference has neither";
                return Err(Failure::Call(what.into()));
            }
            Ok(Chosen { backend: Box::new(Reference), threads: 1, tier: None })
        }
        Device::Cpu => {
            let cpu = cpu(args.threads, args.cpu_tier)?;
            let (threads, tier) = (cpu.threads(), Some(cpu.tier().name()));
            Ok(Chosen { backend: Box::new(cpu), threads, tier })
        }
    }
}

/// The CPU as the flags want it.
pub fn cpu(threads: Option<NonZeroUsize>, tier: Option<Tier>) -> Result<Cpu, Failure> {
    let fault = |e: &dyn Display| Failure::with_next(e, "Change --threads or --cpu-tier, or leave them out.");
    let named = |tier: Tier| cera_cpu::Tier::from_str(&value_name(&tier).unwrap_or_default());
    let tier = tier.map(named).transpose().map_err(|e| fault(&e))?;
    let threads = threads.map(usize::from);
    Cpu::new(cera_cpu::Options { threads, tier, ..Default::default() }).map_err(|e| fault(&e))
}

/// What the flags say of the load.
pub fn options(args: &ModelArgs) -> Options<'_> {
    Options {
        context: args.context.map(usize::from),
        cache: KvTypes {
            keys: cache_type(args.cache_type_k.unwrap_or(args.cache_type)),
            values: cache_type(args.cache_type_v.unwrap_or(args.cache_type)),
        },
        max_rows: args.chunk.map_or(cera::DEFAULT_MAX_ROWS, usize::from),
        pre: args.pre.as_deref(),
        quantize: args.quant,
        ..Options::default()
    }
}

fn cache_type(ty: CacheType) -> KvType {
    match ty {
        CacheType::F32 => KvType::F32,
        CacheType::F16 => KvType::F16,
        CacheType::Q8_0 => KvType::Q8_0,
        CacheType::Q4_0 => KvType::Q4_0,
    }
}

/// Finds or fetches the model and loads it, with a bar.
pub fn load(args: &ModelArgs, options: &Options<'_>) -> Result<Engine, Failure> {
    load_into(backend(args)?.backend, args, options)
}

/// [`load`] into a backend that is there.
pub fn load_into(
    backend: Box<dyn Backend>,
    args: &ModelArgs,
    options: &Options<'_>,
) -> Result<Engine, Failure> {
    let path = file(&args.model)?;
    let bar = progress::bytes("loading");
    let told = |taken, total| {
        bar.set_length(total);
        bar.set_position(taken);
    };
    let engine = Engine::load(&path, backend, &Options { progress: Some(&told), ..options.clone() });
    bar.finish_and_clear();
    Ok(engine?)
}

/// Draws the hub's downloads.
struct Download {
    bar: Option<ProgressBar>,
}

impl cera_hub::Progress for Download {
    fn start(&mut self, what: &str, total: Option<u64>) {
        let bar = progress::bytes("fetching");
        bar.println(format!("fetching {what}"));
        if let Some(total) = total {
            bar.set_length(total);
        }
        self.bar = Some(bar);
    }

    fn at(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }
}

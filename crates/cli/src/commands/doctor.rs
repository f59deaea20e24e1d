//! `cera doctor`: what this machine is, and what bounds a model's speed on it.

use std::io::{self, Write};
use std::num::NonZeroUsize;

use cera_cpu::{HugePages, Limits, Machine, Measured, Rates};
use serde_json::{Value, json};

use crate::args::Tier;
use crate::failure::Failure;
use crate::{model, progress};

/// Shows the processor, the memory and the limits that they set: how fast memory is read and how fast numbers are
/// multiplied, on one thread and on all. Takes a few seconds.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// CPU threads [default: one a physical core that this process may use].
    #[arg(short, long, env = "CERA_THREADS")]
    threads: Option<NonZeroUsize>,
    /// CPU instructions to use [default: the best that the machine has].
    #[arg(long, env = "CERA_CPU_TIER", value_enum)]
    cpu_tier: Option<Tier>,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let cpu = model::cpu(args.threads, args.cpu_tier)?;
    let machine = Machine::read();
    let mut out = io::stdout().lock();
    if !json {
        of_machine(&mut out, &machine)?;
        out.flush()?;
    }
    let bar = progress::waiting("measuring the limits");
    let limits = cpu.limits().map_err(Failure::new)?;
    bar.finish_and_clear();
    if json {
        writeln!(out, "{}", object(&machine, &limits))?;
    } else {
        of_limits(&mut out, &limits)?;
    }
    Ok(())
}

fn of_machine(out: &mut impl Write, machine: &Machine) -> io::Result<()> {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "not known".into());
    let tiers: Vec<&str> = machine.tiers.iter().map(|t| t.name()).collect();
    let cores = match machine.physical_cores {
        Some(n) => format!("{n} physical, {} logical", machine.logical_cores),
        None => format!("{} logical", machine.logical_cores),
    };
    let quota = machine.quota.map_or("none".into(), |q| format!("{q:.2} processors"));
    let cache = machine.cache.map(|c| {
        let mib = |bytes: usize| bytes >> 20;
        format!("{} MiB for one core, {} MiB in all", mib(c.of_one), mib(c.of_all))
    });
    let huge = machine.huge_pages.map(|h| match h {
        HugePages::Always => "yes, everywhere".into(),
        HugePages::OnRequest => "yes, where asked for".into(),
        HugePages::Never => "no: weights lie in small pages, which are read more slowly".into(),
    });
    let memory = machine
        .memory
        .map(|m| format!("{:.1} GB, of which {:.1} GB are free", gigabytes(m.total), gigabytes(m.available)));
    let lines = [
        ("processor", or_unknown(machine.processor.clone())),
        ("tiers", tiers.join(", ")),
        ("cores", format!("{cores}, that this process may use")),
        ("quota", quota),
        ("last cache", or_unknown(cache)),
        ("memory", or_unknown(memory)),
        ("pages", or_unknown(machine.page_bytes.map(|n| format!("{n} bytes")))),
        ("huge pages", or_unknown(huge)),
    ];
    for (name, value) in lines {
        writeln!(out, "{name:<12} {value}")?;
    }
    Ok(())
}

fn of_limits(out: &mut impl Write, limits: &Limits) -> io::Result<()> {
    let heads = ["1 thread", "median", &format!("{} threads", limits.threads), "median"];
    let [a, b, c, d] = heads;
    writeln!(out, "\n{:<24} {a:>10} {b:>10} {c:>12} {d:>10}", format!("limits, {}", limits.tier))?;
    let mut rates = |name: &str, digits: usize, r: &Rates| {
        let [a, b, c, d] = [r.one.best, r.one.median, r.all.best, r.all.median];
        writeln!(out, "{name:<24} {a:>10.digits$} {b:>10.digits$} {c:>12.digits$} {d:>10.digits$}")
    };
    rates("read memory, GB/s", 1, &limits.read_gb_per_second)?;
    rates("int8 peak, TOPS", 3, &limits.int8_tops)?;
    rates("f32 peak, TFLOPS", 3, &limits.f32_tflops)?;
    if let Some(bf16) = &limits.bf16_tflops {
        rates("bf16 peak, TFLOPS", 3, bf16)?;
    }
    let costs = [
        ("barrier, ns", limits.barrier_ns),
        ("wake, ns", limits.wake_ns),
        ("wake from sleep, ns", limits.wake_asleep_ns),
    ];
    for (name, cost) in costs {
        writeln!(out, "{name:<24} {:>10} {:>10} {:>12.0} {:>10.0}", "", "", cost.best, cost.median)?;
    }
    Ok(())
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn object(machine: &Machine, limits: &Limits) -> Value {
    let measured = |m: &Measured| json!({ "best": m.best, "median": m.median });
    let rates = |r: &Rates| json!({ "one": measured(&r.one), "all": measured(&r.all) });
    json!({
        "processor": machine.processor,
        "tiers": machine.tiers.iter().map(|t| t.name()).collect::<Vec<_>>(),
        "physical_cores": machine.physical_cores,
        "logical_cores": machine.logical_cores,
        "quota": machine.quota,
        "last_cache_bytes": machine.cache.map(|c| json!({ "of_one": c.of_one, "of_all": c.of_all })),
        "memory_bytes": machine.memory.map(|m| json!({ "total": m.total, "available": m.available })),
        "page_bytes": machine.page_bytes,
        "huge_pages": machine.huge_pages.map(HugePages::name),
        "cpu_tier": limits.tier.name(),
        "threads": limits.threads,
        "limits": {
            "buffer_bytes": limits.buffer_bytes,
            "read_gb_per_second": rates(&limits.read_gb_per_second),
            "int8_tops": rates(&limits.int8_tops),
            "f32_tflops": rates(&limits.f32_tflops),
            "bf16_tflops": limits.bf16_tflops.as_ref().map(rates),
            "barrier_ns": measured(&limits.barrier_ns),
            "wake_ns": measured(&limits.wake_ns),
            "wake_asleep_ns": measured(&limits.wake_asleep_ns),
        },
    })
}

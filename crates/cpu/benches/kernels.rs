//! Each kernel on one thread, beside the limits of one thread.
//!
//! `cargo bench -p cera-cpu -- --quick linear/Q4_K` runs those whose name holds the expression. Criterion's report has the
//! time and the bytes of weights or of the cache; the line below it says which parts of the limits that is. Each run takes
//! the next part of weights and cache, so that they come from memory.

use std::cell::{LazyCell, OnceCell};
use std::time::{Duration, Instant};

use cera_backend::KvType;
use cera_cpu::bench_support::{Past, Weights, Work, quantize, rms_norm, types};
use cera_cpu::{Cpu, Limits, Machine, Options, Tier};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};

/// Weights and long caches are so many times the processor's last cache, which then holds little of them.
const CACHES: usize = 10;
/// Bytes of that, where the system does not say.
const CACHE: usize = 32 << 20;

/// A tier, and the limits of one thread of it, which are measured when they are first asked for.
struct Limited {
    tier: Tier,
    limits: OnceCell<Limits>,
}

impl Limited {
    fn limits(&self) -> &Limits {
        self.limits.get_or_init(|| {
            let options = Options { threads: Some(1), tier: Some(self.tier), ..Options::default() };
            let limits = Cpu::new(options).and_then(|cpu| cpu.limits());
            limits.expect("a tier that runs here, and memory")
        })
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let tiers: Vec<Limited> =
        Tier::available().into_iter().map(|tier| Limited { tier, limits: OnceCell::new() }).collect();
    let bytes = CACHES * Machine::read().cache.map_or(CACHE, |c| c.of_one);
    linear(&mut criterion, &tiers, bytes);
    attend(&mut criterion, &tiers, bytes);
    rows(&mut criterion, &tiers);
    criterion.final_summary();
}

fn linear(criterion: &mut Criterion, tiers: &[Limited], bytes: usize) {
    for ty in types() {
        let mut group = criterion.benchmark_group(format!("linear/{}", ty.name()));
        let weights = LazyCell::new(|| Weights::new(ty, bytes).expect("memory"));
        for limited in tiers {
            for rows in [1, 16, 128] {
                let work = Weights::work(ty, rows).expect("whole blocks");
                let make = || weights.linear(limited.tier, rows).expect("a kernel");
                beside_limits(&mut group, &format!("{}/{rows}", limited.tier), work, limited, make);
            }
        }
    }
}

fn attend(criterion: &mut Criterion, tiers: &[Limited], bytes: usize) {
    for (name, ty) in
        [("F32", KvType::F32), ("F16", KvType::F16), ("Q8_0", KvType::Q8_0), ("Q4_0", KvType::Q4_0)]
    {
        let mut group = criterion.benchmark_group(format!("attend/{name}"));
        for (case, depth, rows, bytes) in
            [("decode_at_4096", 4096, 1, bytes), ("prefill_of_128", 128, 128, 0)]
        {
            let past = LazyCell::new(|| Past::new(ty, depth, bytes).expect("memory"));
            for limited in tiers {
                let work = Past::work(ty, depth, rows);
                let make = || past.attend(limited.tier, rows).expect("kernels");
                beside_limits(&mut group, &format!("{}/{case}", limited.tier), work, limited, make);
            }
        }
    }
}

fn rows(criterion: &mut Criterion, tiers: &[Limited]) {
    for Limited { tier, .. } in tiers {
        criterion.bench_function(&format!("quantize/{tier}"), |b| b.iter(quantize(*tier).expect("kernels")));
        criterion.bench_function(&format!("rms_norm/{tier}"), |b| b.iter(rms_norm(*tier).expect("kernels")));
    }
}

/// Has criterion measure a kernel, then says which parts of the limits the best run reached. Operands are made only where
/// the name is asked for.
fn beside_limits<F: FnMut()>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    work: Work,
    limited: &Limited,
    make: impl FnOnce() -> F,
) {
    group.throughput(Throughput::BytesDecimal(work.bytes));
    let mut best = f64::INFINITY;
    let mut kernel = LazyCell::new(make);
    group.bench_function(name, |bencher| {
        // Made before the clock starts.
        let kernel = &mut *kernel;
        bencher.iter_custom(|times| {
            let start = Instant::now();
            for _ in 0..times {
                kernel();
            }
            let taken = start.elapsed();
            best = best.min(taken.as_secs_f64() / times as f64);
            taken
        });
    });
    if best.is_infinite() {
        return;
    }
    let limits = limited.limits();
    let (unit, peak) = match work.is_int8 {
        true => ("TOPS", limits.int8_tops.one.best),
        false => ("TFLOPS", limits.f32_tflops.one.best),
    };
    let part = |amount: f64, unit: &str, limit: f64| {
        let rate = amount / best;
        format!("{rate:.3} {unit} ({:.0} %)", 100.0 * rate / limit)
    };
    println!(
        "{:24}best:   {}, {}",
        "",
        part(work.bytes as f64 * 1e-9, "GB/s", limits.read_gb_per_second.one.best),
        part(work.operations as f64 * 1e-12, unit, peak)
    );
}

//! The limits of this machine, measured: what no kernel can pass, so that a speed can be told as a part of it.
//!
//! All is measured on the pool's own threads, placed as a step's threads are. Anything else that runs on the machine
//! takes its share, so each limit is measured several times; the best is nearest to the machine's own limit, and
//! the median says how steady it is.

mod loads;

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cera_backend::Error;
use memmap2::MmapMut;

use crate::machine::{Cache, Machine};
use crate::pack::memory;
use crate::pool::{Pool, Team};
use crate::stage::NAME;
use crate::{Cpu, Tier};
use loads::{Load, Loads, PIECE};

/// The usual number of samples of a limit, and the least where they take long.
const SAMPLES: usize = 21;
const LEAST_SAMPLES: usize = 5;
/// Seconds after which no more than the least are taken.
const ENOUGH: f64 = 0.5;
/// A sample of a peak or a cost takes at least so many seconds: the clock and the start of the threads do not show.
const SAMPLE: f64 = 0.004;
/// The buffer that is read is this many times the cache, so that the cache answers for little of it.
const CACHES: usize = 8;
/// Its least size, and its size where the cache is not known.
const LEAST_BUFFER: usize = 256 << 20;
/// How long the workers are left alone, so that they sleep.
const NAP: Duration = Duration::from_micros(1500);

/// A quantity, measured several times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The greatest of rates, the least of costs.
    pub best: f64,
    /// The middle of all.
    pub median: f64,
}

/// A rate of one thread, and of all of the pool together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// The calling thread alone.
    pub one: Measured,
    /// Every thread of the pool.
    pub all: Measured,
}

/// What bounds a step on this machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// The tier whose instructions were used.
    pub tier: Tier,
    /// The threads of the pool.
    pub threads: usize,
    /// Bytes of the buffer that was read.
    pub buffer_bytes: usize,
    /// Bytes read from memory, in GB (10^9 bytes) a second.
    pub read_gb_per_second: Rates,
    /// Operations of the tier's multiply-add of bytes, in 10^12 a second. A multiply-add is two operations.
    pub int8_tops: Rates,
    /// The same of f32's fma.
    pub f32_tflops: Rates,
    /// The same of pairs of bf16, where the processor and the tier have them.
    pub bf16_tflops: Option<Rates>,
    /// Nanoseconds of one barrier of the pool.
    pub barrier_ns: Measured,
    /// Nanoseconds of an empty step whose workers still wait for it: waking them and the barrier at its end.
    pub wake_ns: Measured,
    /// The same where they have gone to sleep.
    pub wake_asleep_ns: Measured,
}

impl Cpu {
    /// Measures the limits of this machine with the backend's own tier, threads and pinning. Takes a second or two.
    ///
    /// # Errors
    /// Where no thread can be started, or there is no memory for the buffer.
    pub fn limits(&self) -> Result<Limits, Error> {
        let unsupported = |why| Error::Unsupported { backend: NAME, why };
        let missing = || unsupported(format!("this processor has no {} instructions", self.tier));
        let loads = Loads::new(self.tier).ok_or_else(missing)?;
        let start = |threads| {
            Pool::new(threads, self.pin).map_err(|e| unsupported(format!("no thread could be started: {e}")))
        };
        let (mut one, mut all) = (start(1)?, start(self.threads)?);
        let machine = Machine::read();
        let available = machine.memory.map(|m| m.available);
        let buffer = Buffer::new(buffer_bytes(machine.cache, available), &mut all)?;
        let of_one = buffer_bytes(machine.cache.map(|c| Cache { of_all: c.of_one, ..c }), available);
        let mut rates = |load: Load| {
            let of_one = peak(&mut one, load, None)?;
            // Cores compute without each other's help. Where all do not, something else has some of them.
            let expected = 0.9 * of_one.best * self.threads as f64;
            Ok(Rates { one: of_one, all: peak(&mut all, load, Some(expected))? })
        };
        let int8_tops = rates(loads.int8)?;
        let f32_tflops = rates(loads.f32)?;
        let bf16_tflops = loads.bf16.map(rates).transpose()?;
        Ok(Limits {
            tier: self.tier,
            threads: self.threads,
            buffer_bytes: buffer.0.len(),
            read_gb_per_second: Rates {
                one: bandwidth(&mut one, loads.read, &buffer, of_one)?,
                all: bandwidth(&mut all, loads.read, &buffer, buffer.0.len())?,
            },
            int8_tops,
            f32_tflops,
            bf16_tflops,
            barrier_ns: barrier(&mut all)?,
            wake_ns: wake(&mut all)?,
            wake_asleep_ns: wake_asleep(&mut all)?,
        })
    }
}

/// Runs so many units of something.
type Run<'a> = &'a mut dyn FnMut(u64) -> Result<(), Error>;

/// Runs a job on the pool's threads.
fn run(pool: &mut Pool, job: &(dyn Fn(&Team<'_>) + Sync)) -> Result<(), Error> {
    pool.run(job).map_err(|why| Error::Failed { backend: NAME, why })
}

/// Bytes to read for a limit that the cache has no part in, within a quarter of the memory that is free.
fn buffer_bytes(cache: Option<Cache>, available: Option<u64>) -> usize {
    let wanted = cache.map_or(0, |c| c.of_all.saturating_mul(CACHES)).max(LEAST_BUFFER);
    let room = available.map_or(usize::MAX, |a| usize::try_from(a / 4).unwrap_or(usize::MAX));
    wanted.min(room).max(PIECE)
}

/// Memory to read.
struct Buffer(MmapMut);

impl Buffer {
    /// Whole pieces. Each thread writes its own part, so that pages are there and lie near the thread that will read
    /// them. A page that nobody wrote would be the system's one page of zeros, and come out of the cache.
    fn new(bytes: usize, pool: &mut Pool) -> Result<Buffer, Error> {
        let bytes = bytes / PIECE * PIECE;
        let what = "the buffer that is read";
        let mut buffer = Buffer(memory(bytes).map_err(|_| Error::Memory { what, bytes })?);
        let mut rest = &mut buffer.0[..];
        let mut parts = Vec::new();
        for thread in 0..pool.threads() {
            let share = share(bytes, thread, pool.threads());
            let (part, behind) = rest.split_at_mut(share.len());
            parts.push(Mutex::new(part));
            rest = behind;
        }
        run(pool, &|team| {
            // No other thread takes this lock.
            if let Ok(mut part) = parts[team.thread].lock() {
                part.fill(1);
            }
        })?;
        drop(parts);
        Ok(buffer)
    }
}

/// A thread's share of `bytes`, in whole pieces.
fn share(bytes: usize, thread: usize, threads: usize) -> Range<usize> {
    let pieces = bytes / PIECE;
    pieces * thread / threads * PIECE..pieces * (thread + 1) / threads * PIECE
}

/// Gigabytes a second, of the faster way to read.
fn bandwidth(
    pool: &mut Pool,
    ways: [fn(&[u8]); 2],
    buffer: &Buffer,
    bytes: usize,
) -> Result<Measured, Error> {
    let bytes = bytes.min(buffer.0.len()) / PIECE * PIECE;
    let mut of = |read: fn(&[u8])| {
        let mut pass = |_| run(pool, &|team| read(&buffer.0[share(bytes, team.thread, team.threads)]));
        pass(1)?;
        Ok(rate(samples(1, f64::INFINITY, &mut pass)?, bytes as f64 * 1e-9))
    };
    let [plain, ahead] = [of(ways[0])?, of(ways[1])?];
    Ok(if plain.best > ahead.best { plain } else { ahead })
}

/// 10^12 operations a second, over all threads of the pool. Samples go on for a while where they stay below what is
/// expected.
fn peak(pool: &mut Pool, load: Load, expected: Option<f64>) -> Result<Measured, Error> {
    // On this thread alone: where others have the cores, a step of the pool takes long with nothing in it.
    let rounds = units(&mut |rounds| {
        (load.run)(rounds);
        Ok(())
    })?;
    let operations = load.operations as f64 * pool.threads() as f64 * 1e-12;
    let seconds = expected.map_or(f64::INFINITY, |rate| operations / rate);
    let seconds = samples(rounds, seconds, &mut |rounds| run(pool, &|_| (load.run)(rounds)))?;
    Ok(rate(seconds, operations))
}

fn barrier(pool: &mut Pool) -> Result<Measured, Error> {
    let mut barriers = |n| {
        run(pool, &|team| {
            for _ in 0..n {
                team.barrier();
            }
        })
    };
    Ok(cost(samples(units(&mut barriers)?, f64::INFINITY, &mut barriers)?))
}

fn wake(pool: &mut Pool) -> Result<Measured, Error> {
    let mut steps = |n| (0..n).try_for_each(|_| run(pool, &|_| {}));
    Ok(cost(samples(units(&mut steps)?, f64::INFINITY, &mut steps)?))
}

fn wake_asleep(pool: &mut Pool) -> Result<Measured, Error> {
    let mut step = || {
        std::thread::sleep(NAP);
        seconds(1, &mut |_| run(pool, &|_| {}))
    };
    Ok(cost((0..SAMPLES).map(|_| step()).collect::<Result<_, _>>()?))
}

/// How many units make a sample that is long enough.
fn units(run: Run<'_>) -> Result<u64, Error> {
    let mut units = 1;
    // One sample may be long because something else had the core.
    while units < 1 << 40 {
        let samples = [seconds(units, run)?, seconds(units, run)?, seconds(units, run)?];
        if samples.iter().all(|s| *s >= SAMPLE) {
            break;
        }
        units *= 2;
    }
    Ok(units)
}

/// Seconds of one unit, several times; more often where none of them is within `expected`.
fn samples(units: u64, expected: f64, run: Run<'_>) -> Result<Vec<f64>, Error> {
    let start = Instant::now();
    let (mut samples, mut best) = (Vec::new(), f64::INFINITY);
    loop {
        let missing = samples.len() < SAMPLES || best > expected;
        let late = start.elapsed().as_secs_f64() > ENOUGH;
        if samples.len() >= LEAST_SAMPLES && (late || !missing) {
            return Ok(samples);
        }
        let sample = seconds(units, run)? / units as f64;
        best = best.min(sample);
        samples.push(sample);
    }
}

fn seconds(units: u64, run: Run<'_>) -> Result<f64, Error> {
    let start = Instant::now();
    run(units)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Rates out of the seconds that `amount` took.
fn rate(seconds: Vec<f64>, amount: f64) -> Measured {
    let Measured { best, median } = summary(seconds);
    // A clock that stands still would make a rate that is not finite.
    let rate = |s: f64| amount / s.max(1e-12);
    Measured { best: rate(best), median: rate(median) }
}

/// Nanoseconds out of seconds.
fn cost(seconds: Vec<f64>) -> Measured {
    let Measured { best, median } = summary(seconds);
    Measured { best: best * 1e9, median: median * 1e9 }
}

/// The least and the median.
fn summary(mut seconds: Vec<f64>) -> Measured {
    seconds.sort_by(f64::total_cmp);
    let at = |i: usize| seconds.get(i).copied().unwrap_or(0.0);
    Measured { best: at(0), median: at(seconds.len() / 2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// The floor is far below any machine that runs this, busy as it may be. The ceiling is above any, and far below
    /// what would show where the compiler had found out that nobody uses the results.
    fn plausible(what: &str, m: Measured, [floor, ceiling]: [f64; 2]) {
        assert!(m.median > 0.0 && m.best >= m.median, "{what}: {m:?}");
        assert!(floor < m.best && m.best < ceiling, "{what}: {m:?}");
    }

    fn cost_is_plausible(what: &str, m: Measured) {
        assert!(0.0 < m.best && m.best <= m.median && m.median.is_finite(), "{what}: {m:?}");
    }

    #[test]
    fn limits_are_those_of_a_machine() {
        for tier in Tier::available() {
            let cpu = Cpu::new(Options { threads: Some(2), tier: Some(tier), pin: false }).unwrap();
            let limits = cpu.limits().unwrap();
            assert_eq!((limits.tier, limits.threads), (tier, 2));
            assert!(limits.buffer_bytes >= PIECE);
            let rates = [
                ("read", limits.read_gb_per_second, [1e-2, 1e4]),
                ("int8", limits.int8_tops, [1e-6, 20.0]),
                ("f32", limits.f32_tflops, [1e-6, 4.0]),
            ];
            let bf16 = limits.bf16_tflops.map(|r| ("bf16", r, [1e-6, 8.0]));
            for (what, rates, bounds) in rates.into_iter().chain(bf16) {
                plausible(what, rates.one, bounds);
                plausible(what, rates.all, bounds);
            }
            cost_is_plausible("barrier", limits.barrier_ns);
            cost_is_plausible("wake", limits.wake_ns);
            cost_is_plausible("wake asleep", limits.wake_asleep_ns);
        }
    }

    #[test]
    fn the_buffer_is_larger_than_the_cache_and_smaller_than_the_memory() {
        let cache = |all| Some(Cache { of_one: all, of_all: all });
        assert_eq!(buffer_bytes(None, None), LEAST_BUFFER);
        assert_eq!(buffer_bytes(cache(1 << 20), None), LEAST_BUFFER);
        assert_eq!(buffer_bytes(cache(1 << 30), None), CACHES << 30);
        assert_eq!(buffer_bytes(cache(1 << 30), Some(1 << 30)), 1 << 28);
        assert_eq!(buffer_bytes(None, Some(0)), PIECE);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(summary(vec![3.0, 1.0, 2.0]), Measured { best: 1.0, median: 2.0 });
        assert_eq!(rate(vec![0.5, 0.25, 1.0], 1.0), Measured { best: 4.0, median: 2.0 });
    }
}

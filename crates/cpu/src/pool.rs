//! The threads that run a step: one wake a step, a spin barrier between ops that depend.
//!
//! Workers spin a short while for the next step, then sleep. Within a step they never sleep; where the machine
//! has fewer free cores than threads, spinning gives way to yielding, so that it stays correct and merely slow.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use crate::cores;

/// Spins before a waiting thread starts to yield its core.
const SPINS_IN_STEP: usize = 2_000;
/// Spins before a worker without a step goes to sleep.
const SPINS_BETWEEN: usize = 4_000;

type Job = *const (dyn Fn(&Team<'_>) + Sync);

/// A worker's view of a running step.
pub struct Team<'a> {
    /// This thread, from 0.
    pub thread: usize,
    /// All threads.
    pub threads: usize,
    shared: &'a Shared,
}

impl Team<'_> {
    /// Returns once every thread of the team is here; what they wrote before is seen after.
    pub fn barrier(&self) {
        self.shared.barrier(self.threads);
    }

    /// This thread's share of `n` things, in one piece.
    pub fn share(&self, n: usize) -> std::ops::Range<usize> {
        n * self.thread / self.threads..n * (self.thread + 1) / self.threads
    }
}

struct Shared {
    /// Counts steps; a worker that sees a new number has a job.
    step: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    arrived: AtomicUsize,
    round: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is written only while no worker reads it: before `step` changes (release), and workers read it
// after they see the change (acquire) and before the step's last barrier.
unsafe impl Sync for Shared {}
// SAFETY: a `Job` points to a `Sync` closure that outlives the step in which workers call it.
unsafe impl Send for Shared {}

impl Shared {
    fn barrier(&self, threads: usize) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            spins += 1;
            if spins < SPINS_IN_STEP {
                std::hint::spin_loop();
            } else {
                // A thread that panicked never arrives.
                assert!(!self.panicked.load(Ordering::Acquire), "another thread of the step panicked");
                thread::yield_now();
            }
        }
    }

    fn work(&self, thread: usize, threads: usize) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            while self.step.load(Ordering::Acquire) == seen {
                spins += 1;
                if spins < SPINS_BETWEEN {
                    std::hint::spin_loop();
                    continue;
                }
                // SeqCst here and in `run`: either this thread sees the new step, or `run` sees it asleep.
                self.asleep[thread].store(true, Ordering::SeqCst);
                if self.step.load(Ordering::SeqCst) == seen {
                    thread::park_timeout(Duration::from_secs(60));
                }
                self.asleep[thread].store(false, Ordering::SeqCst);
            }
            seen = self.step.load(Ordering::Acquire);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let team = Team { thread, threads, shared: self };
            let ran = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: `run` set the job before the step that this thread saw, and keeps the closure alive
                // until every thread passed the last barrier or panicked.
                if let Some(job) = unsafe { *self.job.get() } {
                    // SAFETY: as above.
                    unsafe { (*job)(&team) }
                }
                team.barrier();
            }));
            if ran.is_err() {
                self.panicked.store(true, Ordering::Release);
                return;
            }
        }
    }
}

/// The workers. The thread that calls [`Pool::run`] is the first of the team.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; with `pin`, each worker stays on a core of its own.
    pub fn new(threads: usize, pin: bool) -> std::io::Result<Pool> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            step: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            asleep: (0..threads).map(|_| AtomicBool::new(false)).collect(),
        });
        let cores = if pin { cores::physical() } else { Vec::new() };
        let mut pool = Pool { shared, workers: Vec::new(), handles: Vec::new() };
        for thread in 1..threads {
            let shared = Arc::clone(&pool.shared);
            // The caller's thread is left where the system puts it; workers take the other cores.
            let core = (cores.len() >= threads).then(|| cores[thread]);
            let worker = thread::Builder::new().name(format!("cera-{thread}")).spawn(move || {
                if let Some(core) = core {
                    cores::pin(core);
                }
                shared.work(thread, threads);
            })?;
            pool.handles.push(worker.thread().clone());
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Threads of a team.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on every thread and returns when all are done.
    ///
    /// # Errors
    /// What a thread said when it panicked, in this step or in an earlier one: after that the pool is lost.
    pub fn run(&mut self, job: &(dyn Fn(&Team<'_>) + Sync)) -> Result<(), String> {
        if self.shared.panicked.load(Ordering::Acquire) {
            return Err("a thread panicked in an earlier step".into());
        }
        let threads = self.threads();
        // SAFETY: the pointer's lifetime is erased; it is used only until the last barrier below, which every
        // worker passes or panics before, and is cleared after it.
        let erased: Job = unsafe { std::mem::transmute::<&(dyn Fn(&Team<'_>) + Sync), Job>(job) };
        // SAFETY: no worker runs a step now: the last one ended with a barrier, and no step has started since.
        unsafe { *self.shared.job.get() = Some(erased) };
        self.shared.step.fetch_add(1, Ordering::SeqCst);
        for (asleep, worker) in self.shared.asleep[1..].iter().zip(&self.handles) {
            if asleep.load(Ordering::SeqCst) {
                worker.unpark();
            }
        }
        let team = Team { thread: 0, threads, shared: &self.shared };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            job(&team);
            team.barrier();
        }));
        if ran.is_ok() {
            // SAFETY: every worker passed the last barrier and waits for the next step.
            unsafe { *self.shared.job.get() = None };
        }
        if let Err(panic) = ran {
            self.shared.panicked.store(true, Ordering::Release);
            // Workers may still use the closure: they end at a barrier, which now fails, and then for good.
            for worker in self.workers.drain(..) {
                let _ = worker.join();
            }
            return Err(message(&*panic));
        }
        Ok(())
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a thread panicked: {}", text.unwrap_or("it did not say why"))
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.step.fetch_add(1, Ordering::SeqCst);
        for worker in &self.handles {
            worker.unpark();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_every_step_and_barriers_hold() {
        let mut pool = Pool::new(3, false).unwrap();
        let counts: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
        for step in 0..200 {
            pool.run(&|team| {
                for count in &counts {
                    count.fetch_add(1, Ordering::Relaxed);
                    team.barrier();
                    assert_eq!(count.load(Ordering::Relaxed), 3 * (step + 1));
                    team.barrier();
                }
            })
            .unwrap();
        }
    }

    #[test]
    fn a_sleeping_worker_wakes() {
        let mut pool = Pool::new(2, false).unwrap();
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(20));
            let ran = AtomicUsize::new(0);
            pool.run(&|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            assert_eq!(ran.into_inner(), 2);
        }
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_pool_stays_lost() {
        for bad in 0..2 {
            let mut pool = Pool::new(2, false).unwrap();
            let error = pool.run(&|team| assert!(team.thread != bad, "no")).unwrap_err();
            assert!(error.starts_with("a thread panicked: "), "{error}");
            assert_eq!(pool.run(&|_| {}).unwrap_err(), "a thread panicked in an earlier step");
        }
    }

    #[test]
    fn shares_cover_everything_once() {
        let shared = Shared {
            step: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            asleep: Vec::new(),
        };
        for n in 0..20 {
            let all: Vec<usize> =
                (0..7).flat_map(|thread| Team { thread, threads: 7, shared: &shared }.share(n)).collect();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }
}

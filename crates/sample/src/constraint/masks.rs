//! Threads that find out which tokens may come next, while the model is busy.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;

/// The most threads. A mask takes far less than a step of a model, so few serve many answers.
const THREADS: usize = 4;

/// The tokens that may come next.
pub(super) struct Mask {
    pub allowed: SimpleVob,
    /// How long it took to make.
    pub time: Duration,
}

type Made = Result<(Matcher, Mask), String>;

/// A mask that will be there.
pub(super) struct Reply(mpsc::Receiver<Made>);

impl Reply {
    /// Waits for it.
    pub fn wait(&self) -> Made {
        self.0.recv().unwrap_or_else(|_| Err("the thread that makes masks has ended".into()))
    }
}

struct Job {
    matcher: Matcher,
    reply: mpsc::SyncSender<Made>,
}

/// A handle to the threads. They end with it.
pub(super) struct Masks {
    /// `None`: no thread could be started, and masks are made where they are asked for.
    jobs: Option<mpsc::Sender<Job>>,
}

impl Masks {
    pub fn start() -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let count = thread::available_parallelism().map_or(1, |n| n.get().div_ceil(4)).min(THREADS);
        let started = (0..count).filter(|_| {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name("cera-masks".into()).spawn(move || serve(&queue)).is_ok()
        });
        Self { jobs: (started.count() > 0).then_some(jobs) }
    }

    /// Asks what may come next.
    pub fn ask(&self, matcher: Matcher) -> Reply {
        let (reply, receiver) = mpsc::sync_channel(1);
        let mut job = Job { matcher, reply };
        if let Some(jobs) = &self.jobs {
            match jobs.send(job) {
                Ok(()) => return Reply(receiver),
                Err(mpsc::SendError(back)) => job = back,
            }
        }
        do_it(job);
        Reply(receiver)
    }
}

fn serve(queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => do_it(job),
            Err(mpsc::RecvError) => return,
        }
    }
}

fn do_it(Job { mut matcher, reply }: Job) {
    let start = Instant::now();
    // The matcher catches its own panics and makes errors of them.
    let made = match matcher.compute_mask_or_eos() {
        Ok(allowed) => Ok((matcher, Mask { allowed, time: start.elapsed() })),
        Err(e) => Err(e.to_string()),
    };
    // The answer may have been broken off.
    let _ = reply.send(made);
}

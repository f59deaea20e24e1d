//! The thread that owns the engine: takes requests in, makes steps, gives events out.

use std::sync::Arc;
use std::time::Instant;

use async_channel::Sender;
use cera_backend::StepOutput;
use cera_sample::Compiled;

use super::{EmbedJob, Inbox, ServiceOptions, Shared, Stats, Submission};
use crate::decoding::Decoding;
use crate::schedule::{Policy, Work};
use crate::{Engine, Error, Event, Finish, Part, Report, Sequence, Want};

/// The engine and all answers that have not ended.
pub(super) struct Worker {
    engine: Engine,
    policy: Policy,
    prefix_cache: bool,
    shared: Arc<Shared>,
    /// In order of arrival.
    jobs: Vec<Job>,
    start: Instant,
    stats: Stats,
    /// Requests that came so far.
    requests: u64,
}

/// One answer in the making.
struct Job {
    /// The number of the request.
    request: u64,
    sequence: Sequence,
    decoding: Decoding,
    events: Sender<Result<Event, Error>>,
    /// Tokens of the prompt, and how many of them the cache held.
    prompt: usize,
    reused: usize,
    running: bool,
    arrived: Instant,
    admitted: Option<Instant>,
    prompt_end: Option<Instant>,
    first_token: Option<Instant>,
    /// How it ended, where it did: it is to be let go, and then told.
    ending: Option<Result<Event, Error>>,
}

/// Says that the thread has ended, however it did.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut inbox = self.0.lock();
        // What waits is dropped, and whoever waits for it finds out by that.
        let (stats, disk) = (inbox.stats, inbox.disk.take());
        *inbox = Inbox { stopped: true, stats, disk, ..Inbox::default() };
    }
}

impl Worker {
    pub fn new(engine: Engine, options: &ServiceOptions, shared: Arc<Shared>) -> Self {
        let rows = options.rows.unwrap_or(usize::MAX).min(engine.max_rows());
        let running = options.running.min(rows).min(engine.max_sequences().unwrap_or(usize::MAX));
        let policy = Policy { rows, running, patience: options.patience };
        let stats = Stats { blocks_total: engine.blocks(), ..Stats::default() };
        shared.lock().stats = stats;
        let prefix_cache = options.prefix_cache;
        Self {
            engine,
            policy,
            prefix_cache,
            shared,
            jobs: Vec::new(),
            start: Instant::now(),
            stats,
            requests: 0,
        }
    }

    /// Until no handle is left and all is done.
    pub fn run(mut self) {
        let _ending = Ending(Arc::clone(&self.shared));
        while self.take_in() {
            self.let_go_of_cancelled();
            self.step();
            let ended = self.let_go(|job| job.ending.is_some());
            // Who hears of the end finds it in the statistics, and the blocks free.
            self.publish(&mut Arc::clone(&self.shared).lock());
            for (events, ending) in ended.into_iter().filter_map(|job| Some((job.events, job.ending?))) {
                // Nobody may wait for it any more.
                let _ = events.try_send(ending);
            }
        }
    }

    /// Takes in what has come; waits for it where there is nothing to do. False where nothing will come any more.
    fn take_in(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut inbox = shared.lock();
        loop {
            self.publish(&mut inbox);
            if !inbox.submissions.is_empty() || !inbox.embeddings.is_empty() || !self.jobs.is_empty() {
                break;
            }
            for drain in inbox.drains.drain(..) {
                // Nobody may wait for it any more.
                let _ = drain.try_send(Ok(()));
            }
            if inbox.abandoned {
                return false;
            }
            inbox = shared.came.wait(inbox).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let submissions = std::mem::take(&mut inbox.submissions);
        let embeddings = std::mem::take(&mut inbox.embeddings);
        drop(inbox);
        submissions.into_iter().for_each(|s| self.begin(s));
        self.embed(embeddings);
        true
    }

    /// Puts the numbers where the handles see them.
    fn publish(&mut self, inbox: &mut Inbox) {
        let waiting = self.jobs.iter().filter(|job| job.admitted.is_none()).count();
        self.stats.running = self.jobs.len() - waiting;
        self.stats.blocks_used = self.stats.blocks_total - self.engine.free_blocks();
        self.stats.blocks_kept = self.engine.kept_blocks();
        inbox.queued = waiting + inbox.submissions.iter().map(|s| s.request.choices).sum::<usize>();
        inbox.stats = self.stats;
        inbox.disk = self.engine.disk_stats();
    }

    /// Makes jobs of a request.
    fn begin(&mut self, s: Submission) {
        self.requests += 1;
        for choice in 0..s.request.choices {
            match self.job(&s, choice) {
                Ok(job) => self.jobs.push(job),
                Err(error) => {
                    self.stats.failed += 1;
                    // Nobody may wait for it any more.
                    let _ = s.events.try_send(Err(error));
                    return;
                }
            }
        }
    }

    fn job(&self, s: &Submission, choice: usize) -> Result<Job, Error> {
        let mut sequence = self.engine.sequence();
        sequence.append(&s.prompt)?;
        let constraint = s.grammar.as_ref().map(Compiled::start);
        let tokenizer = self.engine.tokenizer().ok();
        Ok(Job {
            decoding: Decoding::new(&s.request, choice, tokenizer, &s.prompt, constraint)?,
            request: self.requests,
            sequence,
            events: s.events.clone(),
            prompt: s.prompt.len(),
            reused: 0,
            running: false,
            arrived: s.arrived,
            admitted: None,
            prompt_end: None,
            first_token: None,
            ending: None,
        })
    }

    fn let_go_of_cancelled(&mut self) {
        let cancelled = self.let_go(|job| job.events.is_closed());
        self.stats.cancelled += cancelled.len() as u64;
    }

    /// Lets go of jobs, and keeps what the cache holds of them.
    fn let_go(&mut self, gone: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.jobs.extract_if(.., |job| gone(job)).collect();
        for job in &mut jobs {
            keep(&mut self.engine, self.prefix_cache, &mut job.sequence);
            job.sequence.release();
        }
        jobs
    }

    fn step(&mut self) {
        let considered = self.considered();
        let works: Vec<Work> = considered.iter().filter_map(|&i| self.work(i)).collect();
        let step = self.policy.step(&works, self.engine.free_blocks(), self.start.elapsed());
        let job = |&i: &usize| considered.get(i).copied();
        for i in step.preempt.iter().filter_map(job) {
            self.preempt(i);
        }
        for i in step.admit.iter().filter_map(job) {
            self.admit(i);
        }
        let mut taking: Vec<(&mut Job, usize)> = Vec::with_capacity(step.rows.len());
        let mut rows = step.rows.iter().filter_map(|(i, rows)| Some((job(i)?, *rows))).peekable();
        for (i, job) in self.jobs.iter_mut().enumerate() {
            if let Some((_, rows)) = rows.next_if(|(at, _)| *at == i).filter(|_| job.ending.is_none()) {
                let rows = rows.min(job.sequence.pending().len());
                taking.push((job, rows));
            }
        }
        for (job, rows) in &mut taking {
            *rows = job.sequence.cut(*rows);
            job.tell_prompt();
            if *rows > 1 || job.prompt_end.is_none() {
                self.stats.prompt_tokens += *rows as u64;
            }
        }
        if taking.is_empty() {
            return;
        }
        let wants: Vec<Want> = taking.iter().map(|(job, rows)| job.want(*rows)).collect();
        let parts = taking.iter_mut().zip(&wants);
        let mut parts: Vec<Part<'_>> = parts
            .map(|((job, rows), &want)| Part { sequence: &mut job.sequence, rows: *rows, want })
            .collect();
        let result = self.engine.step(&mut parts).map(std::mem::take);
        self.stats.steps += 1;
        match result {
            Ok(mut out) => {
                let load_time = self.engine.load_time();
                hand_out(&mut taking, &wants, &mut out, self.engine.vocabulary(), |job, best, logits| {
                    job.go_on(best, logits, load_time, &mut self.stats);
                });
                // Its memory is for the next step.
                *self.engine.output() = out;
                for (job, rows) in &mut taking {
                    // A prompt was read: those who wait with the same one need not read it again.
                    if *rows > 1 && job.sequence.pending().len() <= 1 {
                        keep(&mut self.engine, self.prefix_cache, &mut job.sequence);
                    }
                }
            }
            Err(error) => {
                let counts: Vec<usize> = taking.iter().map(|(_, rows)| *rows).collect();
                let guilty = guilty(&error, &counts);
                for (i, (job, _)) in taking.iter_mut().enumerate() {
                    if guilty.is_none_or(|g| g == i) {
                        job.fail(step_error(&error));
                        self.stats.failed += 1;
                    }
                }
            }
        }
    }

    /// Jobs that may take part, in order of arrival. Several answers to one prompt share what the first of them has stored,
    /// so the others wait until it has read the prompt.
    fn considered(&self) -> Vec<usize> {
        let mut reading = None;
        let waits = |(i, job): (usize, &Job)| {
            if job.decoding.choice() == 0 {
                reading = job.prompt_end.is_none().then_some(job.request);
                return Some(i);
            }
            (!self.prefix_cache || reading != Some(job.request)).then_some(i)
        };
        self.jobs.iter().enumerate().filter_map(waits).collect()
    }

    /// A job as the policy sees it.
    fn work(&self, i: usize) -> Option<Work> {
        let job = self.jobs.get(i)?;
        let table = &job.sequence.table;
        let mut work = Work {
            arrived: job.arrived.saturating_duration_since(self.start),
            tokens: job.sequence.tokens().len(),
            stored: job.sequence.stored(),
            blocks: table.blocks().len(),
            own: table.pool().own(table),
            running: job.running,
        };
        if !job.running && self.prefix_cache && i < LOOKED_UP {
            let found = self.engine.reusable(&job.sequence);
            (work.stored, work.blocks) = (found.tokens, found.in_use);
        }
        Some(work)
    }

    fn preempt(&mut self, i: usize) {
        let Some(job) = self.jobs.get_mut(i) else { return };
        keep(&mut self.engine, self.prefix_cache, &mut job.sequence);
        job.sequence.release();
        job.running = false;
        self.stats.preemptions += 1;
    }

    fn admit(&mut self, i: usize) {
        let Some(job) = self.jobs.get_mut(i) else { return };
        job.running = true;
        let first = job.admitted.is_none();
        job.admitted.get_or_insert_with(Instant::now);
        if self.prefix_cache
            && let Err(error) = self.engine.reuse(&mut job.sequence)
        {
            job.fail(error);
            self.stats.failed += 1;
            return;
        }
        if first {
            job.reused = job.sequence.stored();
            self.stats.admitted += 1;
            self.stats.reused_tokens += job.reused as u64;
            self.stats.prefix_hits += u64::from(job.reused > 0);
        }
    }

    /// Embeds what has come, all together.
    fn embed(&mut self, jobs: Vec<EmbedJob>) {
        let jobs: Vec<EmbedJob> = jobs.into_iter().filter(|job| !job.reply.is_closed()).collect();
        for norm in [crate::Norm::None, crate::Norm::L2] {
            let same: Vec<&EmbedJob> = jobs.iter().filter(|job| job.norm == norm).collect();
            let all: Vec<Vec<u32>> = same.iter().flat_map(|job| job.sequences.iter().cloned()).collect();
            let together = if same.len() > 1 { self.engine.embed(&all, norm).ok() } else { None };
            let mut together = together.map(Vec::into_iter);
            for job in same {
                let result = match &mut together {
                    Some(all) => Ok(all.by_ref().take(job.sequences.len()).collect()),
                    // One of them may be at fault: each by itself.
                    None => self.engine.embed(&job.sequences, norm),
                };
                match &result {
                    Ok(_) => self.stats.finished += 1,
                    Err(_) => self.stats.failed += 1,
                }
                let tokens = job.sequences.iter().map(Vec::len).sum::<usize>();
                self.stats.prompt_tokens += tokens as u64;
                // Who gets them finds them in the statistics.
                self.publish(&mut Arc::clone(&self.shared).lock());
                // Nobody may wait for it any more.
                let _ = job.reply.try_send(result);
            }
        }
    }
}

/// How many of the jobs are looked up in the tree of prefixes before each step. Those behind them hardly begin next; if one
/// does, it is taken to need all of its blocks, which is only careful.
const LOOKED_UP: usize = 64;

/// Keeps what the cache holds of a sequence for others.
fn keep(engine: &mut Engine, prefix_cache: bool, sequence: &mut Sequence) {
    if prefix_cache {
        // Where a copy cannot be made the backend is broken, and the next step says so.
        let _ = engine.keep(sequence);
    }
}

/// Gives each job that a row was wanted for its token and logits.
fn hand_out(
    taking: &mut [(&mut Job, usize)],
    wants: &[Want],
    out: &mut StepOutput,
    vocabulary: usize,
    mut give: impl FnMut(&mut Job, Option<u32>, &mut [f32]),
) {
    let mut tokens = out.tokens.iter();
    let mut rows = out.logits.chunks_exact_mut(vocabulary);
    for ((job, count), want) in taking.iter_mut().zip(wants) {
        match want {
            Want::Nothing if job.sequence.pending().is_empty() => give(job, None, &mut []),
            Want::Nothing => {}
            Want::Token => give(job, tokens.next().copied(), &mut []),
            Want::Logits => give(job, tokens.next().copied(), rows.next().unwrap_or_default()),
            Want::AllLogits => {
                let _ = (tokens.by_ref().take(*count).count(), rows.by_ref().take(*count).count());
            }
        }
    }
}

/// Whose rows a failed step's error is about, where it is about one sequence's alone.
fn guilty(error: &Error, rows: &[usize]) -> Option<usize> {
    let Error::Backend(cera_backend::Error::NotFinite { row, .. }) = error else { return None };
    let mut end = 0;
    rows.iter().position(|rows| {
        end += rows;
        *row < end
    })
}

/// The error for each of those that took part.
fn step_error(error: &Error) -> Error {
    match error {
        Error::Backend(error) => Error::Backend(error.clone()),
        Error::Blocks { needed, free } => Error::Blocks { needed: *needed, free: *free },
        other => Error::Request(other.to_string()),
    }
}

impl Job {
    /// What the job wants of a step in which it has so many rows.
    fn want(&self, rows: usize) -> Want {
        if rows == self.sequence.pending().len() { self.decoding.want() } else { Want::Nothing }
    }

    fn tell(&self, event: Event) {
        // Who does not listen any more is found out before the next step.
        let _ = self.events.try_send(Ok(event));
    }

    fn tell_prompt(&self) {
        if self.prompt_end.is_none() {
            let (done, total) = (self.sequence.stored() - self.reused, self.prompt - self.reused);
            self.tell(Event::Prompt { done, total });
        }
    }

    fn fail(&mut self, error: Error) {
        self.ending = Some(Err(error));
    }

    /// All tokens went through the model: the next one, or the end.
    fn go_on(
        &mut self,
        best: Option<u32>,
        logits: &mut [f32],
        load_time: std::time::Duration,
        stats: &mut Stats,
    ) {
        self.prompt_end.get_or_insert_with(Instant::now);
        match self.token(best, logits, stats) {
            Ok(None) => {}
            Ok(Some(finish)) => {
                stats.finished += 1;
                self.ending = Some(Ok(Event::Done(self.report(finish, load_time))));
            }
            Err(error) => {
                stats.failed += 1;
                self.fail(error);
            }
        }
    }

    fn token(
        &mut self,
        best: Option<u32>,
        logits: &mut [f32],
        stats: &mut Stats,
    ) -> Result<Option<Finish>, Error> {
        let context = self.sequence.context();
        if let Some(finish) = self.decoding.ended(self.sequence.tokens().len(), context) {
            return Ok(Some(finish));
        }
        let best = best.ok_or_else(|| Error::Request("the backend gave no token".into()))?;
        let (id, logprobs) = self.decoding.choose(best, logits)?;
        self.sequence.append(&[id])?;
        self.first_token.get_or_insert_with(Instant::now);
        stats.generated_tokens += 1;
        let (token, finish) = self.decoding.take(id, logprobs, self.sequence.tokens().len(), context)?;
        self.tell(Event::Token(token));
        Ok(finish)
    }

    fn report(&self, finish: Finish, load_time: std::time::Duration) -> Report {
        let end = Instant::now();
        let admitted = self.admitted.unwrap_or(end);
        let prompt_end = self.prompt_end.unwrap_or(end);
        Report {
            choice: self.decoding.choice(),
            reused_tokens: self.reused,
            prompt_tokens: self.prompt - self.reused,
            generated_tokens: self.decoding.generated(),
            queue_time: admitted.duration_since(self.arrived),
            prompt_time: prompt_end.duration_since(admitted),
            generation_time: end.duration_since(prompt_end),
            first_token: self.first_token.map(|t| t.duration_since(self.arrived)),
            load_time,
            finish,
        }
    }
}

//! Which sequences take part in the next step, and with how many tokens: a policy over numbers alone.
//!
//! A step has room for a fixed number of rows, and the cache for a fixed number of blocks.
//!
//! - Answers that are being generated come first: one row each.
//! - Prompts share the rows that are left. The one that came first may take half of them, so it always gets on; the
//!   other half goes to those that need least, so that a short prompt is done in the next step or the one after, whatever
//!   is ahead of it. Rows that are still left go out in order of arrival.
//! - A request begins when the cache has room for its tokens beside what those that have begun will surely need. Requests
//!   begin in order of arrival. One that finds no room may be overtaken by smaller ones, but only as long as it has
//!   waited less than [`Policy::patience`]: from then on everybody behind it waits too.
//! - When the cache is full, the sequence that came last gives its blocks up and is computed again later. Only those that
//!   came after the one in need do so; hence the first always gets on, and with it, in turn, all.

use std::time::Duration;

use cera_backend::BLOCK;

/// The limits of a step, and how long fairness waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// The most rows of a step.
    pub rows: usize,
    /// The most sequences that have begun; at most `rows`.
    pub running: usize,
    /// How long a request may be overtaken.
    pub patience: Duration,
}

/// A sequence as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// When the request came, on any clock that does not go back.
    pub arrived: Duration,
    /// All its tokens: prompt and what was generated.
    pub tokens: usize,
    /// Tokens that are in the cache; of one that has not begun, those that it would find there.
    pub stored: usize,
    /// Blocks that it holds; of one that has not begun, those that it would find in the hands of others.
    pub blocks: usize,
    /// How many of them would be free without it.
    pub own: usize,
    /// Whether it has begun.
    pub running: bool,
}

/// What to do, by index of the works given.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Those that give their blocks up, first of all.
    pub preempt: Vec<usize>,
    /// Those that begin.
    pub admit: Vec<usize>,
    /// Rows of those that take part, in order of arrival.
    pub rows: Vec<(usize, usize)>,
}

impl Work {
    fn pending(&self) -> usize {
        self.tokens.saturating_sub(self.stored)
    }

    /// Blocks that it lacks to store `positions`.
    fn missing(&self, positions: usize) -> usize {
        positions.div_ceil(BLOCK).saturating_sub(self.blocks)
    }
}

/// A sequence while a step is put together.
struct Place {
    work: Work,
    /// It has begun, and was not preempted.
    on: bool,
    /// Rows that it gets.
    rows: usize,
    /// Blocks that it takes for them.
    taken: usize,
}

/// A step while it is put together.
struct Making {
    places: Vec<Place>,
    /// Blocks that can still be had.
    free: usize,
    /// Rows that can still be had.
    left: usize,
    preempt: Vec<usize>,
    admit: Vec<usize>,
}

impl Policy {
    /// The next step. The works are in order of arrival; `free` blocks can be had.
    pub fn step(&self, works: &[Work], free: usize, now: Duration) -> Step {
        let place = |&work: &Work| Place { work, on: work.running, rows: 0, taken: 0 };
        let places = works.iter().map(place).collect();
        let mut making = Making { places, free, left: self.rows, preempt: Vec::new(), admit: Vec::new() };
        for i in making.on(|pending| pending == 1) {
            // Those before it may have taken its blocks.
            if making.left > 0 && making.places[i].on && making.make_room(i) {
                making.give(i, 1);
            }
        }
        // What is given up in this step is not handed out again in the same one: whoever lost it would be the next to ask.
        if making.preempt.is_empty() {
            self.admit(&mut making, now);
        }
        if let Some(first) =
            making.on(|pending| pending > 0).into_iter().find(|&i| making.places[i].rows == 0)
        {
            let half = making.left.div_ceil(2);
            if half > 0 && making.make_room(first) {
                making.give(first, half);
            }
        }
        let mut prompts = making.on(|pending| pending > 1);
        prompts.extend(making.admit.iter().filter(|&&i| making.places[i].work.pending() == 1));
        prompts.sort_by_key(|&i| (making.needed(i), i));
        for i in prompts {
            making.give(i, usize::MAX);
        }
        let rows = making.places.iter().enumerate().filter(|(_, p)| p.rows > 0).map(|(i, p)| (i, p.rows));
        Step { rows: rows.collect(), preempt: making.preempt, admit: making.admit }
    }

    fn admit(&self, making: &mut Making, now: Duration) {
        let mut running = making.places.iter().filter(|p| p.on).count();
        // What those that have begun will surely need: their prompts, and a block each for what they generate.
        let sure = |p: &Place| p.work.missing(p.work.tokens + 1).saturating_sub(p.taken) + 1;
        let promised: usize = making.places.iter().filter(|p| p.on).map(sure).sum();
        let mut room = making.free.saturating_sub(promised);
        for (i, place) in making.places.iter_mut().enumerate().filter(|(_, p)| !p.on) {
            if running >= self.running {
                break;
            }
            let needed = sure(place);
            // Alone in the cache a sequence has all the room that there will ever be.
            if needed <= room || running == 0 {
                room = room.saturating_sub(needed);
                running += 1;
                place.on = true;
                making.admit.push(i);
            } else if now.saturating_sub(place.work.arrived) >= self.patience {
                break;
            }
        }
    }
}

impl Making {
    /// Those that have begun and have so many pending tokens, in order of arrival.
    fn on(&self, pending: impl Fn(usize) -> bool) -> Vec<usize> {
        let on = self.places.iter().enumerate().filter(|(_, p)| p.on && pending(p.work.pending()));
        on.map(|(i, _)| i).collect()
    }

    /// Pending tokens of a sequence that it has no rows for yet.
    fn needed(&self, i: usize) -> usize {
        let p = &self.places[i];
        p.work.pending() - p.rows
    }

    /// Sees to it that a sequence without rows can store a token, at the cost of those that came after it.
    fn make_room(&mut self, i: usize) -> bool {
        let needed = self.places[i].work.missing(self.places[i].work.stored + 1);
        while needed > self.free {
            let behind = self.places.iter_mut().enumerate().skip(i + 1).rev();
            let Some((last, place)) = behind.into_iter().find(|(_, p)| p.on && p.work.own + p.taken > 0)
            else {
                return false;
            };
            self.left += std::mem::take(&mut place.rows);
            self.free += place.work.own + std::mem::take(&mut place.taken);
            place.on = false;
            // One that was to begin just does not.
            match self.admit.iter().position(|&j| j == last) {
                Some(at) => drop(self.admit.remove(at)),
                None => self.preempt.push(last),
            }
        }
        true
    }

    /// Gives a sequence up to `rows` more rows, as far as there are some left, tokens for them, and blocks for those.
    fn give(&mut self, i: usize, rows: usize) {
        let p = &mut self.places[i];
        let room = (p.work.blocks + p.taken + self.free).saturating_mul(BLOCK);
        let positions = p.work.stored + p.rows;
        let rows = rows.min(self.left).min(p.work.tokens - positions).min(room.saturating_sub(positions));
        if rows == 0 {
            return;
        }
        let needed = p.work.missing(positions + rows);
        self.free -= needed - p.taken;
        self.left -= rows;
        p.taken = needed;
        p.rows += rows;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const POLICY: Policy = Policy { rows: 512, running: 64, patience: Duration::from_secs(5) };

    fn waiting(arrived: u64, tokens: usize) -> Work {
        let arrived = Duration::from_millis(arrived);
        Work { arrived, tokens, stored: 0, blocks: 0, own: 0, running: false }
    }

    fn running(arrived: u64, tokens: usize, stored: usize) -> Work {
        let blocks = stored.div_ceil(BLOCK);
        Work { stored, blocks, own: blocks, running: true, ..waiting(arrived, tokens) }
    }

    fn step(works: &[Work], free: usize) -> Step {
        POLICY.step(works, free, Duration::from_millis(1000))
    }

    #[test]
    fn answers_go_on_while_a_prompt_is_read() {
        let got = step(&[running(0, 4000, 512), running(1, 101, 100), waiting(2, 700)], 1000);
        assert_eq!((got.preempt, got.admit), (vec![], vec![2]));
        // 511 rows are left: half to the long prompt, the rest to the one that needs less.
        assert_eq!(got.rows, [(0, 256), (1, 1), (2, 255)]);
    }

    #[test]
    fn a_short_prompt_is_done_in_the_next_step_whatever_is_ahead() {
        for ahead in [1, 4] {
            let mut works: Vec<Work> = (0..ahead).map(|i| running(i, 4000, 64)).collect();
            works.push(waiting(50, 20));
            let got = step(&works, 10_000);
            assert!(got.rows.contains(&(works.len() - 1, 20)), "{got:?}");
            assert_eq!(got.rows.iter().map(|(_, rows)| rows).sum::<usize>(), POLICY.rows);
        }
    }

    #[test]
    fn prompts_of_one_length_go_in_order_of_arrival() {
        let works: Vec<Work> = (0..4).map(|i| waiting(i, 256)).collect();
        assert_eq!(step(&works, 1000).rows, [(0, 256), (1, 256)]);
        // A prompt of one token is a prompt like any other.
        assert_eq!(step(&[waiting(0, 1)], 10).rows, [(0, 1)]);
    }

    #[test]
    fn nobody_begins_in_room_that_is_promised() {
        // 20 blocks are free, 10 and one for the answer are promised to the first: 9 are left.
        let first = running(0, 512 + 319, 512);
        let begins = |tokens| step(&[first, waiting(1, tokens)], 20).admit.len();
        assert_eq!((begins(255), begins(256)), (1, 0));
        // Alone one begins in any case.
        assert_eq!(step(&[waiting(1, 640)], 20).admit, [0]);
        // The number of sequences has a limit as well.
        let few = Policy { running: 2, ..POLICY };
        let works = [waiting(0, 5), waiting(1, 5), waiting(2, 5)];
        assert_eq!(few.step(&works, 100, Duration::ZERO).admit, [0, 1]);
    }

    #[test]
    fn who_finds_no_room_is_overtaken_only_for_a_while() {
        let works = [running(0, 33, 32), waiting(1000, 900), waiting(1001, 20)];
        let at = |ms| POLICY.step(&works, 10, Duration::from_millis(ms)).admit;
        assert_eq!(at(5999), [2]);
        assert!(at(6000).is_empty());
    }

    #[test]
    fn a_full_cache_takes_from_the_last_for_those_before() {
        let works = [running(0, 65, 64), running(1, 40, 39), running(2, 33, 32), waiting(3, 1)];
        let got = step(&works, 0);
        assert_eq!(got, Step { preempt: vec![2], admit: vec![], rows: vec![(0, 1), (1, 1)] });
        // The last in need waits for the others.
        let works = [running(0, 40, 39), running(1, 33, 32)];
        assert_eq!(step(&works, 0), Step { rows: vec![(0, 1)], ..Step::default() });
        // A prompt in reading gets on too.
        let works = [running(0, 300, 96), running(1, 40, 39)];
        assert_eq!(step(&works, 0), Step { preempt: vec![1], rows: vec![(0, 64)], ..Step::default() });
    }

    /// A prompt and the tokens that will be generated behind it.
    #[derive(Clone, Copy)]
    struct Job {
        at: u64,
        prompt: usize,
        answer: usize,
    }

    /// Steps of 10 ms each until all is done; gives by job the step of its arrival, first token and end.
    fn simulate(policy: Policy, blocks: usize, jobs: &[Job]) -> Vec<[u64; 3]> {
        let mut times = vec![[0; 3]; jobs.len()];
        // Of each that came and is not done: index, work.
        let mut live: Vec<(usize, Work)> = Vec::new();
        let mut next = 0;
        for clock in 0.. {
            while let Some(job) = jobs.get(next).filter(|j| j.at <= clock) {
                live.push((next, waiting(clock * 10, job.prompt)));
                times[next][0] = clock;
                next += 1;
            }
            if live.is_empty() && next == jobs.len() {
                return times;
            }
            assert!(clock < 200_000, "somebody starves: {live:?}");
            let held: usize = live.iter().map(|(_, w)| w.blocks).sum();
            let works: Vec<Work> = live.iter().map(|(_, w)| *w).collect();
            let step = policy.step(&works, blocks - held, Duration::from_millis(clock * 10));
            assert!(step.rows.iter().map(|(_, rows)| rows).sum::<usize>() <= policy.rows);
            assert!(live.is_empty() || !step.rows.is_empty(), "a step that does nothing: {works:?}");
            for &i in &step.preempt {
                assert!(live[i].1.running);
                let w = live[i].1;
                live[i].1 = Work { stored: 0, blocks: 0, own: 0, running: false, ..w };
            }
            step.admit.iter().for_each(|&i| live[i].1.running = true);
            assert!(live.iter().filter(|(_, w)| w.running).count() <= policy.running);
            for &(i, rows) in &step.rows {
                let (job, w) = &mut live[i];
                assert!(w.running && rows <= w.pending());
                w.stored += rows;
                w.blocks = w.blocks.max(w.stored.div_ceil(BLOCK));
                w.own = w.blocks;
                if w.pending() == 0 {
                    w.tokens += 1;
                    let made = w.tokens - jobs[*job].prompt;
                    let times = &mut times[*job];
                    if made == 1 {
                        times[1] = clock + 1;
                    }
                    if made >= jobs[*job].answer {
                        times[2] = clock + 1;
                    }
                }
            }
            assert!(
                live.iter().map(|(_, w)| w.blocks).sum::<usize>() <= blocks,
                "more blocks than there are"
            );
            live.retain(|(job, _)| times[*job][2] == 0);
        }
        times
    }

    #[test]
    fn all_get_done_in_a_small_cache_whatever_comes() {
        for seed in 0..40u64 {
            let mut x = seed * 2 + 1;
            let mut below = |n: u64| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (x >> 33) % n
            };
            let mut at = 0;
            let jobs: Vec<Job> = (0..60)
                .map(|_| {
                    at += below(4);
                    let long = below(5) == 0;
                    Job {
                        at,
                        prompt: 1 + below(if long { 700 } else { 60 }) as usize,
                        answer: 1 + below(200) as usize,
                    }
                })
                .collect();
            let policy = Policy { rows: 64, running: 16, patience: Duration::from_millis(500) };
            // Just room for the longest there may be.
            let times = simulate(policy, 1000usize.div_ceil(BLOCK), &jobs);
            assert!(times.iter().all(|t| t[0] < t[1] && t[1] <= t[2]));
        }
    }

    #[test]
    fn short_requests_behind_a_long_prompt_have_their_first_token_within_two_steps() {
        let mut jobs = vec![Job { at: 0, prompt: 4000, answer: 50 }];
        jobs.extend((1..12).map(|at| Job { at, prompt: 30, answer: 20 }));
        let times = simulate(POLICY, 1000, &jobs);
        for t in &times[1..] {
            assert!(t[1] - t[0] < 2, "{t:?}");
        }
    }

    #[test]
    fn an_endless_stream_of_short_requests_does_not_starve_a_long_one() {
        let mut jobs = vec![Job { at: 3, prompt: 4000, answer: 4 }];
        jobs.extend((0..2000).map(|i| Job { at: i / 4, prompt: 120, answer: 8 }));
        jobs.sort_by_key(|j| j.at);
        let long = jobs.iter().position(|j| j.prompt == 4000).unwrap();
        // The cache is busy when it comes, and each short request would fit.
        let policy = Policy { rows: 256, patience: Duration::from_millis(200), ..POLICY };
        let times = simulate(policy, 4096 / BLOCK, &jobs);
        let ends: HashMap<_, _> = times.iter().enumerate().map(|(i, t)| (i, t[2])).collect();
        let last = ends.values().max().unwrap();
        assert!(ends[&long] < last / 2, "{} of {last}", ends[&long]);
    }
}

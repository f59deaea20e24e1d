//! Which model, run how: what keys and values on disk depend on besides the tokens.

use std::thread;

use cera_backend::{Error, Image, KvTypes, Weights};
use cera_plan::{Plan, Wt};
use sha2::{Digest, Sha256};

/// Changed whenever the same plan on the same backend may give other keys or values, or another layout of them.
const VERSION: u32 = 1;

/// A hash of a model's weights and plan, the backend and the form of its cache. Reads all weights once, on all cores.
pub(crate) fn fingerprint(
    weights: &dyn Weights,
    plan: &Plan,
    backend: &str,
    ty: KvTypes,
    image: Image,
) -> Result<[u8; 32], Error> {
    let count = plan.weights.len();
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(count.max(1));
    // Large weights lie together in many files: each thread takes every n-th.
    let work = |first: usize| {
        let digest = |i: usize| Ok((i, Sha256::digest(weights.bytes(Wt(i as u32))?)));
        (first..count).step_by(threads).map(digest).collect::<Result<Vec<_>, Error>>()
    };
    let work = &work;
    let mut digests = Vec::with_capacity(count);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || work(first))).collect();
        for done in running {
            digests.extend(done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<(), Error>(())
    })?;
    digests.sort_unstable_by_key(|(i, _)| *i);
    let mut hash = Sha256::new();
    let version = env!("CARGO_PKG_VERSION");
    hash.update(format!("{VERSION} {version} {backend} {ty:?} {image:?} {plan:?}"));
    digests.iter().for_each(|(_, digest)| hash.update(digest));
    Ok(hash.finalize().into())
}

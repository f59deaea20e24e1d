//! Memory that hostile files can make the reader take. Alone in its program, for the allocator counts all.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cera_gguf::Gguf;
use support::cases::refused;
use support::{Lie, array, kind};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; only sizes are counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and all memory came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Most bytes that reading took beyond the file's own, and whether it was read.
fn peak(bytes: Vec<u8>) -> (usize, bool) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let read = Gguf::from_bytes(bytes).is_ok();
    (PEAK.load(Relaxed) - before, read)
}

#[test]
fn memory_is_bounded_by_the_file() {
    for case in refused() {
        let len = case.bytes.len();
        let (peak, read) = peak(case.bytes);
        assert!(!read, "{}", case.what);
        // A string's bytes, a list's first room, an error's own names: never what the file claims.
        assert!(
            peak <= 4 * len + (64 << 10),
            "{}, {}: {peak} bytes for a file of {len}",
            case.fault,
            case.what
        );
    }

    // The densest files there are: what a byte of the file can cost at most.
    let n = 200_000u64;
    let strings =
        Lie::default().key("k", kind::ARRAY, &array(kind::STRING, n, &vec![0; 8 * n as usize])).bytes();
    let keys =
        (0..n as u32).fold(Lie::default(), |lie, i| lie.key(&format!("{i:x}"), kind::U8, &[0])).bytes();
    let tensors = (0..n as u32)
        .fold(Lie::default(), |lie, i| lie.tensor(&format!("{i:x}"), &[1], 0, 32 * u64::from(i)));
    let tensors = tensors.data(32 * n as usize).bytes();
    for (what, bytes) in [("strings", strings), ("keys", keys), ("tensors", tensors)] {
        let len = bytes.len();
        let (peak, read) = peak(bytes);
        assert!(read, "{what}");
        assert!(peak <= 16 * len, "{what}: {peak} bytes for a file of {len}");
    }
}

//! Which cores this process may use.

/// One logical processor of each physical core that this process may run on, in order of number. Empty where
/// the system does not say.
#[cfg(target_os = "linux")]
pub fn physical() -> Vec<usize> {
    let mut seen = Vec::new();
    let mut cores = Vec::new();
    for cpu in allowed() {
        // The core's own processors. A core's number would not do: each cluster of an ARM system may have a core 0. A
        // machine that hides its topology counts each processor as a core.
        let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let core = std::fs::read_to_string(topology).unwrap_or_else(|_| cpu.to_string());
        if !seen.contains(&core) {
            seen.push(core);
            cores.push(cpu);
        }
    }
    cores
}

/// Elsewhere threads cannot be put on a core, so none has a number.
#[cfg(not(target_os = "linux"))]
pub fn physical() -> Vec<usize> {
    Vec::new()
}

/// Threads to use where nobody says: physical cores (on a Mac the fast ones, since a step waits for its slowest
/// thread), within the affinity mask and the control group's quota.
pub fn default_threads() -> usize {
    let quota = std::thread::available_parallelism().map_or(1, |n| n.get());
    match count() {
        0 => quota,
        cores => cores.min(quota),
    }
}

/// Physical cores to use; 0 where the system does not say.
#[cfg(not(target_os = "macos"))]
pub fn count() -> usize {
    physical().len()
}

/// Physical cores of the fastest kind, or all of them on a Mac that has one kind and does not name it.
#[cfg(target_os = "macos")]
pub fn count() -> usize {
    let known = |name: &std::ffi::CStr| {
        let mut cores: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>();
        let none = std::ptr::null_mut();
        // SAFETY: the name ends in a zero, the result has the size that is said, and nothing is set.
        let failed =
            unsafe { libc::sysctlbyname(name.as_ptr(), (&raw mut cores).cast(), &mut size, none, 0) };
        usize::try_from(cores).ok().filter(|cores| failed == 0 && *cores > 0)
    };
    known(c"hw.perflevel0.physicalcpu").or_else(|| known(c"hw.physicalcpu")).unwrap_or(0)
}

/// Logical processors that this process may use, whatever its control group's quota.
#[cfg(target_os = "linux")]
pub fn logical() -> usize {
    allowed().len().max(1)
}

/// Elsewhere the standard library's count.
#[cfg(not(target_os = "linux"))]
pub fn logical() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: a zeroed cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size are those of `set`.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if failed != 0 {
        return Vec::new();
    }
    // SAFETY: every index is below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Keeps the calling thread on one logical processor, where the system lets it.
#[cfg(target_os = "linux")]
pub fn pin(cpu: usize) {
    // SAFETY: a zeroed cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: the index is below the set's size; the pointer and the size are those of `set`.
    unsafe {
        libc::CPU_SET(cpu, &mut set);
        // A refusal leaves the thread unpinned, which is only slower.
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Elsewhere threads go where the system puts them.
#[cfg(not(target_os = "linux"))]
pub fn pin(_cpu: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_thread_and_no_more_than_the_quota() {
        let threads = default_threads();
        assert!(threads >= 1);
        assert!(threads <= std::thread::available_parallelism().unwrap().get());
    }
}

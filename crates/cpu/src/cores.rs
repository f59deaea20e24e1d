//! Which cores this process may use.

/// One logical processor of each physical core that this process may run on, in order of number. Empty where
/// the system does not say.
#[cfg(target_os = "linux")]
pub fn physical() -> Vec<usize> {
    let mut seen = Vec::new();
    let mut cores = Vec::new();
    for cpu in allowed() {
        let read = |what: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}"))
                .ok()
                .and_then(|s| s.trim().parse::<i64>().ok())
        };
        // A machine that hides its topology counts each processor as a core.
        let id = (read("physical_package_id"), read("core_id").unwrap_or(cpu as i64));
        if !seen.contains(&id) {
            seen.push(id);
            cores.push(cpu);
        }
    }
    cores
}

/// Elsewhere nothing is known.
#[cfg(not(target_os = "linux"))]
pub fn physical() -> Vec<usize> {
    Vec::new()
}

/// Threads to use where nobody says: physical cores, within the affinity mask and the control group's quota.
pub fn default_threads() -> usize {
    let quota = std::thread::available_parallelism().map_or(1, |n| n.get());
    match physical().len() {
        0 => quota,
        cores => cores.min(quota),
    }
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

//! What this machine is, as far as the system says.
//!
//! Everything here is for people and for sizing a measurement; no kernel depends on it.

use std::path::Path;

use crate::{Tier, cores};

/// The machine, as this process sees it. `None` where the system does not say.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The processor's own name.
    pub processor: Option<String>,
    /// The tiers that it runs, worst first.
    pub tiers: Vec<Tier>,
    /// Physical cores that this process may use; on a Mac the fast ones.
    pub physical_cores: Option<usize>,
    /// Logical processors that this process may use.
    pub logical_cores: usize,
    /// How many processors' worth of time the control group grants.
    pub quota: Option<f64>,
    /// Bytes of a page of memory.
    pub page_bytes: Option<usize>,
    /// Whether memory may lie in pages of 2 MiB.
    pub huge_pages: Option<HugePages>,
    /// The last level of cache.
    pub cache: Option<Cache>,
    /// The memory.
    pub memory: Option<Memory>,
}

/// When the system puts memory into huge pages without being told which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// Wherever it can.
    Always,
    /// Where a program asks for them, as cera does under its weights.
    OnRequest,
    /// Never.
    Never,
}

impl HugePages {
    /// The system's word for it.
    pub fn name(self) -> &'static str {
        match self {
            HugePages::Always => "always",
            HugePages::OnRequest => "madvise",
            HugePages::Never => "never",
        }
    }
}

/// The last level of cache of the cores that this process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// Bytes that one core can reach.
    pub of_one: usize,
    /// Bytes of all of them together.
    pub of_all: usize,
}

/// Memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All that the system has.
    pub total: u64,
    /// What a program could have without swapping; files that are cached give way.
    pub available: u64,
}

impl Machine {
    /// Asks the system.
    pub fn read() -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).ok();
        Machine {
            processor: text("/proc/cpuinfo").as_deref().and_then(processor),
            tiers: Tier::available(),
            physical_cores: Some(cores::count()).filter(|n| *n > 0),
            logical_cores: cores::logical(),
            quota: text("/proc/self/cgroup")
                .and_then(|groups| quota(&groups, &|path| std::fs::read_to_string(path).ok())),
            page_bytes: page_bytes(),
            huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(huge_pages),
            cache: cache(&cores::physical(), &|path| std::fs::read_to_string(path).ok()),
            memory: text("/proc/meminfo").as_deref().and_then(memory),
        }
    }
}

/// Reads a file of the system.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// The first processor's name in Linux's list of them.
fn processor(cpuinfo: &str) -> Option<String> {
    let (_, name) =
        cpuinfo.lines().filter_map(|l| l.split_once(':')).find(|(k, _)| k.trim() == "model name")?;
    Some(name.trim().to_owned()).filter(|n| !n.is_empty())
}

/// The setting that stands in brackets.
fn huge_pages(enabled: &str) -> Option<HugePages> {
    let (_, rest) = enabled.split_once('[')?;
    let all = [HugePages::Always, HugePages::OnRequest, HugePages::Never];
    all.into_iter().find(|h| rest.split(']').next() == Some(h.name()))
}

fn memory(meminfo: &str) -> Option<Memory> {
    let bytes = |key: &str| {
        let line = meminfo.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: bytes("MemTotal")?, available: bytes("MemAvailable")? })
}

/// The least share of time that this process's control groups grant, of either version, from its own group up to
/// the root: each bounds those below.
fn quota(groups: &str, read: Read<'_>) -> Option<f64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|c| c == "cpu") {
            continue;
        }
        let root = Path::new("/sys/fs/cgroup").join(controllers);
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let folder = root.join(group);
            let share = if unified { unified_share(&folder, read) } else { first_share(&folder, read) };
            if let Some(share) = share {
                least = Some(least.map_or(share, |l: f64| l.min(share)));
            }
        }
    }
    least
}

/// `cpu.max` of version 2: quota and period in microseconds, or `max`.
fn unified_share(folder: &Path, read: Read<'_>) -> Option<f64> {
    let text = read(&folder.join("cpu.max"))?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    share(numbers.next()?.ok()?, numbers.next()?.ok()?)
}

/// The two files of version 1; a quota of -1 is none.
fn first_share(folder: &Path, read: Read<'_>) -> Option<f64> {
    let number = |name: &str| read(&folder.join(name))?.trim().parse::<f64>().ok();
    share(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
}

fn share(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// The greatest level of data cache of some logical processors; several may share one.
fn cache(cpus: &[usize], read: Read<'_>) -> Option<Cache> {
    let mut seen: Vec<String> = Vec::new();
    let (mut of_one, mut of_all) = (0usize, 0usize);
    for cpu in cpus {
        let last = (0..8).rev().find_map(|index| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let text = |name: &str| read(&Path::new(&folder).join(name)).map(|s| s.trim().to_owned());
            (text("type")? != "Instruction").then_some(())?;
            Some((kibibytes(&text("size")?)?, text("level")? + " " + &text("shared_cpu_list")?))
        });
        let Some((bytes, place)) = last else { continue };
        of_one = of_one.max(bytes);
        if !seen.contains(&place) {
            seen.push(place);
            of_all = of_all.saturating_add(bytes);
        }
    }
    (of_one > 0).then_some(Cache { of_one, of_all })
}

/// `32768K` in bytes.
fn kibibytes(size: &str) -> Option<usize> {
    size.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn page_bytes() -> Option<usize> {
    // SAFETY: asks for a number, whatever the name.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

/// Elsewhere nothing is known.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn page_bytes() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_that_runs_this_has_a_core_and_a_tier() {
        let machine = Machine::read();
        assert!(machine.logical_cores >= 1);
        assert_eq!(machine.tiers.first(), Some(&Tier::Scalar));
        assert!(machine.physical_cores.is_none_or(|n| n <= machine.logical_cores));
        assert!(machine.page_bytes.is_none_or(|n| n.is_power_of_two()));
        assert!(machine.memory.is_none_or(|m| 0 < m.available && m.available <= m.total));
    }

    #[test]
    fn reads_linuxs_own_words() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: A Fast One: v2\n";
        assert_eq!(processor(cpuinfo).as_deref(), Some("A Fast One: v2"));
        assert_eq!(processor("flags : fpu\n"), None);
        assert_eq!(huge_pages("always [madvise] never\n"), Some(HugePages::OnRequest));
        assert_eq!(huge_pages("always madvise [never]\n"), Some(HugePages::Never));
        assert_eq!(huge_pages("always madvise never\n"), None);
        let meminfo = "MemTotal:       100 kB\nMemFree:         1 kB\nMemAvailable:   40 kB\n";
        assert_eq!(memory(meminfo), Some(Memory { total: 102_400, available: 40_960 }));
        assert_eq!(memory("MemTotal: 100 kB\n"), None);
    }

    /// Files by path.
    fn files<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        |path| files.iter().find(|(p, _)| Path::new(p) == path).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn the_least_quota_on_the_way_to_the_root_counts() {
        let two = files(&[
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ]);
        assert_eq!(quota("0::/a/b\n", &two), Some(1.5));
        assert_eq!(quota("0::/other\n", &two), Some(4.0));
        let one = files(&[
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(quota("4:memory:/x\n3:cpu,cpuacct:/x\n", &one), None);
        assert_eq!(quota("nonsense\n", &one), None);
    }

    #[test]
    fn caches_that_cores_share_count_once() {
        let index = |cpu: usize, name: &str| format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/{name}");
        let of = |path: &Path| {
            (0..3).find_map(|cpu| {
                let answer =
                    |name: &str, text: &str| (path == Path::new(&index(cpu, name))).then(|| text.into());
                let list = if cpu < 2 { "0-1" } else { "2-3" };
                answer("type", "Unified\n")
                    .or_else(|| answer("size", "1024K\n"))
                    .or_else(|| answer("level", "3\n"))
                    .or_else(|| answer("shared_cpu_list", list))
            })
        };
        assert_eq!(cache(&[0, 1, 2], &of), Some(Cache { of_one: 1 << 20, of_all: 2 << 20 }));
        assert_eq!(cache(&[7], &of), None);
    }
}

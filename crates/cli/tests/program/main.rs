//! The program, run as its users run it, on a model whose answers are known.

#[path = "../../../engine/tests/tiny/mod.rs"]
mod tiny;

mod answers;
mod bench;
mod call;
mod doctor;
mod files;
mod folder;
mod interrupt;
mod quantize;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tiny::Text;

/// A folder with a model in it, which goes when the test ends.
struct Place {
    folder: PathBuf,
    model: PathBuf,
}

impl Place {
    fn new(text: Text) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cera-cli-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let model = tiny::write(&folder, text);
        Place { folder, model }
    }

    /// The program, away from the environment's own settings, models and network.
    fn cera(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cera"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CERA_") {
                command.env_remove(name);
            }
        }
        command.env("HF_HUB_CACHE", self.folder.join("hub")).env("HF_HUB_OFFLINE", "1");
        command.args(words).stdin(Stdio::null());
        command
    }

    /// The program, with the model behind the command.
    fn with_model(&self, words: &[&str]) -> Command {
        let (name, rest) = words.split_first().unwrap();
        let mut command = self.cera(&[name, "-m"]);
        command.arg(&self.model).args(rest);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        text(&path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

/// What a run left behind.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(command: &mut Command) -> Ran {
    ran(command.output().unwrap())
}

/// Runs what must succeed.
#[track_caller]
fn good(command: &mut Command) -> Ran {
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{command:?}\n{}", ran.err);
    ran
}

/// Runs what must fail with `code`; each of `words` must be in what it says.
#[track_caller]
fn bad(command: &mut Command, code: i32, words: &[&str]) {
    let ran = run(command);
    assert_eq!(ran.code, Some(code), "{command:?}\n{}", ran.err);
    assert_eq!(ran.out, "", "results of a failed call");
    for word in words {
        assert!(ran.err.contains(word), "no {word:?} in {:?}", ran.err);
    }
}

/// The objects of a `--json` output, one a line.
#[track_caller]
fn objects(out: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let objects: Vec<Value> = out.lines().map(parse).collect();
    assert!(objects.iter().all(Value::is_object), "{out}");
    objects
}

/// The only object of a `--json` output.
#[track_caller]
fn object(out: &str) -> Value {
    let mut objects = objects(out);
    assert_eq!(objects.len(), 1, "{out}");
    objects.remove(0)
}

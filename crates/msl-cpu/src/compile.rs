//! Lowered text to a library of this process.

use std::ffi::{CStr, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, Kernel, Target, lower};

/// The folder of the headers that lowered text includes.
pub const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shim");

/// The headers themselves: a library is compiled anew when one of them changes.
const HEADERS: [&str; 2] = [include_str!("../shim/metal_stdlib"), include_str!("../shim/msl_cpu.h")];

/// clang++, and where it leaves what it made.
#[derive(Clone, Debug)]
pub struct Compiler {
    clang: PathBuf,
    folder: PathBuf,
}

impl Compiler {
    /// The compiler of this name or path. Libraries go to `folder`, and are taken from there where they are the same.
    pub fn new(clang: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Compiler {
        Compiler { clang: clang.into(), folder: folder.into() }
    }

    /// The first clang++ that is new enough and starts.
    ///
    /// # Errors
    /// [`Error::NoCompiler`].
    pub fn find(folder: impl Into<PathBuf>) -> Result<Compiler, Error> {
        let names = ["clang++-19", "clang++-22", "clang++-21", "clang++-20", "clang++-18", "clang++-17"];
        let starts =
            |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        let name = names.iter().find(|name| starts(name)).ok_or(Error::NoCompiler)?;
        Ok(Compiler::new(name, folder))
    }

    /// The compiler's name or path.
    pub fn clang(&self) -> &Path {
        &self.clang
    }

    /// Where it leaves what it made.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Compiles MSL. `name` is for messages and the library's file.
    ///
    /// # Errors
    /// [`Error::Source`], [`Error::Compile`], [`Error::File`].
    pub fn compile(&self, name: &str, source: &str) -> Result<Library, Error> {
        let (kernels, cpp) = lower(source, &format!("{name}.metal"), Target::Cpu)?;
        let mut hasher = DefaultHasher::new();
        (HEADERS, &cpp, FLAGS, &self.clang).hash(&mut hasher);
        let stem = format!("{name}-{:016x}", hasher.finish());
        let library = self.folder.join(format!("{stem}.so"));
        if !library.is_file() {
            self.build(name, &cpp, &stem, &library)?;
        }
        Library::open(&library, kernels)
    }

    fn build(&self, name: &str, cpp: &str, stem: &str, library: &Path) -> Result<(), Error> {
        let file = |what: &Path, e: std::io::Error| Error::File {
            what: what.display().to_string(),
            why: e.to_string(),
        };
        std::fs::create_dir_all(&self.folder).map_err(|e| file(&self.folder, e))?;
        // Several processes and threads may be at it: each with files of its own, and the last to come replaces the
        // others' work.
        static BUILDS: AtomicUsize = AtomicUsize::new(0);
        let build = BUILDS.fetch_add(1, Ordering::Relaxed);
        let text = self.folder.join(format!("{stem}.{}-{build}.cpp", std::process::id()));
        let made = text.with_extension("so");
        std::fs::write(&text, cpp).map_err(|e| file(&text, e))?;
        let mut clang = Command::new(&self.clang);
        clang.args(FLAGS).arg("-I").arg(SHIM).arg(&text).arg("-o").arg(&made);
        let output = clang.output().map_err(|e| file(&self.clang, e))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Compile { name: name.to_owned(), message });
        }
        std::fs::rename(&made, library).map_err(|e| file(library, e))?;
        std::fs::remove_file(&text).map_err(|e| file(&text, e))
    }
}

/// MSL is C++14. `_Float16` rounds after each operation, as on a GPU, and nothing is contracted that does not say `fma`.
const FLAGS: [&str; 15] = [
    "-std=c++14",
    "-O2",
    "-march=x86-64-v3",
    "-ffp-contract=off",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-Wall",
    "-Werror",
    "-Wno-unused-function",
    "-Wno-unused-const-variable",
    "-Werror=c++17-extensions",
];

#[repr(C)]
struct Dispatch {
    kernel: u32,
    buffers: *const *mut c_void,
    grid: [u32; 3],
    threads: [u32; 3],
    seed: u64,
}

type Run = unsafe extern "C" fn(*const Dispatch, *mut c_char, usize) -> i32;

/// Compiled kernels.
pub struct Library {
    library: libloading::Library,
    kernels: Vec<Kernel>,
}

impl Library {
    fn open(path: &Path, kernels: Vec<Kernel>) -> Result<Library, Error> {
        // SAFETY: the library is what `lower` wrote; all that runs at its loading are constructors of empty containers.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|e| Error::File { what: path.display().to_string(), why: e.to_string() })?;
        Ok(Library { library, kernels })
    }

    /// The kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Runs kernel number `kernel` over a grid of threadgroups of `threads` threads. Seed 0 runs threads in order.
    ///
    /// # Errors
    /// [`Error::NoKernel`]; [`Error::Kernel`] where the kernel did what MSL leaves undefined.
    ///
    /// # Safety
    /// There is a buffer for each that the kernel takes. Where a buffer ends, pages follow that fault.
    pub unsafe fn run(
        &self,
        kernel: usize,
        buffers: &[*mut c_void],
        grid: [u32; 3],
        threads: u32,
        seed: u64,
    ) -> Result<(), Error> {
        let Some(known) = self.kernels.get(kernel) else {
            return Err(Error::NoKernel(format!("number {kernel}")));
        };
        let fault = |why: String| Error::Kernel { kernel: known.name.clone(), why };
        if buffers.len() != known.buffers() {
            return Err(fault(format!("{} buffers, but it takes {}", buffers.len(), known.buffers())));
        }
        let dispatch = Dispatch {
            kernel: kernel as u32,
            buffers: buffers.as_ptr(),
            grid,
            threads: [threads, 1, 1],
            seed,
        };
        let mut text = [0 as c_char; 512];
        // SAFETY: `lower` wrote a function of this name and signature.
        let run = unsafe { self.library.get::<Run>(b"msl_run\0") }
            .map_err(|e| Error::File { what: "msl_run".into(), why: e.to_string() })?;
        // SAFETY: the kernel's number and the number of buffers are right; the caller answers for the buffers.
        let failed = unsafe { run(&dispatch, text.as_mut_ptr(), text.len()) };
        if failed == 0 {
            return Ok(());
        }
        // SAFETY: the function ends its text with a zero, within the array.
        let why = unsafe { CStr::from_ptr(text.as_ptr()) };
        Err(fault(why.to_string_lossy().into_owned()))
    }
}

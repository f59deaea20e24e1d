//! Metal Shading Language on the CPU, for tests: the text that Apple's compiler takes runs here with the rules of
//! threadgroups made strict, so that a machine without a GPU can tell whether a kernel is right.
//!
//! [`lower`] turns MSL into C++, clang++ compiles it against `shim/`, and the library runs a grid one threadgroup after
//! another, with a fiber for each GPU thread. What MSL leaves undefined is an error: a barrier or a SIMD-group operation that
//! not every thread reaches, more than 32 KiB of threadgroup memory, an access outside of a buffer. Threadgroup memory that
//! nothing wrote is NaN, and the order in which threads run between barriers follows a seed, so that a race changes results.
//! Pointers of one address space do not convert to another, which is the compiler's own check.
//!
//! The same lowering makes PTX: [`Target::Nvptx`], [`Compiler::ptx`].

mod compile;
mod device;
mod error;
mod lower;
mod memory;
mod ptx;
mod tokens;

pub use compile::{Compiler, Library, SHIM};
pub use device::MslCpu;
pub use error::Error;
pub use lower::{Binding, Kernel, Target, entry_name, lower};
pub use memory::Guarded;
pub use ptx::PROCESSOR;

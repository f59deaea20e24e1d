//! The seam: what a device must be able to do.

use crate::Error;

/// Memory of the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer(pub u32);

/// A kernel that is ready to run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pipeline(pub u32);

/// A list of launches that the device keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recording(pub u32);

/// A byte of a buffer, and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The buffer.
    pub buffer: Buffer,
    /// Bytes from its start.
    pub offset: usize,
}

impl Buffer {
    /// Its byte `offset`.
    pub fn at(self, offset: usize) -> Place {
        Place { buffer: self, offset }
    }
}

/// One launch of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// The kernel.
    pub pipeline: Pipeline,
    /// Its buffers, from `[[buffer(0)]]` on.
    pub buffers: Vec<Place>,
    /// The bytes of its struct of parameters, which is `[[buffer(n)]]` behind `n` buffers.
    pub params: Vec<u8>,
    /// Threadgroups of the grid.
    pub groups: [u32; 3],
    /// Threads of a threadgroup, in one row.
    pub threads: u32,
}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All that it has.
    pub total: u64,
    /// What may still be taken.
    pub free: u64,
}

/// A GPU, or what stands for one.
///
/// Launches run in the order they are given, each after all writes of the ones before it. Only [`read`](Self::read)
/// waits for them; [`write`](Self::write) is seen by launches given after it, and by none before.
pub trait Device: Send {
    /// Its kind, as `--device` takes it.
    fn kind(&self) -> &'static str;
    /// The chip's own name.
    fn chip(&self) -> String;
    /// Its memory.
    fn memory(&self) -> Result<Memory, Error>;
    /// Takes memory, which holds anything. `what` is for the error. Begins at a multiple of 256 bytes, or at least of 16.
    fn buffer(&mut self, bytes: usize, what: &'static str) -> Result<Buffer, Error>;
    /// Gives memory back once all that was launched is done with it.
    fn release(&mut self, buffer: Buffer) -> Result<(), Error>;
    /// Copies bytes to the device.
    fn write(&mut self, at: Place, bytes: &[u8]) -> Result<(), Error>;
    /// Waits for all that was launched, and copies bytes from the device.
    fn read(&mut self, at: Place, bytes: &mut [u8]) -> Result<(), Error>;
    /// Makes a kernel ready, by its host name; again the same for the same name.
    fn pipeline(&mut self, name: &str) -> Result<Pipeline, Error>;
    /// Launches.
    fn run(&mut self, list: &[Dispatch]) -> Result<(), Error>;
    /// Keeps a list to be launched many times, in whatever form is quickest.
    fn record(&mut self, list: Vec<Dispatch>) -> Result<Recording, Error>;
    /// Launches a list that was kept.
    fn replay(&mut self, recording: Recording) -> Result<(), Error>;
    /// Lets go of a list.
    fn forget(&mut self, recording: Recording) -> Result<(), Error>;
}

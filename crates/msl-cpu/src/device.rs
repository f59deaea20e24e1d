//! The shim as a device of the GPU backend.

use std::collections::HashMap;

use cera_gpu::{Buffer, Device, Dispatch, Error as GpuError, Memory, Pipeline, Place, Recording, kernels};

use crate::memory::Guarded;
use crate::{Compiler, Error, Library};

/// The device's name, in errors too.
const NAME: &str = "msl-cpu";

/// The most memory that buffers may take together: a test that wants more is no test.
const MEMORY: u64 = 16 << 30;

/// A GPU that is this processor, one thread of it.
pub struct MslCpu {
    compiler: Compiler,
    libraries: HashMap<&'static str, Library>,
    /// By [`Pipeline`]: which library, which of its kernels.
    pipelines: Vec<(&'static str, usize)>,
    names: HashMap<String, Pipeline>,
    /// By [`Buffer`]; those given back are empty, and their numbers are taken again.
    buffers: Vec<Option<Guarded>>,
    recordings: Vec<Vec<Dispatch>>,
    seed: u64,
}

impl MslCpu {
    /// A device whose threads run in an order that `seed` picks; 0 is the order of their numbers.
    pub fn new(compiler: Compiler, seed: u64) -> MslCpu {
        MslCpu {
            compiler,
            libraries: HashMap::new(),
            pipelines: Vec::new(),
            names: HashMap::new(),
            buffers: Vec::new(),
            recordings: Vec::new(),
            seed,
        }
    }

    fn buffer_of(&mut self, at: Place, bytes: usize) -> Result<&mut Guarded, GpuError> {
        let buffer = self.buffers.get_mut(at.buffer.0 as usize).and_then(Option::as_mut);
        let buffer = buffer.ok_or_else(|| failed(format!("there is no buffer {}", at.buffer.0)))?;
        match at.offset.checked_add(bytes).filter(|&end| end <= buffer.size()) {
            Some(_) => Ok(buffer),
            None => Err(failed(format!("{bytes} bytes at {} of a buffer of {}", at.offset, buffer.size()))),
        }
    }

    fn dispatch(&mut self, d: &Dispatch) -> Result<(), GpuError> {
        let Some(&(file, kernel)) = self.pipelines.get(d.pipeline.0 as usize) else {
            return Err(failed(format!("there is no pipeline {}", d.pipeline.0)));
        };
        // Parameters lie in front of a guard as buffers do.
        let mut params = Guarded::new(d.params.len()).map_err(|e| failed(e.to_string()))?;
        params.bytes_mut().copy_from_slice(&d.params);
        let mut pointers = Vec::with_capacity(d.buffers.len() + 1);
        for &place in &d.buffers {
            pointers.push(self.buffer_of(place, 0)?.pointer_at(place.offset));
        }
        pointers.push(params.pointer());
        let Some(library) = self.libraries.get(file) else {
            return Err(failed(format!("the kernels of {file} are not compiled")));
        };
        // SAFETY: `run` compares the number of buffers with the kernel's, and each ends on a page that faults.
        let run = unsafe { library.run(kernel, &pointers, d.groups, d.threads, self.seed) };
        run.map_err(|e| failed(e.to_string()))?;
        let own = d.buffers.iter().filter_map(|p| self.buffers.get(p.buffer.0 as usize)?.as_ref());
        if own.chain([&params]).any(|b| !b.intact()) {
            let name = library.kernels().get(kernel).map_or("?", |k| &k.name);
            return Err(failed(format!("kernel {name}: wrote beside a buffer")));
        }
        Ok(())
    }
}

fn failed(why: String) -> GpuError {
    GpuError::Failed { device: NAME, why }
}

impl From<Error> for GpuError {
    fn from(e: Error) -> GpuError {
        failed(e.to_string())
    }
}

impl Device for MslCpu {
    fn kind(&self) -> &'static str {
        NAME
    }

    fn chip(&self) -> String {
        "fibers on one thread".to_owned()
    }

    fn memory(&self) -> Result<Memory, GpuError> {
        let used: u64 = self.buffers.iter().flatten().map(|b| b.size() as u64).sum();
        Ok(Memory { total: MEMORY, free: MEMORY.saturating_sub(used) })
    }

    fn buffer(&mut self, bytes: usize, what: &'static str) -> Result<Buffer, GpuError> {
        if bytes as u64 > self.memory()?.free {
            return Err(GpuError::Memory { what, bytes });
        }
        let memory = Guarded::new(bytes).map_err(|_| GpuError::Memory { what, bytes })?;
        let free = self.buffers.iter().position(Option::is_none);
        let at = free.unwrap_or(self.buffers.len());
        match self.buffers.get_mut(at) {
            Some(place) => *place = Some(memory),
            None => self.buffers.push(Some(memory)),
        }
        Ok(Buffer(at as u32))
    }

    fn release(&mut self, buffer: Buffer) -> Result<(), GpuError> {
        self.buffer_of(buffer.at(0), 0)?;
        if let Some(place) = self.buffers.get_mut(buffer.0 as usize) {
            *place = None;
        }
        Ok(())
    }

    fn write(&mut self, at: Place, bytes: &[u8]) -> Result<(), GpuError> {
        self.buffer_of(at, bytes.len())?.bytes_mut()[at.offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, at: Place, bytes: &mut [u8]) -> Result<(), GpuError> {
        bytes.copy_from_slice(&self.buffer_of(at, bytes.len())?.bytes()[at.offset..][..bytes.len()]);
        Ok(())
    }

    fn pipeline(&mut self, name: &str) -> Result<Pipeline, GpuError> {
        if let Some(&known) = self.names.get(name) {
            return Ok(known);
        }
        let file = kernels::file_of(name).ok_or_else(|| GpuError::NoKernel(name.to_owned()))?;
        if !self.libraries.contains_key(file.name) {
            let library = self.compiler.compile(file.name, &file.source())?;
            self.libraries.insert(file.name, library);
        }
        let kernels = self.libraries.get(file.name).map_or(&[][..], Library::kernels);
        let kernel = kernels.iter().position(|k| k.name == name);
        let kernel = kernel.ok_or_else(|| GpuError::NoKernel(name.to_owned()))?;
        self.pipelines.push((file.name, kernel));
        let pipeline = Pipeline(self.pipelines.len() as u32 - 1);
        self.names.insert(name.to_owned(), pipeline);
        Ok(pipeline)
    }

    fn run(&mut self, list: &[Dispatch]) -> Result<(), GpuError> {
        list.iter().try_for_each(|d| self.dispatch(d))
    }

    fn record(&mut self, list: Vec<Dispatch>) -> Result<Recording, GpuError> {
        self.recordings.push(list);
        Ok(Recording(self.recordings.len() as u32 - 1))
    }

    fn replay(&mut self, recording: Recording) -> Result<(), GpuError> {
        let Some(list) = self.recordings.get_mut(recording.0 as usize) else {
            return Err(failed(format!("there is no recording {}", recording.0)));
        };
        let list = std::mem::take(list);
        let run = self.run(&list);
        if let Some(place) = self.recordings.get_mut(recording.0 as usize) {
            *place = list;
        }
        run
    }

    fn forget(&mut self, recording: Recording) -> Result<(), GpuError> {
        if let Some(list) = self.recordings.get_mut(recording.0 as usize) {
            *list = Vec::new();
        }
        Ok(())
    }
}

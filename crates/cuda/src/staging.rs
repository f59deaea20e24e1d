//! Memory that the GPU copies from by itself while the host goes on.

use std::ffi::c_void;
use std::ptr;

use cera_gpu::Error;
use cudarc::driver::sys;

use crate::driver::{check, failed};

/// Bytes of it.
const BYTES: usize = 32 << 20;

/// A ring of page-locked memory.
pub(crate) struct Staging {
    memory: *mut u8,
    used: usize,
}

impl Staging {
    /// Takes the memory; the device's context must be current.
    pub(crate) fn new() -> Result<Staging, Error> {
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: the driver is started, and the pointer is to a pointer.
        check(unsafe { sys::cuMemHostAlloc(&mut memory, BYTES, 0) }, "page-locked memory")?;
        Ok(Staging { memory: memory.cast(), used: 0 })
    }

    /// Copies bytes to the device, behind all that the stream has been given.
    pub(crate) fn copy(&mut self, to: u64, bytes: &[u8], stream: sys::CUstream) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes.len() {
            if self.used == BYTES {
                // SAFETY: the stream is the device's. What was staged is copied when it is done.
                check(unsafe { sys::cuStreamSynchronize(stream) }, "copying to the GPU")?;
                self.used = 0;
            }
            let part = &bytes[done..][..(bytes.len() - done).min(BYTES - self.used).min(BYTES / 4)];
            if self.used + part.len() > BYTES {
                return Err(failed("more was staged than there is room for".into()));
            }
            // SAFETY: the range lies within the ring, and nothing reads it: the stream was waited for since it was used.
            let copied = unsafe {
                let place = self.memory.add(self.used);
                ptr::copy_nonoverlapping(part.as_ptr(), place, part.len());
                sys::cuMemcpyHtoDAsync_v2(to + done as u64, place.cast(), part.len(), stream)
            };
            check(copied, "copying to the GPU")?;
            done += part.len();
            self.used = (self.used + part.len()).next_multiple_of(64).min(BYTES);
        }
        Ok(())
    }

    /// Gives the memory back. Nothing may be left to copy.
    pub(crate) fn free(&mut self) {
        // SAFETY: the memory is this ring's, and no copy is under way.
        unsafe { sys::cuMemFreeHost(self.memory.cast()) };
    }
}

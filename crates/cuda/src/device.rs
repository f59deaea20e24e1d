//! The device: memory, a module of kernels, one stream, and graphs of launches.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;

use cera_gpu::{Buffer, Device, Dispatch, Error, Memory, Pipeline, Place, Recording};
use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgraphExec, CUmodule, CUresult, CUstream,
};

use crate::NAME;
use crate::driver::{GpuInfo, check, failed, gpu};
use crate::ptx::module_of;
use crate::staging::Staging;

/// Kernels for compute capability 8.0 and all that came after it.
const PTX: &str = include_str!("../ptx/sm_80.ptx");

/// An NVIDIA GPU.
pub struct Cuda {
    info: GpuInfo,
    device: CUdevice,
    context: CUcontext,
    /// One for each kernel: the driver compiles what is asked for, and nothing else.
    modules: Vec<CUmodule>,
    stream: CUstream,
    staging: Option<Staging>,
    functions: Vec<CUfunction>,
    names: HashMap<String, Pipeline>,
    /// By [`Buffer`], with sizes; those given back are empty, and their numbers are taken again.
    buffers: Vec<Option<(CUdeviceptr, usize)>>,
    graphs: Vec<Option<CUgraphExec>>,
}

// SAFETY: the driver's handles may be used from any thread, one at a time; every method makes the context current first.
unsafe impl Send for Cuda {}

impl Cuda {
    /// GPU number `index`.
    ///
    /// # Errors
    /// There is no driver or no such GPU, it is too old, or its memory is taken.
    pub fn new(index: usize) -> Result<Cuda, Error> {
        let info = gpu(index)?;
        let mut cuda = Cuda {
            info,
            device: 0,
            context: ptr::null_mut(),
            modules: Vec::new(),
            stream: ptr::null_mut(),
            staging: None,
            functions: Vec::new(),
            names: HashMap::new(),
            buffers: Vec::new(),
            graphs: Vec::new(),
        };
        // SAFETY: the driver is started, and every pointer is to what the call writes.
        unsafe {
            check(sys::cuDeviceGet(&mut cuda.device, index as i32), "the GPU")?;
            check(sys::cuDevicePrimaryCtxRetain(&mut cuda.context, cuda.device), "the GPU's context")?;
        }
        cuda.current()?;
        // SAFETY: the pointer is to what the call writes.
        unsafe {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check(sys::cuStreamCreate(&mut cuda.stream, flags), "a stream")?;
        }
        cuda.staging = Some(Staging::new()?);
        Ok(cuda)
    }

    /// Makes this thread's calls go to this GPU.
    fn current(&self) -> Result<(), Error> {
        // SAFETY: the context is held until this device ends.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "the GPU's context")
    }

    fn wait(&self) -> Result<(), Error> {
        // SAFETY: the stream is this device's.
        check(unsafe { sys::cuStreamSynchronize(self.stream) }, "a step")
    }

    fn place(&self, at: Place, bytes: usize) -> Result<CUdeviceptr, Error> {
        let buffer = self.buffers.get(at.buffer.0 as usize).copied().flatten();
        let (start, size) = buffer.ok_or_else(|| failed(format!("there is no buffer {}", at.buffer.0)))?;
        match at.offset.checked_add(bytes).filter(|&end| end <= size) {
            Some(_) => Ok(start + at.offset as u64),
            None => Err(failed(format!("{bytes} bytes at {} of a buffer of {size}", at.offset))),
        }
    }

    fn launch(&self, d: &Dispatch) -> Result<(), Error> {
        let function = self.functions.get(d.pipeline.0 as usize);
        let &function = function.ok_or_else(|| failed(format!("there is no pipeline {}", d.pipeline.0)))?;
        let mut places = Vec::with_capacity(d.buffers.len());
        for &at in &d.buffers {
            places.push(self.place(at, 0)?);
        }
        let mut arguments: Vec<*mut c_void> =
            places.iter_mut().map(|place| ptr::from_mut(place).cast()).collect();
        arguments.push(d.params.as_ptr().cast_mut().cast());
        let [x, y, z] = d.groups;
        // SAFETY: the kernel takes its buffers in order and then its struct, which the op layer brings in that order; all
        // are read before the call returns.
        let launched = unsafe {
            sys::cuLaunchKernel(
                function,
                x,
                y,
                z,
                d.threads,
                1,
                1,
                0,
                self.stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        if launched == CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        let named = self.names.iter().find(|(_, p)| **p == d.pipeline).map_or("?", |(name, _)| name);
        check(launched, &format!("launching {named} over {:?}", d.groups))
    }
}

impl Device for Cuda {
    fn kind(&self) -> &'static str {
        NAME
    }

    fn chip(&self) -> String {
        self.info.chip.clone()
    }

    fn memory(&self) -> Result<Memory, Error> {
        self.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to numbers.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "the GPU's memory")?;
        Ok(Memory { total: total as u64, free: free as u64 })
    }

    fn buffer(&mut self, bytes: usize, what: &'static str) -> Result<Buffer, Error> {
        self.current()?;
        let mut start = 0;
        // SAFETY: the pointer is to an address of the GPU.
        let taken = unsafe { sys::cuMemAlloc_v2(&mut start, bytes.max(1)) };
        if taken == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::Memory { what, bytes });
        }
        check(taken, what)?;
        let at = self.buffers.iter().position(Option::is_none).unwrap_or(self.buffers.len());
        match self.buffers.get_mut(at) {
            Some(free) => *free = Some((start, bytes)),
            None => self.buffers.push(Some((start, bytes))),
        }
        Ok(Buffer(at as u32))
    }

    fn release(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.current()?;
        let start = self.place(buffer.at(0), 0)?;
        self.wait()?;
        // SAFETY: the memory is this device's, and nothing that was launched is still at it.
        check(unsafe { sys::cuMemFree_v2(start) }, "giving memory back")?;
        if let Some(place) = self.buffers.get_mut(buffer.0 as usize) {
            *place = None;
        }
        Ok(())
    }

    fn write(&mut self, at: Place, bytes: &[u8]) -> Result<(), Error> {
        self.current()?;
        let to = self.place(at, bytes.len())?;
        let stream = self.stream;
        match &mut self.staging {
            Some(staging) => staging.copy(to, bytes, stream),
            None => Err(failed("the device has ended".into())),
        }
    }

    fn read(&mut self, at: Place, bytes: &mut [u8]) -> Result<(), Error> {
        self.current()?;
        let from = self.place(at, bytes.len())?;
        // SAFETY: the device has that many bytes there, as does the slice, which is waited for.
        let copied =
            unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, bytes.len(), self.stream) };
        check(copied, "copying from the GPU")?;
        self.wait()
    }

    fn pipeline(&mut self, name: &str) -> Result<Pipeline, Error> {
        if let Some(&known) = self.names.get(name) {
            return Ok(known);
        }
        self.current()?;
        let unknown = || Error::NoKernel(name.to_owned());
        let entry = format!("msl_{name}");
        let ptx = module_of(PTX, &entry).ok_or_else(unknown)?;
        let [ptx, entry] = [ptx, entry].map(CString::new).map(|text| text.map_err(|_| unknown()));
        let (ptx, entry) = (ptx?, entry?);
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: both texts end with a zero, the pointers are to what the calls write.
        check(unsafe { sys::cuModuleLoadData(&mut module, ptx.as_ptr().cast()) }, name)?;
        self.modules.push(module);
        // SAFETY: as above.
        check(unsafe { sys::cuModuleGetFunction(&mut function, module, entry.as_ptr()) }, name)?;
        let pipeline = Pipeline(self.functions.len() as u32);
        self.functions.push(function);
        self.names.insert(name.to_owned(), pipeline);
        Ok(pipeline)
    }

    fn run(&mut self, list: &[Dispatch]) -> Result<(), Error> {
        self.current()?;
        list.iter().try_for_each(|d| self.launch(d))
    }

    fn record(&mut self, list: Vec<Dispatch>) -> Result<Recording, Error> {
        self.current()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this device's.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) }, "recording a step")?;
        let launched = list.iter().try_for_each(|d| self.launch(d));
        let mut graph = ptr::null_mut();
        // SAFETY: the recording has begun, and ends here whatever was launched.
        let ended = unsafe { sys::cuStreamEndCapture(self.stream, &mut graph) };
        launched?;
        check(ended, "recording a step")?;
        let mut exec = ptr::null_mut();
        // SAFETY: the graph is whole; it is not needed once it is made ready.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0);
            sys::cuGraphDestroy(graph);
            made
        };
        check(made, "a recorded step")?;
        let at = self.graphs.iter().position(Option::is_none).unwrap_or(self.graphs.len());
        match self.graphs.get_mut(at) {
            Some(free) => *free = Some(exec),
            None => self.graphs.push(Some(exec)),
        }
        Ok(Recording(at as u32))
    }

    fn replay(&mut self, recording: Recording) -> Result<(), Error> {
        self.current()?;
        let graph = self.graphs.get(recording.0 as usize).copied().flatten();
        let graph = graph.ok_or_else(|| failed(format!("there is no recording {}", recording.0)))?;
        // SAFETY: the graph is ready, and the memory that it names is held as long as it is.
        check(unsafe { sys::cuGraphLaunch(graph, self.stream) }, "a recorded step")
    }

    fn forget(&mut self, recording: Recording) -> Result<(), Error> {
        self.current()?;
        let Some(graph) = self.graphs.get_mut(recording.0 as usize).and_then(Option::take) else {
            return Ok(());
        };
        self.wait()?;
        // SAFETY: the graph is this device's, and no longer runs.
        check(unsafe { sys::cuGraphExecDestroy(graph) }, "a recorded step")
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.current().is_err() || self.context.is_null() {
            return;
        }
        // SAFETY: all of it is this device's, and nothing runs once the stream is waited for. Errors have nobody to go to.
        unsafe {
            if !self.stream.is_null() {
                sys::cuStreamSynchronize(self.stream);
            }
            for graph in self.graphs.drain(..).flatten() {
                sys::cuGraphExecDestroy(graph);
            }
            for (start, _) in self.buffers.drain(..).flatten() {
                sys::cuMemFree_v2(start);
            }
            if let Some(staging) = &mut self.staging {
                staging.free();
            }
            if !self.stream.is_null() {
                sys::cuStreamDestroy_v2(self.stream);
            }
            for module in self.modules.drain(..) {
                sys::cuModuleUnload(module);
            }
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

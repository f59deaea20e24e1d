//! The driver: whether it is there, what it says of its GPUs, and its errors.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use cera_gpu::Error;
use cudarc::driver::sys::{self, CUresult};

use crate::NAME;

/// The oldest driver that works, as it gives its version: of CUDA 12.0, which came with the instructions of sm_90a.
const OLDEST: c_int = 12_000;

/// The oldest compute capability that kernels are compiled for.
const LEAST: (u32, u32) = (8, 0);

/// What the driver says of a GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuInfo {
    /// Its number.
    pub index: usize,
    /// The chip's name.
    pub chip: String,
    /// Its compute capability.
    pub capability: (u32, u32),
    /// Its memory in bytes.
    pub memory: u64,
    /// Multiprocessors.
    pub processors: u32,
}

pub(crate) fn failed(why: String) -> Error {
    Error::Failed { device: NAME, why }
}

/// An error where a call of the driver failed; `what` it was for.
pub(crate) fn check(result: CUresult, what: &str) -> Result<(), Error> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text: *const c_char = ptr::null();
    // SAFETY: the driver was found, or nothing would have called it; it writes a pointer to a text of its own.
    let known =
        unsafe { sys::cuGetErrorString(result, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null();
    // SAFETY: such texts end with a zero and stay.
    let text = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "unknown error".into() };
    Err(failed(format!("{what}: {text} ({})", result as u32)))
}

/// Loads the driver.
fn start() -> Result<(), Error> {
    // SAFETY: loads a library by the names of the driver's, and nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(failed("no NVIDIA driver was found (libcuda)".into()));
    }
    let mut version = 0;
    // SAFETY: the driver is there; these two calls are as old as it may be, and the pointer is to a number.
    let (started, known) = unsafe { (sys::cuInit(0), sys::cuDriverGetVersion(&mut version)) };
    check(known, "the driver's version")?;
    check(started, "starting the driver")?;
    if version < OLDEST {
        let shown = |v: c_int| format!("{}.{}", v / 1000, v % 1000 / 10);
        let (has, needs) = (shown(version), shown(OLDEST));
        return Err(failed(format!("the driver is of CUDA {has}, and {needs} is the oldest that works")));
    }
    Ok(())
}

/// The GPUs that the driver knows.
///
/// # Errors
/// There is no driver, or it is too old or broken.
pub fn gpus() -> Result<Vec<GpuInfo>, Error> {
    start()?;
    let mut count = 0;
    // SAFETY: the driver is started, and the pointer is to a number.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, "counting GPUs")?;
    (0..count).map(info).collect()
}

fn info(index: c_int) -> Result<GpuInfo, Error> {
    use sys::CUdevice_attribute as Attribute;
    let mut device = 0;
    let mut name = [0 as c_char; 256];
    let mut memory = 0;
    // SAFETY: the driver is started; every pointer is to what the call writes, and the name's room is said.
    let results = unsafe {
        [
            sys::cuDeviceGet(&mut device, index),
            sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device),
            sys::cuDeviceTotalMem_v2(&mut memory, device),
        ]
    };
    for result in results {
        check(result, &format!("GPU {index}"))?;
    }
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: as above.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }, "a GPU's attributes")?;
        Ok::<_, Error>(u32::try_from(value).unwrap_or(0))
    };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    // SAFETY: the driver ended the name with a zero, within the array.
    let chip = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(GpuInfo { index: index as usize, chip, capability: (major, minor), memory: memory as u64, processors })
}

/// A GPU by its number, which must be one that kernels run on.
pub(crate) fn gpu(index: usize) -> Result<GpuInfo, Error> {
    let gpus = gpus()?;
    let count = gpus.len();
    let gpu = gpus.into_iter().nth(index);
    let gpu = gpu.ok_or_else(|| failed(format!("there is no GPU {index}: the driver has {count}")))?;
    if gpu.capability < LEAST {
        let (major, minor) = gpu.capability;
        return Err(failed(format!(
            "{} has compute capability {major}.{minor}, and {}.{} is the least that works",
            gpu.chip, LEAST.0, LEAST.1
        )));
    }
    Ok(gpu)
}

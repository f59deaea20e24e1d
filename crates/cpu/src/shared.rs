//! Memory that the threads of a step write in disjoint parts.

use std::cell::UnsafeCell;
use std::ops::Range;

use bytemuck::Zeroable;
use cera_backend::Error;

/// A buffer that several threads use between barriers, each its own part.
pub struct Shared<T>(Box<[UnsafeCell<T>]>);

// SAFETY: access is by `read`, `write` and `put`, whose callers promise that no two threads touch the same
// element without a barrier between, unless all only read.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T: Zeroable> Shared<T> {
    /// `len` zeros, untouched until used; `None` where there is no memory for them.
    pub fn zeroed(len: usize) -> Option<Self> {
        let zeros: Box<[T]> = bytemuck::allocation::try_zeroed_slice_box(len).ok()?;
        // SAFETY: `UnsafeCell<T>` has the layout of `T`.
        Some(Shared(unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<T>]) }))
    }
}

impl<T> Shared<T> {
    /// From values.
    pub fn new(values: Vec<T>) -> Self {
        Shared(values.into_iter().map(UnsafeCell::new).collect())
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The elements of a range.
    ///
    /// # Safety
    /// No thread writes any of them while the slice lives.
    pub unsafe fn read(&self, range: Range<usize>) -> &[T] {
        let part = &self.0[range];
        // SAFETY: the caller's promise; `UnsafeCell<T>` has the layout of `T`.
        unsafe { std::slice::from_raw_parts(part.as_ptr().cast(), part.len()) }
    }

    /// The elements of a range, to write.
    ///
    /// # Safety
    /// Nobody else reads or writes any of them while the slice lives.
    #[allow(clippy::mut_from_ref)] // the promise is what makes it sound
    pub unsafe fn write(&self, range: Range<usize>) -> &mut [T] {
        let part = &self.0[range];
        // SAFETY: the caller's promise; an `UnsafeCell` may be written through a shared reference.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(part.as_ptr()), part.len()) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// Nobody else reads or writes it at the same time.
    pub unsafe fn put(&self, at: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.0[at].get() = value }
    }
}

/// Zeros for `factors` multiplied; an error says what they were for.
pub fn memory<T: Zeroable>(what: &'static str, factors: &[usize]) -> Result<Shared<T>, Error> {
    let len = factors.iter().try_fold(1usize, |n, f| n.checked_mul(*f));
    let bytes = len.and_then(|n| n.checked_mul(size_of::<T>()));
    match (len, bytes) {
        (Some(len), Some(bytes)) => Shared::zeroed(len).ok_or(Error::Memory { what, bytes }),
        _ => Err(Error::Memory { what, bytes: usize::MAX }),
    }
}

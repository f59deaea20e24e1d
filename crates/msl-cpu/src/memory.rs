//! Buffers whose end lies on a page that nobody may touch.

use memmap2::{MmapMut, MmapOptions};

use crate::Error;

/// As large as the pages of any x86-64 Linux.
const PAGE: usize = 4096;
/// What a buffer's address is a multiple of: the widest load of a kernel.
const ALIGN: usize = 16;
/// What lies around a buffer within its pages, to be found there after each launch.
const CANARY: u8 = 0xa5;

/// Memory of a buffer: right in front of it and behind it are canaries up to the page's end, and beyond these pages that
/// fault.
pub struct Guarded {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl Guarded {
    /// `bytes` bytes that nothing has written: NaN in every floating-point format.
    pub fn new(bytes: usize) -> Result<Guarded, Error> {
        let inner = bytes.next_multiple_of(ALIGN).next_multiple_of(PAGE).max(PAGE);
        let fault =
            |e: std::io::Error| Error::File { what: format!("memory of {bytes} bytes"), why: e.to_string() };
        let mut map = MmapOptions::new().len(inner + 2 * PAGE).map_anon().map_err(fault)?;
        let start = PAGE + inner - bytes.next_multiple_of(ALIGN);
        map[PAGE..PAGE + inner].fill(CANARY);
        map[start..start + bytes].fill(0xff);
        for page in [0, PAGE + inner] {
            // SAFETY: the page lies within the mapping, nothing refers to it, and nothing but a kernel at fault will.
            let failed = unsafe { libc::mprotect(map.as_mut_ptr().add(page).cast(), PAGE, libc::PROT_NONE) };
            if failed != 0 {
                return Err(fault(std::io::Error::last_os_error()));
            }
        }
        Ok(Guarded { map, start, bytes })
    }

    /// Memory that holds these bytes.
    ///
    /// # Panics
    /// The system gives none.
    pub fn of(bytes: &[u8]) -> Guarded {
        let mut memory = Guarded::new(bytes.len()).expect("a few pages");
        memory.bytes_mut().copy_from_slice(bytes);
        memory
    }

    /// The length in bytes.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.bytes]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.bytes]
    }

    /// Where a kernel finds the byte `offset`.
    pub fn pointer_at(&mut self, offset: usize) -> *mut std::ffi::c_void {
        self.bytes_mut()[offset..].as_mut_ptr().cast()
    }

    /// Where a kernel finds its first byte.
    pub fn pointer(&mut self) -> *mut std::ffi::c_void {
        self.pointer_at(0)
    }

    /// Whether nothing was written beside the buffer.
    pub fn intact(&self) -> bool {
        let end = self.start + self.bytes;
        let behind = end..end.next_multiple_of(PAGE).min(self.map.len() - PAGE);
        [PAGE..self.start, behind].into_iter().all(|r| self.map[r].iter().all(|&b| b == CANARY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canaries_stand_on_both_sides() {
        for bytes in [0, 4, 16, 100, 4096, 5000] {
            let mut m = Guarded::new(bytes).unwrap();
            assert_eq!((m.size(), m.bytes().as_ptr() as usize % ALIGN), (bytes, 0));
            assert!(m.intact());
            m.bytes_mut().fill(1);
            assert!(m.intact());
            let (start, end) = (m.start, m.start + bytes);
            if bytes < 4096 {
                m.map[start - 1] = 0;
                assert!(!m.intact());
                m.map[start - 1] = CANARY;
            }
            if bytes % ALIGN != 0 {
                m.map[end] = 0;
                assert!(!m.intact());
            }
        }
    }
}

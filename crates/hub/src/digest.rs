//! SHA-256 as this crate writes it: 64 lower-case hexadecimal digits.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// A file being written, with the hash and the count of all that it holds.
pub(crate) struct Hashing {
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Hashing {
    /// Goes on behind what `file` (open for reading and writing) already holds, which is hashed first.
    pub(crate) fn resume(mut file: File) -> io::Result<Self> {
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 16];
        file.rewind()?;
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                return Ok(Self { file, hash, bytes });
            }
            hash.update(buffer.get(..n).unwrap_or_default());
            bytes += n as u64;
        }
    }

    /// Empties the file and begins again.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.hash = Sha256::new();
        self.bytes = 0;
        Ok(())
    }

    pub(crate) fn append(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all(chunk)?;
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
        Ok(())
    }

    /// Bytes in the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, and the hash of all that it holds.
    pub(crate) fn finish(self) -> (File, String) {
        let hex = self.hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        (self.file, hex)
    }
}

/// Whether `text` is a SHA-256 as this crate writes it; such a text is also a safe file name.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

//! Files in parts: `NAME-00001-of-00003.gguf` and so on, as llama.cpp's `gguf-split` writes them.
//!
//! Each part is a GGUF file with its own tensors. The first has the model's keys. All have `split.no`, its number from
//! 0, `split.count`, and `split.tensors.count`, the tensors of all parts together.

use std::path::{Path, PathBuf};

use crate::{Error, Metadata};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// What a part says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 0.
    pub no: u64,
    /// At least 2.
    pub count: u64,
    /// Tensors of all parts.
    pub tensors: Option<u64>,
}

impl Part {
    /// What these keys say; `None` for a file that is whole.
    pub fn read(metadata: &Metadata) -> Result<Option<Self>, Error> {
        let count = metadata.u64(COUNT)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let no = metadata.need::<u64>(NO)?;
        if no >= count {
            let value = no.to_string();
            return Err(Error::OutOfRange { key: NO.into(), value, wanted: "number below `split.count`" });
        }
        Ok(Some(Self { no, count, tensors: metadata.u64(TENSORS)? }))
    }

    /// Where the part of each number is, given the path of this one. The count may be any: nothing is made of it here.
    pub fn places(self, path: &Path) -> Result<impl Fn(u64) -> PathBuf, Error> {
        let end = move |no: u64| format!("-{:05}-of-{:05}.gguf", no + 1, self.count);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.strip_suffix(&end(self.no)).ok_or_else(|| Error::SplitName {
            file: format!("{path:?}"),
            part: self.no + 1,
            parts: self.count,
            end: end(self.no),
        })?;
        let (path, stem) = (path.to_owned(), stem.to_owned());
        Ok(move |no| path.with_file_name(format!("{stem}{}", end(no))))
    }

    /// Whether the file at `path`, which is to be part `no` of the same model, is.
    pub fn check(&self, path: &Path, no: u64, found: Option<Self>) -> Result<(), Error> {
        let wanted = Self { no, ..*self };
        if found == Some(wanted) {
            return Ok(());
        }
        let shown = |part: &Self| {
            let tensors = part.tensors.map(|n| format!(" with {n} tensors in all")).unwrap_or_default();
            format!("part {} of {}{tensors}", part.no + 1, part.count)
        };
        let found = found.as_ref().map_or("no part of anything".into(), shown);
        Err(Error::SplitPart { path: path.into(), found, wanted: shown(&wanted) })
    }
}

/// The model's keys without those that only say how it was cut.
pub(crate) fn joined(metadata: Metadata) -> Metadata {
    metadata.without(&[NO, COUNT, TENSORS])
}

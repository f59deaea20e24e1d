//! A model as a GGUF file.

use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::Path;

use cera_gguf::{Checkpoint, Writer};

use crate::Error;

/// Told how much of the tensors is written, in bytes of the file, and of how much; says whether to go on.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Numbers that are made and written at a time.
const SLAB: u64 = 1 << 23;

/// Writes a model to a file. The file is there once it is whole, and takes the place of one that was there before; until then
/// it has another name in the same folder. Gives its bytes.
///
/// # Errors
/// [`Error::Io`] for the file, [`Error::File`] for what cannot be read or made, [`Error::Stopped`]; nothing is left then.
pub fn save(model: &dyn Checkpoint, path: &Path, progress: Progress<'_>) -> Result<u64, Error> {
    let io = |source| Error::Io { path: path.into(), source };
    let mut writer = Writer::new(model.metadata().clone())?;
    let mut total = 0u64;
    for t in model.tensors() {
        writer.tensor(&t.name, t.ty, &t.dims)?;
        total = total.saturating_add(t.bytes);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cera-").suffix(".gguf.part");
    // As any file that is written: what the process's mask leaves of these.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let part = builder.tempfile_in(folder).map_err(io)?;
    let written = |error| match error {
        cera_gguf::Error::Write(source) => Error::Io { path: path.into(), source },
        other => other.into(),
    };
    let mut body = writer.begin(BufWriter::with_capacity(1 << 20, part)).map_err(written)?;
    let mut done = 0;
    for t in model.tensors() {
        let rows = t.rows();
        let each = (SLAB / t.cols().max(1)).max(1);
        let mut first = 0;
        while first < rows {
            let count = each.min(rows - first);
            let bytes = model.rows(t, first, count)?;
            body.write(&bytes).map_err(written)?;
            first += count;
            done += bytes.len() as u64;
            if progress(done, total).is_break() {
                return Err(Error::Stopped);
            }
        }
        model.release(t);
    }
    let part = body.finish().map_err(written)?.into_inner().map_err(|e| io(e.into_error()))?;
    part.as_file().sync_all().map_err(io)?;
    let file: File = part.persist(path).map_err(|e| io(e.error))?;
    Ok(file.metadata().map_err(io)?.len())
}

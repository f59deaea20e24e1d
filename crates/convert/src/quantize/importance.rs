//! Importance matrices: how much each column of a matrix counts, measured on a text.
//!
//! llama.cpp's imatrix writes two forms of the same: a list of arrays (`.dat`), and a GGUF file of sums of squares and of
//! counts (`tools/imatrix` and `common/imatrix-loader.cpp` of llama.cpp).

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use cera_gguf::{Gguf, TensorInfo, shown};
use cera_quant::Type;

use crate::Error;

/// Mean squares of the activations that met each column of each matrix.
#[derive(Debug, Clone)]
pub struct Importances {
    /// The file, as it was named.
    pub(super) file: String,
    /// The first of the texts that they were measured on.
    pub(super) dataset: Option<String>,
    /// Pieces of text that went into it, where that is said.
    pub(super) chunks: u32,
    by_tensor: HashMap<String, Vec<f32>>,
}

/// Longest file: the largest models have some hundred million columns, experts included.
const MAX_BYTES: u64 = 8 << 30;

impl Importances {
    /// Reads a file of either form.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::TooLarge`], [`Error::File`], and [`Error::Importances`] for what is no importance.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.into(), source };
        let found = fs::metadata(path).map_err(io)?;
        if !found.is_file() {
            return Err(cera_gguf::Error::NotAFile { path: path.into(), kind: "something else" }.into());
        }
        if found.len() > MAX_BYTES {
            return Err(Error::TooLarge { path: path.into(), bytes: found.len(), most: MAX_BYTES });
        }
        let bytes = fs::read(path).map_err(io)?;
        let file = path.to_string_lossy().into_owned();
        let read = if bytes.starts_with(b"GGUF") {
            from_gguf(&Gguf::from_bytes(bytes)?, file)?
        } else {
            from_list(&bytes, file)?
        };
        if read.by_tensor.is_empty() {
            return Err(read.fault("it has no importances"));
        }
        for (tensor, all) in &read.by_tensor {
            if let Some(bad) = all.iter().find(|v| !v.is_finite() || **v < 0.0) {
                return Err(read.fault(format!("an importance of {} is {bad}", shown(tensor))));
            }
        }
        Ok(read)
    }

    /// Keeps those of some tensors.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.by_tensor.retain(|tensor, _| keep(tensor));
    }

    /// Number of tensors that have some.
    pub fn len(&self) -> usize {
        self.by_tensor.len()
    }

    /// Whether no tensor has any.
    pub fn is_empty(&self) -> bool {
        self.by_tensor.is_empty()
    }

    /// Those of a tensor: for each of its matrices, one for each column. `None` where there are none, and of embeddings
    /// also where there are not as many: their activations are tokens.
    ///
    /// # Errors
    /// [`Error::Importances`] where another tensor's are not as many.
    pub(super) fn of(&self, t: &TensorInfo) -> Result<Option<&[f32]>, Error> {
        let Some(all) = self.by_tensor.get(&t.name) else { return Ok(None) };
        let wanted = t.dims.get(2).copied().unwrap_or(1).saturating_mul(t.cols());
        if all.len() as u64 == wanted {
            return Ok(Some(all));
        }
        if t.name == "token_embd.weight" || t.name == "per_layer_token_embd.weight" {
            return Ok(None);
        }
        let (found, name) = (all.len(), shown(&t.name));
        Err(self.fault(format!("it has {found} importances of {name}, which has {wanted} columns")))
    }

    fn fault(&self, what: impl Into<String>) -> Error {
        Error::Importances { file: self.file.clone(), what: what.into() }
    }
}

/// Sums of squares and counts as tensors `NAME.in_sum2` and `NAME.counts`, one count for each matrix of a tensor.
fn from_gguf(gguf: &Gguf, file: String) -> Result<Importances, Error> {
    const KEYS: [&str; 3] = ["imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"];
    let keys = gguf.metadata();
    for key in KEYS {
        if keys.get(key).is_none() {
            return Err(cera_gguf::Error::Missing { key: key.into() }.into());
        }
    }
    let dataset = keys.strings(KEYS[0])?.and_then(|all| all.first().cloned());
    let chunks = keys.need::<u32>(KEYS[1])?;
    let mut read = Importances { file, dataset, chunks, by_tensor: HashMap::new() };
    let numbers = |t: &TensorInfo| {
        let mut out = vec![0.0; t.bytes as usize / size_of::<f32>()];
        let plain = t.ty == Type::F32 && cera_quant::decode(t.ty, gguf.tensor_bytes(t), &mut out).is_ok();
        plain.then_some(out)
    };
    for t in gguf.tensors() {
        let (name, of_sums) = match (t.name.strip_suffix(".in_sum2"), t.name.strip_suffix(".counts")) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => continue,
        };
        let other = gguf.tensor(&format!("{name}{}", if of_sums { ".counts" } else { ".in_sum2" }));
        let Some(other) = other else {
            return Err(read.fault(format!("{} has sums or counts, but not both", shown(name))));
        };
        if !of_sums {
            continue;
        }
        let (Some(sums), Some(counts)) = (numbers(t), numbers(other)) else {
            return Err(read.fault(format!("sums or counts of {} are not F32", shown(name))));
        };
        if counts.is_empty() || !sums.len().is_multiple_of(counts.len()) {
            let (sums, counts) = (sums.len(), counts.len());
            return Err(read.fault(format!("{} has {sums} sums and {counts} counts", shown(name))));
        }
        let columns = sums.len() / counts.len();
        let of_matrix = |(sums, count): (&[f32], &f32)| {
            let count = count.round();
            // Of an expert that no token chose nothing is known.
            sums.iter().map(|sum| if count > 0.0 { sum / count } else { 1.0 }).collect::<Vec<f32>>()
        };
        let means = sums.chunks(columns.max(1)).zip(&counts).flat_map(of_matrix).collect();
        read.by_tensor.insert(name.into(), means);
    }
    Ok(read)
}

/// A list: how many, then for each the name's length, the name, by how much to divide, how many numbers, the numbers; and
/// behind all of them, in newer files, the number of pieces of text and the text's name. Integers are of 32 bits.
fn from_list(bytes: &[u8], file: String) -> Result<Importances, Error> {
    let mut read = Importances { file, dataset: None, chunks: 0, by_tensor: HashMap::new() };
    let mut rest = bytes;
    let count = number(&mut rest).filter(|&n| n > 0);
    let count = count.ok_or_else(|| read.fault("it is no file of importances"))?;
    for entry in 1..=count {
        let cut = || read.fault(format!("it ends within entry {entry} of {count}, or is none"));
        let name = text(&mut rest).ok_or_else(cut)?;
        let calls = number(&mut rest).ok_or_else(cut)?;
        let len =
            number(&mut rest).and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0).ok_or_else(cut)?;
        let data = take(&mut rest, len.checked_mul(4).ok_or_else(cut)?).ok_or_else(cut)?;
        let by = if calls > 0 { calls as f32 } else { 1.0 };
        let means = data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b) / by).collect();
        read.by_tensor.insert(name, means);
    }
    if !rest.is_empty() {
        read.chunks = number(&mut rest).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        read.dataset = text(&mut rest).filter(|text| !text.is_empty());
    }
    Ok(read)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (some, others) = rest.split_at_checked(len)?;
    *rest = others;
    Some(some)
}

fn number(rest: &mut &[u8]) -> Option<i32> {
    take(rest, 4)?.try_into().ok().map(i32::from_le_bytes)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(number(rest)?).ok()?;
    String::from_utf8(take(rest, len)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use cera_gguf::{Metadata, Writer};

    use super::*;

    fn open(bytes: &[u8]) -> Result<Importances, Error> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Importances::open(file.path())
    }

    fn list(entries: &[(&str, i32, &[f32])], tail: &[u8]) -> Vec<u8> {
        let mut out = (entries.len() as i32).to_le_bytes().to_vec();
        for (name, calls, numbers) in entries {
            out.extend((name.len() as i32).to_le_bytes());
            out.extend(name.as_bytes());
            out.extend(calls.to_le_bytes());
            out.extend((numbers.len() as i32).to_le_bytes());
            numbers.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        out.extend(tail);
        out
    }

    fn tensor(name: &str, dims: &[u64]) -> TensorInfo {
        TensorInfo { name: name.into(), ty: Type::F32, dims: dims.into(), part: 0, offset: 0, bytes: 0 }
    }

    #[test]
    fn a_list_is_divided_by_its_calls() {
        let bytes = list(&[("a", 4, &[2.0, 8.0]), ("b", 0, &[3.0])], b"\x07\0\0\0\x05\0\0\0words");
        let read = open(&bytes).unwrap();
        assert_eq!((read.chunks, read.dataset.as_deref(), read.len()), (7, Some("words"), 2));
        assert_eq!(read.of(&tensor("a", &[2, 9])).unwrap(), Some(&[0.5, 2.0][..]));
        assert_eq!(read.of(&tensor("b", &[1])).unwrap(), Some(&[3.0][..]));
        assert_eq!(read.of(&tensor("c", &[1])).unwrap(), None);
        let error = read.of(&tensor("a", &[3, 9])).unwrap_err().to_string();
        assert!(error.contains("2 importances") && error.contains("3 columns"), "{error}");
    }

    #[test]
    fn every_cut_of_a_list_is_an_error() {
        let bytes = list(&[("a", 4, &[2.0, 8.0])], b"");
        assert!(open(&bytes).is_ok());
        for len in 0..bytes.len() {
            assert!(matches!(open(&bytes[..len]), Err(Error::Importances { .. })), "{len}");
        }
        // A length that is not there is not allocated either.
        let claims = [&bytes[..13], &i32::MAX.to_le_bytes()].concat();
        assert!(matches!(open(&claims), Err(Error::Importances { .. })));
    }

    #[test]
    fn what_is_no_importance_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, -1.0] {
            let error = open(&list(&[("blk", 1, &[1.0, bad])], b"")).unwrap_err().to_string();
            assert!(error.contains("blk"), "{error}");
        }
    }

    #[test]
    fn sums_are_divided_by_counts_matrix_by_matrix() {
        let gguf = |tensors: &[(&str, &[f32])], whole: bool| {
            let mut keys = Metadata::new();
            keys.insert("imatrix.datasets", vec!["words".to_owned()]);
            keys.insert("imatrix.chunk_count", 3u32);
            if whole {
                keys.insert("imatrix.chunk_size", 512u32);
            }
            let mut writer = Writer::new(keys).unwrap();
            for (name, numbers) in tensors {
                writer.tensor(name, Type::F32, &[numbers.len() as u64]).unwrap();
            }
            let mut body = writer.begin(Vec::new()).unwrap();
            for (_, numbers) in tensors {
                body.write(&numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
            }
            body.finish().unwrap()
        };
        let sums: (&str, &[f32]) = ("e.in_sum2", &[2.0, 4.0, 5.0, 6.0]);
        let read = open(&gguf(&[sums, ("e.counts", &[2.0, 0.0])], true)).unwrap();
        assert_eq!((read.chunks, read.dataset.as_deref()), (3, Some("words")));
        assert_eq!(read.of(&tensor("e", &[2, 9, 2])).unwrap(), Some(&[1.0, 2.0, 1.0, 1.0][..]));
        assert!(open(&gguf(&[sums], true)).unwrap_err().to_string().contains("both"));
        assert!(open(&gguf(&[sums, ("e.counts", &[1.0; 3])], true)).is_err());
        let error = open(&gguf(&[sums, ("e.counts", &[1.0])], false)).unwrap_err().to_string();
        assert!(error.contains("imatrix.chunk_size"), "{error}");
    }
}

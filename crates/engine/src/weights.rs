//! A plan's weights as rows of the model's tensors.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use cera_backend::{Error, Weights};
use cera_gguf::Checkpoint;
use cera_plan::{Plan, Wt};

/// Told how much of the weights the backend has taken, after each of them: bytes taken, and bytes in all. Called
/// from whichever thread took the weight.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Serves the weights of `plan` from `file`, and counts those that the backend has taken.
pub(crate) struct FileWeights<'a> {
    file: &'a dyn Checkpoint,
    plan: &'a Plan,
    progress: Option<Progress<'a>>,
    total: u64,
    taken: AtomicU64,
}

impl<'a> FileWeights<'a> {
    pub fn new(file: &'a dyn Checkpoint, plan: &'a Plan, progress: Option<Progress<'a>>) -> Self {
        let total = weight_bytes(plan);
        Self { file, plan, progress, total, taken: AtomicU64::new(0) }
    }
}

/// Bytes of all weights of a plan, as the file stores them.
pub(crate) fn weight_bytes(plan: &Plan) -> u64 {
    plan.weights.iter().map(|w| w.bytes() as u64).sum()
}

impl Weights for FileWeights<'_> {
    fn bytes(&self, w: Wt) -> Result<Cow<'_, [u8]>, Error> {
        let weight = self.plan.weights.get(w.index());
        let weight = weight.ok_or_else(|| Error::Weights(format!("the plan has no weight {}", w.0)))?;
        let missing = || {
            let (name, first, rows) = (&weight.name, weight.first_row, weight.rows);
            Error::Weights(format!("tensor `{name}` does not have {rows} rows from row {first} on"))
        };
        let fault = |e: cera_gguf::Error| Error::Weights(e.to_string());
        let tensor = self.file.tensor(&weight.name).ok_or_else(missing)?;
        if tensor.cols() == weight.cols as u64 {
            let (first, rows) = (weight.first_row as u64, weight.rows as u64);
            if first.checked_add(rows).is_none_or(|end| end > tensor.rows()) {
                return Err(missing());
            }
            return self.file.rows(tensor, first, rows).map_err(fault);
        }
        // The plan takes the tensor's numbers in rows of another length.
        let range = || {
            let start = weight.ty.row_bytes(weight.cols)?.checked_mul(weight.first_row)?;
            Some(start..start.checked_add(weight.bytes())?)
        };
        let range = range().ok_or_else(missing)?;
        Ok(match self.file.rows(tensor, 0, tensor.rows()).map_err(fault)? {
            Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(range).ok_or_else(missing)?),
            Cow::Owned(bytes) => Cow::Owned(bytes.get(range).ok_or_else(missing)?.to_vec()),
        })
    }

    fn release(&self, w: Wt) {
        let Some(weight) = self.plan.weights.get(w.index()) else { return };
        if let Some(tensor) = self.file.tensor(&weight.name) {
            self.file.release(tensor);
        }
        let bytes = weight.bytes() as u64;
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(progress) = self.progress {
            progress(taken.min(self.total), self.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use cera_gguf::{Gguf, Metadata, Writer};
    use cera_plan::{RowSet, Val, Value, Weight};
    use cera_quant::Type;

    use super::*;

    fn file() -> Gguf {
        let mut writer = Writer::new(Metadata::new()).unwrap();
        writer.tensor("joined.weight", Type::F32, &[2, 3]).unwrap();
        let mut body = writer.begin(Vec::new()).unwrap();
        body.write(&(0..24).collect::<Vec<u8>>()).unwrap();
        Gguf::from_bytes(body.finish().unwrap()).unwrap()
    }

    fn plan(parts: &[(usize, usize)]) -> Plan {
        let weight = |&(first_row, rows): &(usize, usize)| Weight {
            name: "joined.weight".into(),
            ty: Type::F32,
            first_row,
            rows,
            cols: 2,
        };
        Plan {
            ops: vec![],
            values: vec![Value { rows: RowSet::All, width: 2 }],
            weights: parts.iter().map(weight).collect(),
            kv: vec![],
            states: vec![],
            logits: Val(0),
        }
    }

    #[test]
    fn a_weight_is_its_rows_of_the_tensor() {
        let (file, plan) = (file(), plan(&[(0, 1), (1, 2)]));
        let weights = FileWeights::new(&file, &plan, None);
        assert_eq!(weights.bytes(Wt(0)).unwrap().as_ref(), (0..8).collect::<Vec<u8>>());
        assert_eq!(weights.bytes(Wt(1)).unwrap().as_ref(), (8..24).collect::<Vec<u8>>());
    }

    #[test]
    fn rows_that_the_file_lacks_are_an_error_that_names_the_tensor() {
        let (file, plan) = (file(), plan(&[(2, 2)]));
        let error = FileWeights::new(&file, &plan, None).bytes(Wt(0)).unwrap_err();
        assert!(error.to_string().contains("`joined.weight`"), "{error}");
    }

    #[test]
    fn progress_counts_the_bytes_taken() {
        let seen = std::sync::Mutex::new(vec![]);
        let note = |taken, total| seen.lock().unwrap().push((taken, total));
        let (file, plan) = (file(), plan(&[(0, 1), (1, 2)]));
        let weights = FileWeights::new(&file, &plan, Some(&note));
        weights.release(Wt(1));
        weights.release(Wt(0));
        assert_eq!(*seen.lock().unwrap(), [(16, 24), (24, 24)]);
    }
}

//! Descriptions of tensors, and the rules for where their bytes may lie.

use cera_quant::Type;

use crate::Error;

/// Most dimensions of a tensor, as in ggml.
pub const MAX_DIMS: usize = 4;

/// What a file says about one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, unique in its file.
    pub name: String,
    /// How its elements are stored.
    pub ty: Type,
    /// Sizes in ggml's order: `dims[0]` varies fastest. At most [`MAX_DIMS`], none of them 0; none at all
    /// is a single number.
    pub dims: Vec<u64>,
    /// Which file of a split model has it, from 0.
    pub part: usize,
    /// Where its bytes start in that file's data section, a multiple of the file's alignment.
    pub offset: u64,
    /// How many bytes it takes, without padding.
    pub bytes: u64,
}

impl TensorInfo {
    /// Elements of a row: `dims[0]`.
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of the other dimensions.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).fold(1, |rows, &dim| rows.saturating_mul(dim))
    }
}

/// Bytes of a tensor of these dimensions, all of them counted with checks.
pub(crate) fn byte_len(name: &str, ty: Type, dims: &[u64]) -> Result<u64, Error> {
    if dims.len() > MAX_DIMS {
        return Err(Error::Dimensions { tensor: name.into(), count: dims.len() as u64 });
    }
    if dims.contains(&0) {
        return Err(Error::ZeroDimension { tensor: name.into(), dims: dims.into() });
    }
    let cols = dims.first().copied().unwrap_or(1);
    let block = ty.block_len() as u64;
    if !cols.is_multiple_of(block) {
        return Err(Error::RowBlocks { tensor: name.into(), ty: ty.name(), cols, block });
    }
    // 63 bits, so that sums of two lengths below cannot wrap.
    let fits = |n: &u64| *n <= i64::MAX as u64;
    let product = |a: u64, b: u64| a.checked_mul(b).filter(fits);
    let size = || {
        dims.iter().try_fold(1, |elements, &dim| product(elements, dim))?;
        let row = u64::try_from(ty.row_bytes(usize::try_from(cols).ok()?)?).ok()?;
        dims.iter().skip(1).try_fold(row, |bytes, &dim| product(bytes, dim)).filter(fits)
    };
    size().ok_or_else(|| Error::TensorSize { tensor: name.into(), dims: dims.into() })
}

/// Checks that every tensor is aligned, lies inside a data section of `available` bytes and shares no byte
/// with another. Order and gaps are the writer's own affair.
pub(crate) fn check_layout(tensors: &[TensorInfo], alignment: u64, available: u64) -> Result<(), Error> {
    for t in tensors {
        let tensor = || t.name.clone();
        if !t.offset.is_multiple_of(alignment) {
            return Err(Error::Unaligned { tensor: tensor(), offset: t.offset, alignment });
        }
        if t.offset.checked_add(t.bytes).is_none_or(|end| end > available) {
            return Err(Error::PastEnd { tensor: tensor(), offset: t.offset, bytes: t.bytes, available });
        }
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    for pair in by_offset.windows(2) {
        if let [a, b] = pair
            && b.offset < a.offset.saturating_add(a.bytes)
        {
            return Err(Error::Overlap { first: a.name.clone(), second: b.name.clone(), offset: b.offset });
        }
    }
    Ok(())
}

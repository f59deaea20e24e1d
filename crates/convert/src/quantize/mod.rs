//! A model with its matrices in other types.
//!
//! [`Quantized`] stands before another model and encodes its rows when they are asked for. So writing a file and loading
//! a model that is not quantized yet are the same thing.

mod choose;
mod importance;
mod mix;

use std::borrow::Cow;
use std::collections::HashMap;

use cera_gguf::{Checkpoint, Metadata, TensorInfo};
use cera_quant::Type;
use rayon::prelude::*;
use regex::Regex;

use crate::{Error, numbers};
use choose::{Chooser, place};

pub use importance::Importances;
pub use mix::Mix;

/// What becomes of a model's matrices.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The mix.
    pub mix: Mix,
    /// The mix's own type for all matrices, and none of its rules.
    pub pure: bool,
    /// The type of `output.weight`.
    pub output: Option<Type>,
    /// The type of `token_embd.weight`.
    pub embedding: Option<Type>,
    /// `output.weight` is kept as it is.
    pub leave_output: bool,
    /// Types of tensors whose names match; the first that does counts.
    pub tensors: Vec<(Regex, Type)>,
    /// How much errors count, column by column.
    pub importances: Option<Importances>,
    /// Matrices that are quantized already may be quantized anew, which loses more than quantizing the original does.
    pub again: bool,
}

impl Recipe {
    /// A mix as its name says.
    pub fn new(mix: Mix) -> Self {
        Self {
            mix,
            pure: false,
            output: None,
            embedding: None,
            leave_output: false,
            tensors: vec![],
            importances: None,
            again: false,
        }
    }
}

/// A model whose matrices are encoded when they are asked for.
pub struct Quantized {
    source: Box<dyn Checkpoint>,
    metadata: Metadata,
    /// By block, and by name within, as llama.cpp writes them.
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    importances: Option<Importances>,
    notes: Notes,
}

/// What came otherwise than the recipe says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Tensors whose rows are not whole blocks of the type that they were to have, and what they have instead.
    pub fallbacks: Vec<(String, Type)>,
    /// Tensors that are encoded without importances, though others have some.
    pub without_importances: Vec<String>,
}

/// Numbers that one thread encodes at a time.
const CHUNK: u64 = 1 << 16;

impl Quantized {
    /// Chooses the tensors' types. Reads no number yet.
    ///
    /// # Errors
    /// [`Error::Again`], [`Error::Blind`], a type that rows do not fit or that cannot be encoded, or a key of the model that
    /// is not what it should be.
    pub fn new(source: Box<dyn Checkpoint>, recipe: Recipe) -> Result<Self, Error> {
        let mut order: Vec<&TensorInfo> = source.tensors().iter().collect();
        order.sort_by(|a, b| place(&a.name).cmp(&place(&b.name)));
        let mut chooser = Chooser::new(&recipe, source.metadata(), source.tensors())?;
        let mut notes = Notes::default();
        let mut tensors = Vec::with_capacity(order.len());
        for t in order {
            let choice = chooser.choose(t)?;
            if choice.ty != t.ty {
                check(t, choice.ty, &recipe, &mut notes)?;
                if choice.fallback {
                    notes.fallbacks.push((t.name.clone(), choice.ty));
                }
            }
            tensors.push(retyped(t, choice.ty)?);
        }
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        let metadata = keys(source.metadata(), &recipe);
        Ok(Self { metadata, tensors, by_name, importances: recipe.importances, notes, source })
    }

    /// What came otherwise than the recipe says.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Encodes rows of a tensor: `numbers` are bytes of the source, `first` the number of their first row.
    fn encode(&self, from: &TensorInfo, to: Type, first: u64, stored: &[u8]) -> Result<Vec<u8>, String> {
        let cols = from.cols() as usize;
        let mut numbers = vec![0.0; stored.len() / from.ty.block_bytes() * from.ty.block_len()];
        cera_quant::decode(from.ty, stored, &mut numbers).map_err(|e| e.to_string())?;
        let all = match &self.importances {
            Some(importances) => importances.of(from).map_err(|e| e.to_string())?,
            None => None,
        };
        // Plain numbers have no use for them.
        let Some(all) = all.filter(|_| to.block_len() > 1) else {
            return numbers::encode(to, &numbers);
        };
        // Each matrix of a tensor has importances of its own.
        let height = from.dims.get(1).copied().unwrap_or(1).max(1);
        let mut out = Vec::new();
        let (mut row, mut rest) = (first, numbers.as_slice());
        while !rest.is_empty() {
            let left = usize::try_from(height - row % height).unwrap_or(usize::MAX);
            let (some, others) = rest.split_at(left.saturating_mul(cols).min(rest.len()));
            let at = (row / height) as usize * cols;
            let own = all.get(at..at + cols).ok_or("it has more rows than importances")?;
            out.extend(cera_quant::encode_with_importance(to, some, own).map_err(|e| e.to_string())?);
            row += left as u64;
            rest = others;
        }
        Ok(out)
    }
}

/// Refuses what cannot become a type.
fn check(t: &TensorInfo, ty: Type, recipe: &Recipe, notes: &mut Notes) -> Result<(), Error> {
    for ty in [t.ty, ty] {
        if ty.codec().is_none() {
            return Err(Error::tensor(&t.name, format!("numbers of type {ty} cannot be translated")));
        }
    }
    if t.ty.block_len() > 1 && !recipe.again {
        return Err(Error::Again { tensor: t.name.clone(), from: t.ty, to: ty });
    }
    let own = recipe.importances.as_ref().map(|all| all.of(t)).transpose()?.flatten();
    if own.is_none() {
        if needs_importances(&t.name, ty, recipe.mix) {
            return Err(Error::Blind { tensor: t.name.clone(), ty });
        }
        if recipe.importances.is_some() && ty.block_len() > 1 {
            notes.without_importances.push(t.name.clone());
        }
    }
    Ok(())
}

/// Whether a type is of no use for a tensor without importances, as llama.cpp has it.
fn needs_importances(name: &str, ty: Type, mix: Mix) -> bool {
    use Type::*;
    let ends = matches!(name, "token_embd.weight" | "per_layer_token_embd.weight" | "output.weight");
    let small = matches!(ty, IQ3_XXS | IQ2_XXS | IQ2_XS | IQ2_S | IQ1_M | IQ1_S);
    !ends && (small || (ty == Q2_K && mix == Mix::Q2_K_S))
}

/// A tensor in another type.
fn retyped(t: &TensorInfo, ty: Type) -> Result<TensorInfo, Error> {
    let row = usize::try_from(t.cols()).ok().and_then(|cols| ty.row_bytes(cols));
    let bytes = row.and_then(|row| t.rows().checked_mul(row as u64)).ok_or_else(|| {
        let (cols, block) = (t.cols(), ty.block_len());
        Error::tensor(
            &t.name,
            format!("its rows of {cols} are not whole blocks of {block}, as {ty} has them"),
        )
    })?;
    Ok(TensorInfo { ty, bytes, ..t.clone() })
}

/// The model's keys, with those that say how it was quantized, in llama.cpp's order.
fn keys(metadata: &Metadata, recipe: &Recipe) -> Metadata {
    const VERSION: &str = "general.quantization_version";
    const TYPE: &str = "general.file_type";
    const FILE: &str = "quantize.imatrix.file";
    const DATASET: &str = "quantize.imatrix.dataset";
    const ENTRIES: &str = "quantize.imatrix.entries_count";
    const CHUNKS: &str = "quantize.imatrix.chunks_count";
    let mut keys = metadata.clone().without(&[VERSION, TYPE]);
    // The only one there is, since K-quants.
    keys.insert(VERSION, 2u32);
    keys.insert(TYPE, recipe.mix.number());
    if let Some(importances) = recipe.importances.as_ref().filter(|all| !all.is_empty()) {
        keys = keys.without(&[FILE, DATASET, ENTRIES, CHUNKS]);
        keys.insert(FILE, importances.file.as_str());
        if let Some(dataset) = &importances.dataset {
            keys.insert(DATASET, dataset.as_str());
        }
        keys.insert(ENTRIES, u32::try_from(importances.len()).unwrap_or(u32::MAX));
        if importances.chunks > 0 {
            keys.insert(CHUNKS, importances.chunks);
        }
    }
    keys
}

impl Checkpoint for Quantized {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).and_then(|&index| self.tensors.get(index))
    }

    fn rows(&self, t: &TensorInfo, first: u64, count: u64) -> Result<Cow<'_, [u8]>, cera_gguf::Error> {
        let missing = || cera_gguf::Error::Rows { tensor: t.name.clone(), first, count, rows: t.rows() };
        let from = self.source.tensor(&t.name).ok_or_else(missing)?;
        let to = self.tensor(&t.name).ok_or_else(missing)?.ty;
        let stored = self.source.rows(from, first, count)?;
        if from.ty == to {
            return Ok(stored);
        }
        let (Some(row), Some(row_out)) =
            (from.ty.row_bytes(from.cols() as usize), to.row_bytes(from.cols() as usize))
        else {
            return Err(missing());
        };
        let each = (CHUNK / from.cols().max(1)).max(1);
        let mut out = vec![0; row_out * count as usize];
        let pieces = stored.par_chunks((row * each as usize).max(1));
        let places = out.par_chunks_mut((row_out * each as usize).max(1));
        pieces.zip(places).enumerate().try_for_each(|(n, (piece, place))| {
            let bytes = self.encode(from, to, first + n as u64 * each, piece);
            let bytes = bytes.map_err(|why| cera_gguf::Error::Make { tensor: t.name.clone(), why })?;
            place.copy_from_slice(&bytes);
            Ok::<(), cera_gguf::Error>(())
        })?;
        Ok(Cow::Owned(out))
    }

    fn release(&self, t: &TensorInfo) {
        if let Some(from) = self.source.tensor(&t.name) {
            self.source.release(from);
        }
    }
}

//! A Hugging Face folder, open.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use cera_gguf::{Checkpoint, Metadata, TensorInfo};
use cera_quant::Type;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::config::Config;
use crate::family::{self, Family, Fate, Found, Keys, Part};
use crate::numbers::{self, Each};
use crate::safetensors::{Dtype, Shard, Stored};
use crate::view::View;
use crate::vocabulary::Vocabulary;
use crate::{Error, header, texts};

/// How numbers of matrices are stored in what a folder gives. Vectors, norms and what chooses experts are always F32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Floats {
    /// As the folder has them; 8-bit floats, which GGUF has not, as BF16.
    #[default]
    Stored,
    /// All in this type; where rows are not whole blocks of it, in F16.
    As(Type),
}

/// A Hugging Face folder: `config.json`, safetensors, whole or in shards, and the tokenizer's files.
pub struct Folder {
    path: PathBuf,
    config: Config,
    shards: Vec<Shard>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// How each of them is made.
    made: Vec<Made>,
    by_name: HashMap<String, usize>,
}

/// How a tensor is made.
enum Made {
    /// Of these, one behind the other.
    Pieces(Vec<Piece>),
    /// Of these numbers.
    Numbers(Vec<f32>),
}

/// Rows out of a stored tensor.
struct Piece {
    at: At,
    view: View,
    each: Each,
    scales: Option<Scales>,
}

/// A stored tensor: its shard, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    shard: usize,
    tensor: usize,
}

/// Factors of the numbers of a matrix, one for each tile of it.
#[derive(Debug, Clone)]
struct Scales {
    /// In the order of tiles, row by row.
    numbers: Vec<f32>,
    /// Rows and columns of a tile.
    tile: (u64, u64),
    /// Tiles side by side.
    across: u64,
    /// Columns of the matrix.
    cols: u64,
}

/// Numbers translated at once, by one thread.
const CHUNK: u64 = 1 << 18;

impl Folder {
    /// Opens a folder: reads its configuration and the headers of its tensors, and no tensor's numbers but the factors of
    /// 8-bit floats.
    ///
    /// # Errors
    /// What is missing, wrong or not supported, by name.
    pub fn open(path: impl AsRef<Path>, floats: Floats) -> Result<Self, Error> {
        let path = path.as_ref();
        let what = "config.json, so it is no Hugging Face folder";
        let text =
            texts::read(path, "config.json")?.ok_or_else(|| Error::Lacks { path: path.into(), what })?;
        let config = Config::read(&text)?;
        let (family, class) = family::find(config.class()?)?;
        let config = config.with_defaults((family.defaults)())?;
        let tile = eight_bits(&config)?;
        let shards = open_shards(path)?;
        let mut keys = Keys::new(family.architecture);
        let name = path.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
        keys.metadata.insert("general.name", name.unwrap_or_else(|| "model".into()).as_str());
        (family.keys)(&config, &mut keys)?;
        let mut folder = Self {
            path: path.into(),
            config: config.clone(),
            shards,
            metadata: keys.metadata,
            tensors: vec![],
            made: vec![],
            by_name: HashMap::new(),
        };
        folder.make(&config, family, class, tile, floats)?;
        Ok(folder)
    }

    /// The same with the keys that a file has besides: the tokenizer, and what the file is. `pre` names the pre-tokenizer, which
    /// otherwise is found by the ids of a text.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], [`Error::Pre`], [`Error::Differs`], and what is wrong with one of the tokenizer's files.
    pub fn for_file(mut self, pre: Option<&str>) -> Result<Self, Error> {
        let generation = texts::read(&self.path, "generation_config.json")?;
        let fault =
            |e: serde_json::Error| Error::Json { file: "generation_config.json".into(), what: e.to_string() };
        let generation = serde_json::from_str(generation.as_deref().unwrap_or("null")).map_err(fault)?;
        let name = self.metadata.str("general.name")?.unwrap_or_default().to_owned();
        header::write(&mut self.metadata, &self.tensors, &name, &generation);
        let keys =
            self.vocabulary().keys(pre)?.ok_or_else(|| Error::NoTokenizer { path: self.path.clone() })?;
        for (key, value) in keys.iter() {
            self.metadata.insert(key, value.clone());
        }
        Ok(self)
    }

    /// Where its tokenizer is.
    pub(crate) fn vocabulary(&self) -> Vocabulary {
        let rows = self.tensor("token_embd.weight").and_then(|t| usize::try_from(t.rows()).ok());
        Vocabulary { folder: self.path.clone(), config: self.config.clone(), rows }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the tensors as they are stored.
    pub fn stored_bytes(&self) -> u64 {
        let tensors = self.shards.iter().flat_map(|shard| &shard.tensors);
        tensors.map(|t| t.elements() * t.dtype.bytes()).sum()
    }

    fn make(
        &mut self,
        config: &Config,
        family: &Family,
        class: &'static str,
        tile: Option<(u64, u64)>,
        floats: Floats,
    ) -> Result<(), Error> {
        let places = self.places()?;
        let mut order: Vec<String> = Vec::new();
        let mut parts: HashMap<String, Vec<(Part, Piece)>> = HashMap::new();
        for (shard, tensor, stored) in self.stored() {
            if is_no_weight(&stored.name)
                || scaled(&stored.name).is_some_and(|name| places.contains_key(name))
            {
                continue;
            }
            if stored.elements() == 0 {
                return Err(Error::tensor(&stored.name, "it has no numbers"));
            }
            let found = Found::new(&stored.name, &stored.dims);
            let made = match (family.tensor)(config, &found)? {
                Fate::Drop => continue,
                Fate::Unknown => return Err(Error::Unknown { tensor: stored.name.clone(), class }),
                Fate::Parts(made) => made,
            };
            let scales = self.scales(stored, &places, tile)?;
            for part in made {
                part.view.check(&stored.name, stored.elements())?;
                let numbers = part.dims.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim));
                if numbers != part.view.rows().checked_mul(part.view.cols) {
                    return Err(found.misfit());
                }
                let (view, each, scales) = (part.view.clone(), part.each, scales.clone());
                let piece = Piece { at: At { shard, tensor }, view, each, scales };
                let same = parts.entry(part.name.clone()).or_default();
                if same.is_empty() {
                    order.push(part.name.clone());
                }
                same.push((part, piece));
            }
        }
        let mut all = Vec::new();
        for name in order {
            let parts = parts.remove(&name).unwrap_or_default();
            all.push(self.stack(name, parts, floats)?);
        }
        for (info, made) in all {
            self.add(info, made)?;
        }
        for (name, numbers) in (family.made)(config)? {
            let bytes = 4 * numbers.len() as u64;
            let dims = vec![numbers.len() as u64];
            self.add(
                TensorInfo { name: name.into(), ty: Type::F32, dims, part: 0, offset: 0, bytes },
                Made::Numbers(numbers),
            )?;
        }
        Ok(())
    }

    fn add(&mut self, info: TensorInfo, made: Made) -> Result<(), Error> {
        if self.by_name.insert(info.name.clone(), self.tensors.len()).is_some() {
            return Err(cera_gguf::Error::DuplicateTensor { tensor: info.name }.into());
        }
        self.tensors.push(info);
        self.made.push(made);
        Ok(())
    }

    /// All stored tensors, with shard and place.
    fn stored(&self) -> impl Iterator<Item = (usize, usize, &Stored)> {
        self.shards
            .iter()
            .enumerate()
            .flat_map(|(shard, file)| file.tensors.iter().enumerate().map(move |(i, t)| (shard, i, t)))
    }

    fn places(&self) -> Result<HashMap<String, At>, Error> {
        let mut places = HashMap::new();
        for (shard, tensor, stored) in self.stored() {
            if places.insert(stored.name.clone(), At { shard, tensor }).is_some() {
                return Err(Error::tensor(&stored.name, "two files have it"));
            }
        }
        Ok(places)
    }

    fn find(&self, at: At) -> Option<(&Shard, &Stored)> {
        let shard = self.shards.get(at.shard)?;
        Some((shard, shard.tensors.get(at.tensor)?))
    }

    /// The factors beside a matrix of 8-bit floats.
    fn scales(
        &self,
        stored: &Stored,
        places: &HashMap<String, At>,
        tile: Option<(u64, u64)>,
    ) -> Result<Option<Scales>, Error> {
        let beside = SCALES.iter().find_map(|ending| {
            let name = format!("{}{ending}", stored.name);
            Some((places.get(&name)?, name))
        });
        let eight = matches!(stored.dtype, Dtype::F8E4M3 | Dtype::F8E5M2);
        let Some((&at, name)) = beside else { return Ok(None) };
        if !eight {
            return Err(Error::tensor(
                &stored.name,
                format!("{name} is beside it, but it is not of 8-bit floats"),
            ));
        }
        let Some((shard, scales)) = self.find(at) else { return Ok(None) };
        let [rows, cols] = *stored.dims.as_slice() else {
            return Err(Error::tensor(
                &stored.name,
                "only matrices of 8-bit floats can have factors beside them",
            ));
        };
        let sizes = match *scales.dims.as_slice() {
            [] => [1, 1],
            [n] => [n, 1],
            [n, m] => [n, m],
            _ => [0, 0],
        };
        // Without tiles of a known size they divide the matrix evenly: one for all, one for each row.
        let (tile_rows, tile_cols) = tile.unwrap_or((rows / sizes[0].max(1), cols / sizes[1].max(1)));
        let whole = |n: u64, tile: u64, tiles: u64| tile > 0 && n.div_ceil(tile) == tiles;
        if !whole(rows, tile_rows, sizes[0]) || !whole(cols, tile_cols, sizes[1]) {
            let (dims, tile) = (&scales.dims, (tile_rows, tile_cols));
            return Err(Error::tensor(
                &name,
                format!("its sizes {dims:?} are not one for each {tile:?} of {rows} x {cols}"),
            ));
        }
        let mut numbers = vec![0.0; scales.elements() as usize];
        if !numbers::read(scales.dtype, shard.bytes(scales)?, &mut numbers) {
            return Err(Error::tensor(&name, "it is not of numbers"));
        }
        if let Some(bad) = numbers.iter().find(|n| !n.is_finite()) {
            return Err(Error::tensor(&name, format!("one of its factors is {bad}")));
        }
        Ok(Some(Scales { numbers, tile: (tile_rows, tile_cols), across: sizes[1], cols }))
    }

    /// One tensor out of its parts: itself, or the shares of experts.
    fn stack(
        &self,
        name: String,
        mut parts: Vec<(Part, Piece)>,
        floats: Floats,
    ) -> Result<(TensorInfo, Made), Error> {
        let of = |at: At| self.find(at).map(|(_, stored)| stored);
        let stored_name = |at: At| of(at).map(|stored| stored.name.clone()).unwrap_or_default();
        parts.sort_by_key(|(part, _)| part.expert);
        let Some((first, piece)) = parts.first() else {
            return Err(Error::tensor(&name, "nothing makes it"));
        };
        let (mut dims, at) = (first.dims.clone(), piece.at);
        let experts = first.expert.is_some();
        for (n, (part, piece)) in (0u32..).zip(&parts) {
            let place = if experts { part.expert == Some(n) } else { n == 0 };
            if !place || part.expert.is_some() != experts {
                let what = match experts {
                    true => format!("expert {n} of {name} is missing, or is there twice"),
                    false => format!("another tensor takes the same place, {name}"),
                };
                return Err(Error::tensor(&stored_name(piece.at), what));
            }
            if part.dims != dims {
                return Err(Error::tensor(
                    &stored_name(piece.at),
                    format!("its sizes are not those of {}", stored_name(at)),
                ));
            }
        }
        if experts {
            dims.push(parts.len() as u64);
        }
        let dtype = of(at).map_or(Dtype::F32, |stored| stored.dtype);
        let whole = |ty: Type| dims.first().is_some_and(|cols| cols.is_multiple_of(ty.block_len() as u64));
        let ty = match (is_always_f32(&name, dims.len()), floats, dtype) {
            (true, ..) => Type::F32,
            (_, Floats::As(ty), _) if whole(ty) => ty,
            (_, Floats::As(_), _) => Type::F16,
            (_, _, Dtype::F16) => Type::F16,
            (_, _, Dtype::Bf16 | Dtype::F8E4M3 | Dtype::F8E5M2) => Type::BF16,
            _ => Type::F32,
        };
        let pieces: Vec<Piece> = parts.into_iter().map(|(_, piece)| piece).collect();
        if let Some(piece) = pieces.iter().find(|piece| of(piece.at).is_some_and(|t| !is_float(t.dtype))) {
            return Err(Error::tensor(&stored_name(piece.at), "it is not of floats"));
        }
        if dims.len() > cera_gguf::MAX_DIMS {
            return Err(cera_gguf::Error::Dimensions { tensor: name, count: dims.len() as u64 }.into());
        }
        let cols = dims.first().copied().unwrap_or(1);
        let rows = dims.iter().skip(1).try_fold(1u64, |rows, &dim| rows.checked_mul(dim));
        let row = usize::try_from(cols).ok().and_then(|cols| ty.row_bytes(cols));
        let bytes = rows.zip(row).and_then(|(rows, row)| rows.checked_mul(row as u64));
        let bytes = bytes.ok_or_else(|| {
            Error::tensor(&stored_name(at), format!("rows of {cols} are not whole blocks of {}", ty.name()))
        })?;
        Ok((TensorInfo { name, ty, dims, part: 0, offset: 0, bytes }, Made::Pieces(pieces)))
    }

    /// Bytes as they are stored, where those are the tensor's.
    fn borrowed(
        &self,
        t: &TensorInfo,
        piece: &Piece,
        first: u64,
        len: u64,
    ) -> Result<Option<&[u8]>, cera_gguf::Error> {
        let Some((shard, stored)) = self.find(piece.at) else { return Ok(None) };
        let same = type_of(stored.dtype) == Some(t.ty) && piece.each == Each::Same && piece.scales.is_none();
        if !same || !piece.view.is_plain() {
            return Ok(None);
        }
        let at = |element: u64| usize::try_from(element.checked_mul(stored.dtype.bytes())?).ok();
        let range = at(piece.view.start(0) + first).zip(at(piece.view.start(0) + first + len));
        Ok(range.and_then(|(from, to)| shard.bytes(stored).ok()?.get(from..to)))
    }

    /// Numbers of a piece from `first` on, in the order of its rows.
    fn read(&self, piece: &Piece, first: u64, out: &mut [f32]) -> Result<(), cera_gguf::Error> {
        let fault =
            |tensor: &str, why: &str| cera_gguf::Error::Make { tensor: tensor.into(), why: why.into() };
        let (shard, stored) = self.find(piece.at).ok_or_else(|| fault("", "its file is not there"))?;
        let bytes = shard.bytes(stored)?;
        let short = || fault(&stored.name, "its file is too short for it");
        let (size, cols, step) = (stored.dtype.bytes(), piece.view.cols, piece.view.step());
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = first + done as u64;
            let column = at % cols;
            let some = rest.len().min(usize::try_from(cols - column).unwrap_or(usize::MAX));
            let row = rest.get_mut(..some).unwrap_or_default();
            let start = piece.view.start(at / cols) + column * step;
            for i in 0..if step == 1 { 1 } else { some } {
                let element = start + i as u64 * step;
                let numbers = if step == 1 { &mut *row } else { row.get_mut(i..=i).unwrap_or_default() };
                let range = || {
                    let from = usize::try_from(element.checked_mul(size)?).ok()?;
                    bytes.get(from..from.checked_add(numbers.len().checked_mul(size as usize)?)?)
                };
                let range = range().ok_or_else(short)?;
                if !numbers::read(stored.dtype, range, numbers) {
                    return Err(fault(&stored.name, "it is not of floats"));
                }
                if let Some(scales) = &piece.scales {
                    scales.apply(element, numbers);
                }
            }
            piece.each.apply(row);
            done += some;
        }
        Ok(())
    }

    /// Fills bytes of a tensor from its element `first` on: whole rows.
    fn fill(
        &self,
        t: &TensorInfo,
        made: &Made,
        first: u64,
        numbers: &mut [f32],
    ) -> Result<(), cera_gguf::Error> {
        let pieces = match made {
            Made::Numbers(all) => {
                let given =
                    usize::try_from(first).ok().and_then(|first| all.get(first..)?.get(..numbers.len()));
                numbers.copy_from_slice(given.unwrap_or(&vec![0.0; numbers.len()]));
                return Ok(());
            }
            Made::Pieces(pieces) => pieces,
        };
        let each = t.cols() * t.rows() / (pieces.len() as u64).max(1);
        let mut done = 0;
        while let Some(rest) = numbers.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = first + done as u64;
            let Some(piece) = pieces.get(usize::try_from(at / each.max(1)).unwrap_or(usize::MAX)) else {
                break;
            };
            let some = rest.len().min(usize::try_from(each - at % each).unwrap_or(usize::MAX));
            self.read(piece, at % each, rest.get_mut(..some).unwrap_or_default())?;
            done += some;
        }
        Ok(())
    }
}

impl Scales {
    /// Multiplies numbers that stand side by side, the first of them this element of the matrix.
    fn apply(&self, element: u64, numbers: &mut [f32]) {
        let (mut row, mut col) = (element / self.cols, element % self.cols);
        for x in numbers {
            let tile = row / self.tile.0 * self.across + col / self.tile.1;
            *x *= usize::try_from(tile)
                .ok()
                .and_then(|tile| self.numbers.get(tile))
                .copied()
                .unwrap_or(f32::NAN);
            col += 1;
            if col == self.cols {
                (row, col) = (row + 1, 0);
            }
        }
    }
}

impl Checkpoint for Folder {
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
        let made = self.by_name.get(&t.name).and_then(|&index| self.made.get(index)).ok_or_else(missing)?;
        if first.checked_add(count).is_none_or(|end| end > t.rows()) {
            return Err(missing());
        }
        let cols = t.cols();
        if let Made::Pieces(pieces) = made
            && let [piece] = pieces.as_slice()
            && let Some(bytes) = self.borrowed(t, piece, first * cols, count * cols)?
        {
            return Ok(Cow::Borrowed(bytes));
        }
        // The tensor's bytes were counted when the folder was opened.
        let row_bytes = (t.bytes / t.rows().max(1)) as usize;
        let mut out = vec![0; row_bytes * count as usize];
        let rows = (CHUNK / cols.max(1)).max(1);
        let chunk = |(n, out): (usize, &mut [u8])| {
            let from = (first + n as u64 * rows) * cols;
            let mut numbers = vec![0.0; out.len() / row_bytes.max(1) * cols as usize];
            self.fill(t, made, from, &mut numbers)?;
            let bytes = numbers::encode(t.ty, &numbers)
                .map_err(|why| cera_gguf::Error::Make { tensor: t.name.clone(), why })?;
            out.copy_from_slice(&bytes);
            Ok(())
        };
        out.par_chunks_mut((row_bytes * rows as usize).max(1)).enumerate().try_for_each(chunk)?;
        Ok(Cow::Owned(out))
    }

    fn release(&self, t: &TensorInfo) {
        let made = self.by_name.get(&t.name).and_then(|&index| self.made.get(index));
        if let Some(Made::Pieces(pieces)) = made {
            for (shard, stored) in pieces.iter().filter_map(|piece| self.find(piece.at)) {
                shard.release(stored);
            }
        }
    }
}

fn is_float(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::U8 | Dtype::Other(_))
}

/// The type of GGUF whose bytes are the same.
fn type_of(dtype: Dtype) -> Option<Type> {
    match dtype {
        Dtype::F32 => Some(Type::F32),
        Dtype::F16 => Some(Type::F16),
        Dtype::Bf16 => Some(Type::BF16),
        _ => None,
    }
}

/// What stands behind a tensor's name in that of its factors.
const SCALES: [&str; 2] = ["_scale_inv", "_scale"];

/// The tensor whose factors these would be.
fn scaled(name: &str) -> Option<&str> {
    SCALES.iter().find_map(|ending| name.strip_suffix(ending))
}

/// Buffers that are no weights, and parts of a model that are about pictures and sound.
fn is_no_weight(name: &str) -> bool {
    const ENDS: [&str; 3] = [".rotary_emb.inv_freq", ".attention.masked_bias", ".masked_bias"];
    const PARTS: [&str; 9] = [
        "vision_",
        "visual.",
        "vision.",
        "audio_",
        "audio.",
        "projector.",
        "image_newline",
        "patch_embed",
        "patch_merge",
    ];
    // Whatever 8-bit kernels of other engines want to know of activations.
    const UNUSED: [&str; 4] = ["activation_scale", ".input_scale", ".k_scale", ".v_scale"];
    ENDS.iter().chain(&UNUSED).any(|end| name.ends_with(end)) || PARTS.iter().any(|part| name.contains(part))
}

/// What llama.cpp's converter stores as F32 whatever is asked.
fn is_always_f32(name: &str, dims: usize) -> bool {
    const STEMS: [&str; 6] = [
        "ffn_gate_inp",
        "ffn_gate_inp_shexp",
        "ssm_conv1d",
        "shortconv.conv",
        "position_embd",
        "token_types",
    ];
    let stem = name.strip_suffix(".weight");
    let bare =
        stem.map(|stem| stem.strip_prefix("blk.").and_then(|s| Some(s.split_once('.')?.1)).unwrap_or(stem));
    dims <= 1
        || stem.is_none_or(|stem| stem.ends_with("_norm"))
        || bare.is_some_and(|bare| STEMS.contains(&bare))
}

/// The sizes of tiles that share a factor, where matrices are of 8-bit floats and it is said.
fn eight_bits(c: &Config) -> Result<Option<(u64, u64)>, Error> {
    let key = "quantization_config";
    let Some(quantized) = c.get(key) else { return Ok(None) };
    let method = quantized.get("quant_method").and_then(Value::as_str);
    let format = quantized.get("format").and_then(Value::as_str);
    match (method, format) {
        (Some("fp8"), _) => {}
        (Some("compressed-tensors"), Some("float-quantized")) => {}
        _ => {
            let shown = json!({ "quant_method": method, "format": format });
            let why =
                "and only 8-bit floats (fp8, compressed-tensors of float-quantized) can be read".to_owned();
            return Err(Error::Key { key: key.into(), value: shown.to_string(), why });
        }
    }
    let Some(tile) = quantized.get("weight_block_size").filter(|tile| !tile.is_null()) else {
        return Ok(None);
    };
    let sizes = tile.as_array().map(|sizes| sizes.iter().map(Value::as_u64).collect::<Vec<_>>());
    match sizes.as_deref() {
        Some([Some(rows @ 1..), Some(cols @ 1..)]) => Ok(Some((*rows, *cols))),
        _ => Err(c.fault(key, "whose weight_block_size is not two numbers")),
    }
}

/// Opens the files that hold the tensors: those that the index names, or all whose names say so.
fn open_shards(folder: &Path) -> Result<Vec<Shard>, Error> {
    const INDEX: &str = "model.safetensors.index.json";
    let Some(text) = texts::read(folder, INDEX)? else {
        let names = safetensors_in(folder)?;
        return names.iter().map(|name| Shard::open(&folder.join(name))).collect();
    };
    let fault = |what: String| Error::Json { file: INDEX.into(), what };
    let index: Value = serde_json::from_str(&text).map_err(|e| fault(e.to_string()))?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| fault("it has no weight_map".into()))?;
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tensor, file) in map {
        let plain = |file: &&str| !file.contains(['/', '\\']) && file.ends_with(".safetensors");
        let file = file.as_str().filter(plain);
        let file = file
            .ok_or_else(|| fault(format!("tensor {} is in no safetensors file", cera_gguf::shown(tensor))))?;
        wanted.entry(file).or_default().insert(tensor);
    }
    let mut shards = Vec::new();
    for (file, tensors) in wanted {
        let shard = Shard::open(&folder.join(file))?;
        let found: BTreeSet<&str> = shard.tensors.iter().map(|t| t.name.as_str()).collect();
        if let Some(tensor) = tensors.difference(&found).next() {
            return Err(Error::tensor(tensor, format!("{INDEX} says that {file} has it, and it has not")));
        }
        shards.push(shard);
    }
    Ok(shards)
}

/// Names of the files that hold tensors, in order.
fn safetensors_in(folder: &Path) -> Result<Vec<String>, Error> {
    let io = |source| Error::Io { path: folder.into(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        names.extend(
            name.to_str().filter(|n| n.starts_with("model") && n.ends_with(".safetensors")).map(String::from),
        );
    }
    names.sort();
    if names.is_empty() {
        return Err(Error::Lacks {
            path: folder.into(),
            what: "model*.safetensors: its weights are not there, or pickled",
        });
    }
    Ok(names)
}

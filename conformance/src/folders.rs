//! Tiny Hugging Face folders, written from what `witness/make_folders.py` recorded. Their numbers are not stored: they are
//! drawn here as they are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Result;

/// A folder, and what others make of it.
#[derive(Debug, Deserialize)]
pub struct FolderFixture {
    /// `config.json`.
    pub config: Value,
    /// Files that the tensors are in.
    pub shards: usize,
    /// The tensors, in the order of the files.
    pub tensors: Vec<DrawnTensor>,
    /// The prompt.
    pub prompt_ids: Vec<u32>,
    /// Positions and vocabulary.
    pub logits_shape: [usize; 2],
    /// What llama.cpp's converter writes.
    pub gguf: Converted,
    /// What transformers computes: `[positions, vocabulary]`.
    #[serde(skip)]
    pub logits: Vec<f32>,
}

/// A tensor of a folder.
#[derive(Debug, Deserialize)]
pub struct DrawnTensor {
    /// Its name.
    pub name: String,
    /// Its type, as safetensors names it.
    pub dtype: String,
    /// Sizes, the fastest last.
    pub dims: Vec<usize>,
    /// What its numbers lie around.
    pub centre: f32,
    /// How far they lie from that at most.
    pub scale: f32,
}

/// A GGUF file, without the numbers themselves.
#[derive(Debug, Deserialize)]
pub struct Converted {
    /// Keys, with type and value.
    pub keys: BTreeMap<String, Value>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, ConvertedTensor>,
}

/// A tensor of a GGUF file.
#[derive(Debug, Deserialize)]
pub struct ConvertedTensor {
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Sizes, the fastest first.
    pub dims: Vec<u64>,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/folders")
}

impl FolderFixture {
    /// The names of all.
    ///
    /// # Errors
    /// The folder of fixtures cannot be read.
    pub fn names() -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(fixtures())? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "logits") {
                names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(String::from));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// It is not there, or not what it should be.
    pub fn read(name: &str) -> Result<Self> {
        let folder = fixtures();
        let mut fixture: Self =
            serde_json::from_str(&fs::read_to_string(folder.join(format!("{name}.json")))?)?;
        let bytes = fs::read(folder.join(format!("{name}.logits")))?;
        fixture.logits = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Ok(fixture)
    }

    /// Writes the folder.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::write(folder.join("config.json"), self.config.to_string())?;
        for name in
            ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
        {
            fs::copy(fixtures().join(name), folder.join(name))?;
        }
        if self.shards == 1 {
            fs::write(folder.join("model.safetensors"), safetensors(&self.tensors))?;
            return Ok(());
        }
        let mut map = serde_json::Map::new();
        let each = self.tensors.len().div_ceil(self.shards);
        for (n, tensors) in self.tensors.chunks(each).enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", n + 1, self.shards);
            map.extend(tensors.iter().map(|t| (t.name.clone(), json!(name))));
            fs::write(folder.join(name), safetensors(tensors))?;
        }
        let index = json!({ "metadata": {}, "weight_map": map });
        fs::write(folder.join("model.safetensors.index.json"), index.to_string())?;
        Ok(())
    }
}

fn safetensors(tensors: &[DrawnTensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for t in tensors {
        let from = data.len();
        t.draw(&mut data);
        let entry = json!({ "dtype": t.dtype, "shape": t.dims, "data_offsets": [from, data.len()] });
        header.insert(t.name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

impl DrawnTensor {
    fn draw(&self, out: &mut Vec<u8>) {
        let seed = self.name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        for i in 1..=self.dims.iter().product::<usize>() as u64 {
            let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            if self.dtype == "F8_E4M3" {
                let byte = (z >> 56) as u8;
                out.push(if byte & 127 == 127 { byte - 1 } else { byte });
                continue;
            }
            let width = if self.dtype == "F32" {
                24
            } else if self.centre == 0.0 {
                8
            } else {
                5
            };
            let half = 1i64 << (width - 1);
            let u = ((z >> (64 - width)) as i64 - half) as f32 / half as f32;
            let value = self.centre + self.scale * u;
            match self.dtype.as_str() {
                "F16" => out.extend(cera_quant::f32_to_f16(value).to_le_bytes()),
                "BF16" => out.extend(((value.to_bits() >> 16) as u16).to_le_bytes()),
                _ => out.extend(value.to_le_bytes()),
            }
        }
    }
}

//! Types of tensors, and whole files, as llama.cpp's quantize has them. `witness/quantize.py` made the records.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cera_convert::{Error, Importances, Mix, Quantized, Recipe, Source, save};
use cera_gguf::{Checkpoint, Gguf, Metadata, TensorInfo};
use cera_quant::Type;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// Names without their blocks, with ranges of those: first and last of each; none for what belongs to no block.
type Stems = BTreeMap<String, Vec<(u32, u32)>>;

#[derive(Deserialize)]
struct Types {
    models: BTreeMap<String, Model>,
    mixes: Vec<OfMix>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Model {
    architecture: String,
    keys: BTreeMap<String, u32>,
    tensors: Vec<(Vec<u64>, Stems)>,
}

#[derive(Deserialize)]
struct OfMix {
    model: String,
    mix: String,
    importances: bool,
    #[serde(default)]
    plain: String,
    /// Those that are not plain; none where llama.cpp gives up.
    types: Option<BTreeMap<String, Stems>>,
}

#[derive(Deserialize)]
struct Case {
    model: String,
    mix: String,
    words: Vec<String>,
    types: BTreeMap<String, Stems>,
}

#[derive(Deserialize)]
struct Files {
    files: Vec<Written>,
    with_importances: Vec<(String, serde_json::Value)>,
}

#[derive(Deserialize)]
struct Written {
    model: String,
    mix: String,
    sha256: String,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn record<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&fs::read_to_string(fixtures().join("quantize").join(name)).unwrap()).unwrap()
}

fn names(stems: &Stems) -> Vec<String> {
    let of = |(stem, ranges): (&String, &Vec<(u32, u32)>)| -> Vec<String> {
        match ranges.is_empty() {
            true => vec![stem.clone()],
            false => ranges.iter().flat_map(|&(a, b)| a..=b).map(|n| format!("blk.{n}.{stem}")).collect(),
        }
    };
    stems.iter().flat_map(of).collect()
}

/// A model without numbers.
struct Hollow {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

impl Hollow {
    fn new(model: &Model) -> Self {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", model.architecture.as_str());
        model.keys.iter().for_each(|(key, value)| drop(metadata.insert(key.as_str(), *value)));
        let mut tensors = Vec::new();
        for (dims, stems) in &model.tensors {
            let bytes = 4 * dims.iter().product::<u64>();
            let tensor =
                |name| TensorInfo { name, ty: Type::F32, dims: dims.clone(), part: 0, offset: 0, bytes };
            tensors.extend(names(stems).into_iter().map(tensor));
        }
        Self { metadata, tensors }
    }
}

impl Checkpoint for Hollow {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|t| t.name == name)
    }

    fn rows(&self, t: &TensorInfo, first: u64, count: u64) -> Result<Cow<'_, [u8]>, cera_gguf::Error> {
        Err(cera_gguf::Error::Rows { tensor: t.name.clone(), first, count, rows: 0 })
    }

    fn release(&self, _: &TensorInfo) {}
}

/// Importances of all of a model's tensors, read from a file.
fn importances(tensors: &[TensorInfo]) -> Importances {
    let mut bytes = (tensors.len() as i32).to_le_bytes().to_vec();
    for t in tensors {
        let columns = t.cols() * t.dims.get(2).unwrap_or(&1);
        bytes.extend((t.name.len() as i32).to_le_bytes());
        bytes.extend(t.name.as_bytes());
        bytes.extend(2i32.to_le_bytes());
        bytes.extend((columns as i32).to_le_bytes());
        (0..columns).for_each(|_| bytes.extend(1f32.to_le_bytes()));
    }
    bytes.extend(5i32.to_le_bytes());
    bytes.extend(5i32.to_le_bytes());
    bytes.extend(b"words");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.dat");
    fs::write(&path, bytes).unwrap();
    Importances::open(path).unwrap()
}

/// The types as a record has them.
fn found(model: &Quantized) -> BTreeMap<String, String> {
    model.tensors().iter().map(|t| (t.name.clone(), t.ty.name().to_lowercase())).collect()
}

#[test]
fn mixes_are_llama_cpps() {
    let record: Types = record("types.json");
    let mut seen = std::collections::HashSet::new();
    let mut blind = 0;
    for of in &record.mixes {
        let what = format!("{} {} importances: {}", of.model, of.mix, of.importances);
        let hollow = Hollow::new(&record.models[&of.model]);
        let mix: Mix = of.mix.parse().unwrap();
        seen.insert(mix);
        let mut recipe = Recipe::new(mix);
        recipe.importances = of.importances.then(|| importances(&hollow.tensors));
        let names: Vec<String> = hollow.tensors.iter().map(|t| t.name.clone()).collect();
        let made = Quantized::new(Box::new(hollow), recipe);
        let Some(types) = &of.types else {
            assert!(matches!(made, Err(Error::Tensor { .. })), "{what}");
            continue;
        };
        let mut expected: BTreeMap<String, String> =
            names.into_iter().map(|name| (name, of.plain.clone())).collect();
        for (ty, stems) in types {
            self::names(stems).into_iter().for_each(|name| drop(expected.insert(name, ty.clone())));
        }
        match made {
            Ok(made) => assert_eq!(found(&made), expected, "{what}"),
            // llama.cpp's dry run only warns of these.
            Err(Error::Blind { tensor, ty }) => {
                assert!(!of.importances, "{what}: {tensor}");
                assert_eq!(expected[&tensor], ty.name().to_lowercase(), "{what}: {tensor}");
                blind += 1;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(Mix::ALL.iter().all(|mix| seen.contains(mix)));
    assert!(blind > 0);
}

#[test]
fn types_of_some_tensors_may_be_given() {
    let record: Types = record("types.json");
    for case in &record.cases {
        let mut recipe = Recipe::new(case.mix.parse().unwrap());
        let mut words = case.words.iter();
        let ty = |name: &str| Type::from_name(name).unwrap();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--pure" => recipe.pure = true,
                "--leave-output-tensor" => recipe.leave_output = true,
                "--output-tensor-type" => recipe.output = words.next().map(|name| ty(name)),
                "--token-embedding-type" => recipe.embedding = words.next().map(|name| ty(name)),
                "--tensor-type" => {
                    let (pattern, name) = words.next().unwrap().split_once('=').unwrap();
                    recipe.tensors.push((regex::Regex::new(pattern).unwrap(), ty(name)));
                }
                other => panic!("{other}"),
            }
        }
        let made = Quantized::new(Box::new(Hollow::new(&record.models[&case.model])), recipe).unwrap();
        let mut expected = BTreeMap::new();
        for (ty, stems) in &case.types {
            names(stems).into_iter().for_each(|name| drop(expected.insert(name, ty.clone())));
        }
        assert_eq!(found(&made), expected, "{} {} {:?}", case.model, case.mix, case.words);
    }
}

#[test]
fn files_are_llama_cpps_where_nothing_is_searched_for() {
    let record: Files = record("files.json");
    let folder = tempfile::tempdir().unwrap();
    for Written { model, mix, sha256 } in &record.files {
        let source = Source::open(fixtures().join(format!("{model}.gguf"))).unwrap();
        let (source, notes) = source.quantized(Recipe::new(mix.parse().unwrap())).unwrap();
        let path = folder.path().join(format!("{model}-{mix}.gguf"));
        let mut last = (0, 0);
        let bytes = save(source.checkpoint(), &path, &mut |done, total| {
            last = (done, total);
            ControlFlow::Continue(())
        });
        assert_eq!(last.0, last.1);
        let file = fs::read(&path).unwrap();
        assert_eq!(file.len() as u64, bytes.unwrap());
        let hash: String = Sha256::digest(&file).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(&hash, sha256, "{model} {mix}, fallbacks {:?}", notes.fallbacks);
    }
}

#[test]
fn keys_say_what_importances_were_used() {
    let record: Files = record("files.json");
    let gguf = Gguf::open(fixtures().join("qwen2.gguf")).unwrap();
    let matrices: Vec<TensorInfo> = gguf.tensors().iter().filter(|t| t.dims.len() > 1).cloned().collect();
    let mut recipe = Recipe::new(Mix::Q8_0);
    recipe.importances = Some(importances(&matrices));
    let (source, notes) = Source::from(gguf).quantized(recipe).unwrap();
    assert_eq!(notes.without_importances, Vec::<String>::new());
    let keys: Vec<(String, String)> = source
        .checkpoint()
        .metadata()
        .iter()
        .filter(|(key, _)| !key.starts_with("tokenizer."))
        .map(|(key, value)| (key.to_owned(), value.to_string()))
        .collect();
    let order: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    let expected: Vec<&str> = record.with_importances.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(order, expected);
    for ((key, own), (_, theirs)) in keys.iter().zip(&record.with_importances) {
        let of_file = key == "quantize.imatrix.file";
        let expected = theirs.to_string();
        let same = if of_file { own.contains("words.dat") } else { *own == expected };
        assert!(same || theirs.is_f64(), "{key} is {own}, not {theirs}");
    }
}

#[test]
fn importances_move_errors_to_where_they_count_less() {
    let gguf = Gguf::open(fixtures().join("qwen2.gguf")).unwrap();
    let name = "blk.0.ffn_down.weight";
    let mut numbers = vec![0.0; 128 * 64];
    let t = gguf.tensor(name).unwrap().clone();
    cera_quant::decode(Type::F32, gguf.tensor_bytes(&t), &mut numbers).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.dat");
    let mut bytes = 1i32.to_le_bytes().to_vec();
    bytes.extend((name.len() as i32).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(1i32.to_le_bytes());
    bytes.extend(128i32.to_le_bytes());
    (0..128).for_each(|i| bytes.extend(if i % 8 == 0 { 1f32 } else { 1e-4 }.to_le_bytes()));
    fs::write(&path, bytes).unwrap();
    let error = |importances| {
        let mut recipe = Recipe::new(Mix::Q4_0);
        recipe.importances = importances;
        recipe.pure = true;
        let source = Source::open(fixtures().join("qwen2.gguf")).unwrap().quantized(recipe).unwrap().0;
        let own = source.checkpoint().tensor(name).unwrap();
        let mut back = vec![0.0; numbers.len()];
        // In two parts, which have to come to the same as one.
        let some = source.checkpoint().rows(own, 0, 40).unwrap().into_owned();
        let rest = source.checkpoint().rows(own, 40, 24).unwrap();
        let bytes = [some, rest.into_owned()].concat();
        assert_eq!(bytes, source.checkpoint().rows(own, 0, 64).unwrap().as_ref());
        cera_quant::decode(Type::Q4_0, &bytes, &mut back).unwrap();
        numbers.iter().zip(&back).step_by(8).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    let (blind, told) = (error(None), error(Some(Importances::open(&path).unwrap())));
    assert!(told < 0.8 * blind, "{told} {blind}");
}

#[test]
fn what_cannot_be_quantized_is_refused() {
    let open = |mix| Source::open(fixtures().join("qwen2.gguf")).unwrap().quantized(Recipe::new(mix));
    let (eight, _) = open(Mix::Q8_0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eight.gguf");
    save(eight.checkpoint(), &path, &mut |_, _| ControlFlow::Continue(())).unwrap();
    let again = |again| {
        Source::open(&path).unwrap().quantized(Recipe { again, ..Recipe::new(Mix::Q4_0) }).map(|(s, _)| s)
    };
    let error = again(false).err().unwrap();
    assert!(matches!(&error, Error::Again { from: Type::Q8_0, to: Type::Q4_0, .. }), "{error}");
    assert!(again(true).is_ok());

    // What is broken off leaves the former file, and nothing else.
    let before = fs::read(&path).unwrap();
    let four = again(true).unwrap();
    let stopped = save(four.checkpoint(), &path, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let nowhere = folder.path().join("no/such/folder.gguf");
    let error = save(four.checkpoint(), &nowhere, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("no/such"), "{error}");

    // A number that the type cannot hold.
    let mut writer =
        cera_gguf::Writer::new(Hollow::new(&record::<Types>("types.json").models["dense"]).metadata).unwrap();
    writer.tensor("blk.0.ffn_up.weight", Type::F32, &[32, 2]).unwrap();
    let broken = |number: f32| {
        let mut body = writer.clone().begin(Vec::new()).unwrap();
        body.write(&[0f32; 63].map(f32::to_le_bytes).concat()).unwrap();
        body.write(&number.to_le_bytes()).unwrap();
        Gguf::from_bytes(body.finish().unwrap()).unwrap()
    };
    for (number, mix, word) in
        [(f32::NAN, Mix::Q8_0, "NaN"), (f32::INFINITY, Mix::BF16, "inf"), (1e6, Mix::F16, "1000000")]
    {
        let (source, _) = Source::from(broken(number)).quantized(Recipe::new(mix)).unwrap();
        let file = source.checkpoint();
        assert!(file.rows(&file.tensors()[0], 0, 1).is_ok());
        let error = file.rows(&file.tensors()[0], 0, 2).unwrap_err().to_string();
        assert!(error.contains("ffn_up") && error.contains(word), "{error}");
    }
}

//! A Hugging Face folder in the place of a file.

use std::fs;
use std::path::PathBuf;

use cera_conformance::FolderFixture;
use serde_json::json;

use crate::tiny::Text;
use crate::{Place, bad, good, object, text};

/// A folder of the fixtures, written beside the place's model.
pub fn folder(place: &Place, name: &str) -> PathBuf {
    let folder = place.path(name);
    fs::create_dir_all(&folder).unwrap();
    FolderFixture::read(name).unwrap().write(&folder).unwrap();
    folder
}

#[test]
fn a_folder_runs_like_a_file() {
    let place = Place::new(Text::None);
    let path = text(&folder(&place, "llama"));
    let o = object(&good(&mut place.cera(&["inspect", "-m", &path, "--json"])).out);
    assert_eq!((&o["version"], &o["metadata"]["llama.block_count"]), (&json!(null), &json!(2)));
    let o = object(&good(&mut place.cera(&["tokenize", "-m", &path, "-p", "The engine", "--json"])).out);
    assert!(o["count"].as_u64().unwrap() < 10, "{o}");
    let words = ["run", "-m", &path, "-p", "The engine", "-n", "4", "--temp", "0", "--device", "reference"];
    let o = object(&good(place.cera(&words).arg("--json")).out);
    assert_eq!((&o["chat_template"], o["ids"].as_array().unwrap().len()), (&json!(true), 4));
    assert!(good(&mut place.cera(&["plan", "-m", &path])).out.contains("attend"));
    good(&mut place.cera(&["bench", "-m", &path, "-p", "4", "-n", "2", "-r", "1"]));
}

#[test]
fn a_folder_that_is_not_whole_is_refused_by_name() {
    let place = Place::new(Text::None);
    let path = folder(&place, "mixtral");
    let model = text(&path);
    let inspect = ["inspect", "-m", &model];
    let config = fs::read_to_string(path.join("config.json")).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
        config[key] = value;
        fs::write(path.join("config.json"), config.to_string()).unwrap();
    };
    with("architectures", json!(["NoSuchForCausalLM"]));
    bad(&mut place.cera(&inspect), 1, &["NoSuchForCausalLM", "MixtralForCausalLM"]);
    with("hidden_size", json!("wide"));
    bad(&mut place.cera(&inspect), 1, &["config.json", "hidden_size", "wide"]);
    with("quantization_config", json!({ "quant_method": "gptq" }));
    bad(&mut place.cera(&inspect), 1, &["gptq"]);
    with("hidden_act", json!("relu"));
    bad(&mut place.cera(&inspect), 1, &["hidden_act", "relu"]);
    fs::write(path.join("config.json"), &config).unwrap();
    good(&mut place.cera(&inspect));

    let shard = path.join("model-00002-of-00002.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    bad(&mut place.cera(&inspect), 1, &["tensor", "of the data, which has"]);
    fs::remove_file(&shard).unwrap();
    bad(&mut place.cera(&inspect), 1, &["model-00002-of-00002.safetensors"]);
    fs::remove_file(path.join("model.safetensors.index.json")).unwrap();
    bad(&mut place.cera(&["plan", "-m", &model]), 1, &["block_count", "of 1 blocks"]);
    fs::remove_file(path.join("config.json")).unwrap();
    bad(&mut place.cera(&inspect), 1, &["config.json"]);
}

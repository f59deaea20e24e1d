//! Fewer bits a weight: as a file, and while a model is loaded.

use std::fs;

use serde_json::json;

use crate::folder::folder;
use crate::tiny::Text;
use crate::{Place, bad, good, object, text};

#[test]
fn a_quantized_file_answers_like_its_original() {
    let place = Place::new(Text::Chat);
    let (model, out) = (text(&place.model), text(&place.path("small.gguf")));
    let o = object(&good(&mut place.cera(&["quantize", &model, &out, "q8_0", "--json"])).out);
    assert_eq!((&o["path"], &o["mix"]), (&json!(out), &json!("Q8_0")));
    assert_eq!(o["bytes"], fs::metadata(&out).unwrap().len());
    assert_eq!(o["types"][0]["type"], "Q8_0");
    let bits = o["bits_a_weight"].as_f64().unwrap();
    assert!((8.5..8.6).contains(&bits), "{bits}");
    let words = ["run", "-m", &out, "-p", "x", "--temp", "0", "-n", "3"];
    assert_eq!(good(&mut place.cera(&words)).out, "ABC\n");

    // Nothing is written over unasked.
    bad(&mut place.cera(&["quantize", &model, &out, "Q4_0"]), 1, &["small.gguf", "--force"]);
    let said = good(&mut place.cera(&["quantize", &model, &out, "Q4_0", "--force", "-t", "1"]));
    assert!(said.out.contains("small.gguf: Q4_0") && said.out.contains("bits a weight"), "{}", said.out);
    let o = object(&good(&mut place.cera(&["inspect", "-m", &out, "--json"])).out);
    assert_eq!(o["metadata"]["general.file_type"], 2);
    bad(&mut place.cera(&["quantize", &out, "x", "Q4_1"]), 1, &["Q4_0", "Q4_1", "--allow-requantize"]);
    good(&mut place.cera(&["quantize", &out, &text(&place.path("x")), "Q4_1", "--allow-requantize"]));
}

#[test]
fn a_dry_run_shows_types_and_writes_nothing() {
    let place = Place::new(Text::None);
    let (model, out) = (text(&place.model), text(&place.path("small.gguf")));
    let words = ["quantize", &model, &out, "Q4_K_M", "--dry-run"];
    let said = good(&mut place.cera(&words));
    // Rows of 288 are no blocks of 256.
    assert!(said.err.contains("blk.0.attn_q.weight: ") && said.err.contains("Q5_0"), "{}", said.err);
    assert!(said.out.contains("blk.0.attn_norm.weight") && said.out.contains(" before"), "{}", said.out);
    let chosen =
        ["--tensor-type", "ffn_(up|gate)=q8_0", "--token-embedding-type", "f16", "--leave-output-tensor"];
    let o = object(&good(place.cera(&words).args(chosen).arg("--json")).out);
    assert_eq!(o["fallbacks"]["blk.0.attn_q.weight"], "Q5_0");
    let of = |name: &str| {
        let tensors = o["tensors"].as_array().unwrap();
        tensors.iter().find(|t| t["name"] == name).unwrap()["type"].as_str().unwrap().to_owned()
    };
    let names = ["blk.0.ffn_up.weight", "token_embd.weight", "output.weight", "blk.0.ffn_norm.weight"];
    assert_eq!(names.map(of), ["Q8_0", "F16", "F32", "F32"]);
    assert!(!place.path("small.gguf").exists());
}

#[test]
fn what_makes_no_mix_is_refused() {
    let place = Place::new(Text::None);
    let model = text(&place.model);
    let quantize = |words: &[&str]| {
        let mut command = place.cera(&["quantize", &model, "/no/such/folder/out.gguf"]);
        command.args(words);
        command
    };
    bad(&mut quantize(&["Q4_K_XL"]), 2, &["Q4_K_XL", "Q4_K_M"]);
    bad(&mut quantize(&["Q4_0", "--output-tensor-type", "q9"]), 2, &["q9", "MXFP4"]);
    bad(&mut quantize(&["Q4_0", "--tensor-type", "ffn_down"]), 2, &["ffn_down=q6_k"]);
    bad(&mut quantize(&["Q4_0", "--tensor-type", "(=q6_k"]), 2, &["regex"]);
    bad(&mut quantize(&["Q4_0", "--include-weights", "ffn"]), 2, &["--imatrix"]);
    bad(&mut quantize(&["Q4_0"]), 1, &["/no/such/folder/out.gguf"]);
    bad(&mut quantize(&["Q4_0", "--imatrix", "/no/such"]), 1, &["/no/such"]);
    let list = place.file("list.dat", [1, 0, 0, 0, 9, 0, 0, 0, b'x']);
    bad(&mut quantize(&["Q4_0", "--imatrix", &list]), 1, &["list.dat", "entry 1 of 1"]);
    bad(&mut place.cera(&["quantize", "/no/such", "out", "Q4_0"]), 1, &["/no/such"]);
    bad(&mut place.cera(&["quantize", &model, "out", "Q4_0", "--pre", "qwen2"]), 2, &["--pre"]);
}

#[test]
fn a_folder_may_be_quantized_while_it_is_loaded() {
    let place = Place::new(Text::None);
    let path = text(&folder(&place, "llama"));
    let words =
        ["run", "-m", &path, "-p", "The engine", "-n", "4", "--temp", "0", "--json", "--quant", "q8_0"];
    let o = object(&good(&mut place.cera(&words)).out);
    assert_eq!(o["ids"].as_array().unwrap().len(), 4);
    let plan = good(&mut place.cera(&["plan", "-m", &path, "--quant", "q8_0"])).out;
    assert!(plan.contains("Q8_0 [") && !plan.contains("BF16 ["), "{plan}");
    // A file of floats too, but no file that is quantized already.
    let (model, out) = (text(&place.model), text(&place.path("small.gguf")));
    good(&mut place.cera(&["run", "-m", &model, "--ids", "65", "-n", "1", "--quant", "q8_0"]));
    good(&mut place.cera(&["quantize", &model, &out, "Q8_0"]));
    bad(&mut place.cera(&["plan", "-m", &out, "--quant", "q4_0"]), 1, &["Q8_0", "Q4_0", "not quantized yet"]);
    bad(&mut place.cera(&["run", "-m", &path, "-p", "x", "--quant", "q4"]), 2, &["q4", "Q4_K_M"]);
    let against = ["bench", "-m", &path, "--quant", "q8_0", "--against", "llama-bench"];
    bad(&mut place.cera(&against), 2, &["--quant"]);
}

#[test]
fn a_folder_becomes_a_file() {
    let place = Place::new(Text::None);
    let (path, out) = (text(&folder(&place, "llama")), text(&place.path("llama.gguf")));
    let ids = |model: &str| {
        let words = ["run", "-m", model, "-p", "The engine", "-n", "4", "--temp", "0", "--json"];
        object(&good(&mut place.cera(&words)).out)["ids"].clone()
    };
    bad(&mut place.cera(&["convert", &path, &out]), 1, &["pre-tokenizer", "--pre"]);
    let words = ["convert", &path, &out, "--pre", "qwen2", "--json"];
    let o = object(&good(&mut place.cera(&words)).out);
    assert_eq!((&o["pre"], &o["bytes"]), (&json!("qwen2"), &json!(fs::metadata(&out).unwrap().len())));
    assert_eq!(ids(&out), ids(&path));
    bad(&mut place.cera(&words), 1, &["llama.gguf", "--force"]);
    for (outtype, ty) in [("f32", "F32"), ("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0")] {
        let o = object(&good(place.cera(&words).args(["--force", "--outtype", outtype])).out);
        assert_eq!(o["types"][0]["type"], ty);
    }
    assert_eq!(ids(&out).as_array().unwrap().len(), 4);
    // Both at once.
    let four = text(&place.path("four.gguf"));
    good(&mut place.cera(&["quantize", &path, &four, "Q4_0", "--pre", "qwen2"]));
    assert_eq!(ids(&four).as_array().unwrap().len(), 4);
    bad(&mut place.cera(&["convert", "/no/such", "out"]), 1, &["/no/such"]);
    bad(&mut place.cera(&["convert", &path, "out", "--outtype", "q4"]), 2, &["q4", "bf16"]);
}

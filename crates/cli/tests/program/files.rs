//! What a file holds: inspect, plan, tokenize, logits, bench.

use serde_json::json;

use crate::tiny::{END_OF_TEXT, TURN, Text, VOCABULARY, next};
use crate::{Place, bad, good, object, objects, text};

const REFERENCE: &[&str] = &["--device", "reference"];

#[test]
fn inspect_shows_metadata_types_and_tensors() {
    let place = Place::new(Text::Chat);
    let out = good(&mut place.with_model(&["inspect"])).out;
    for part in ["general.architecture = \"llama\"", "F32", "blk.0.attn_q.weight", "288 x 260"] {
        assert!(out.contains(part), "no {part} in {out}");
    }
    let o = object(&good(&mut place.with_model(&["inspect", "--json"])).out);
    assert_eq!(o["metadata"]["llama.block_count"], 1);
    assert_eq!(o["metadata"]["tokenizer.ggml.tokens"]["length"], VOCABULARY);
    assert_eq!(o["types"][0], json!({ "type": "F32", "tensors": 12, "bytes": o["types"][0]["bytes"] }));
    let embedding = &o["tensors"][0];
    assert_eq!(embedding["name"], "token_embd.weight");
    assert_eq!(embedding["dims"], json!([288, VOCABULARY]));
    assert_eq!(embedding["bytes"], 288 * VOCABULARY * 4);
}

#[test]
fn plan_shows_ops_and_the_backends_verdicts() {
    let place = Place::new(Text::None);
    let out = good(place.with_model(&["plan"]).args(REFERENCE)).out;
    assert!(out.contains("attend") && out.contains("taken 1 times"), "{out}");
    let o = object(&good(place.with_model(&["plan", "--json"]).args(REFERENCE)).out);
    assert_eq!((&o["backend"], &o["vocabulary"]), (&json!("reference"), &json!(VOCABULARY)));
    assert!(o["ops"].as_array().unwrap().len() < o["base_ops"].as_u64().unwrap() as usize);
}

#[test]
fn tokenize_shows_ids_and_pieces() {
    let place = Place::new(Text::Plain);
    let out = good(&mut place.with_model(&["tokenize", "-p", "a é~~"])).out;
    let ids: Vec<&str> = out.lines().map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(ids, ["97", "32", "195", "169", "259"]);
    assert!(out.contains("\"~~\""), "{out}");
    let file = place.file("text", "a");
    let o = object(&good(&mut place.with_model(&["tokenize", "-f", &file, "--json"])).out);
    assert_eq!(o, json!({ "count": 1, "tokens": [{ "id": 97, "piece": "a" }] }));
    // The name of a special token is text, unless asked otherwise.
    let o = object(&good(&mut place.with_model(&["tokenize", "-p", "<|im_start|>", "--json"])).out);
    assert_eq!(o["count"], 12);
    let special = ["tokenize", "-p", "<|im_start|>", "--json", "--parse-special"];
    let o = object(&good(&mut place.with_model(&special)).out);
    assert_eq!(o["tokens"][0]["id"], TURN);
    bad(&mut Place::new(Text::None).with_model(&["tokenize", "-p", "a"]), 1, &["no tokenizer"]);
    bad(&mut place.with_model(&["tokenize", "-f", "/no/such"]), 1, &["/no/such"]);
}

#[test]
fn logits_are_little_endian_floats_of_each_token() {
    let place = Place::new(Text::None);
    let path = place.path("logits");
    let logits = |words: &[&str]| -> Vec<f32> {
        let mut command = place.with_model(&["logits", "--out"]);
        good(command.arg(&path).args(REFERENCE).args(words));
        let bytes = std::fs::read(&path).unwrap();
        bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let all = logits(&["--ids", "65 66 48", "--all"]);
    assert_eq!(all.len(), 3 * VOCABULARY);
    for (row, token) in all.chunks(VOCABULARY).zip([65, 66, 48]) {
        let best = (0..VOCABULARY).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(best, next(token));
    }
    assert!(logits(&["--ids", "65 66 48", "--all", "--chunk", "1"]) == all);
    assert!(logits(&["--ids", "65 66 48"]) == all[2 * VOCABULARY..]);

    let words = ["logits", "--ids", "1", "--out", "/no/such/folder/file"];
    bad(place.with_model(&words).args(REFERENCE), 1, &["/no/such/folder/file"]);
    let beyond = VOCABULARY.to_string();
    let words = ["logits", "--ids", &beyond, "--out", "/dev/null"];
    bad(place.with_model(&words).args(REFERENCE), 1, &["260"]);
}

#[test]
fn bench_measures_a_file_without_a_vocabulary() {
    let place = Place::new(Text::None);
    let words = ["bench", "-p", "16", "-n", "4", "-r", "2", "--chunk", "8"];
    let out = good(place.with_model(&words).args(REFERENCE)).out;
    assert!(out.contains("pp16") && out.contains("tg4"), "{out}");
    let mut command = place.with_model(&words);
    let tests = objects(&good(command.args(REFERENCE).args(["--json", "-d", "40"])).out);
    assert_eq!(tests.len(), 2);
    for (test, name) in tests.iter().zip(["pp16 @ d40", "tg4 @ d40"]) {
        assert_eq!(test["test"], name);
        assert_eq!(
            (&test["backend"], &test["chunk"], &test["depth"]),
            (&json!("reference"), &json!(8), &json!(40))
        );
        let [least, median, most] = ["least", "tokens_per_second", "most"].map(|k| test[k].as_f64().unwrap());
        assert!(0.0 < least && least <= median && median <= most);
        assert_eq!(test["samples"].as_array().unwrap().len(), 2);
    }
    bad(place.with_model(&["bench", "-p", "5000"]).args(REFERENCE), 1, &["5000", "4096"]);
}

#[test]
fn the_processor_gives_the_same_answers() {
    let place = Place::new(Text::None);
    let path = text(&place.path("logits"));
    good(&mut place.with_model(&[
        "logits",
        "--ids",
        "65",
        "--out",
        &path,
        "-t",
        "1",
        "--cpu-tier",
        "scalar",
    ]));
    let bytes = std::fs::read(&path).unwrap();
    let row: Vec<f32> = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let best = (0..VOCABULARY).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    assert_eq!(best, 66);
    let o =
        object(&good(&mut place.with_model(&["run", "--ids", "65", "-n", "3", "--temp", "0", "--json"])).out);
    assert_eq!(o["ids"], json!([66, 67, 68]));
    assert_ne!(o["ids"][0], END_OF_TEXT);
}

#[test]
fn rerank_shows_documents_from_the_best_on() {
    let place = Place::new(Text::None);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/fixtures/rerank/qwen3.gguf");
    let file = place.file("documents", "the river\n\na stone\n");
    let words = ["rerank", "-m", model, "-q", "water", "-d", "the sea", "-f", &file, "-c", "256", "--json"];
    let out = good(&mut place.cera(&words)).out;
    let ranked: Vec<_> = out.lines().map(crate::object).collect();
    let scores: Vec<f64> = ranked.iter().map(|r| r["score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let documents = ["the sea", "the river", "a stone"];
    for r in &ranked {
        assert_eq!(r["document"], documents[r["index"].as_u64().unwrap() as usize]);
    }
    let out = good(place.cera(&words[..words.len() - 1]).args(["--top-n", "1"])).out;
    let best = ranked[0]["document"].as_str().unwrap();
    assert!(out.ends_with(&format!("\t{best}\n")) && out.lines().count() == 1, "{out}");

    bad(&mut place.cera(&["rerank", "-m", model, "-q", "x"]), 2, &["--document"]);
    bad(&mut place.cera(&["embed", "-m", model, "-p", "x"]), 2, &["cera rerank"]);
    bad(place.with_model(&["rerank", "-q", "x", "-d", "y"]).args(REFERENCE), 1, &["cls.output.weight"]);
}

#[test]
fn embed_gives_a_vector_a_text() {
    let place = Place::new(Text::Plain);
    let file = place.path("texts");
    std::fs::write(&file, "AB\n\nC\n").unwrap();
    let words = ["embed", "--pooling", "mean", "--json", "-f", file.to_str().unwrap()];
    let found = objects(&good(place.with_model(&words).args(REFERENCE)).out);
    let near = |v: &serde_json::Value, expected: f64| (v.as_f64().unwrap() - expected).abs() < 1e-6;
    assert_eq!(found.iter().map(|o| o["tokens"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 1]);
    let [two, one] = [&found[0]["embedding"], &found[1]["embedding"]];
    assert!(near(&two[65], 0.5f64.sqrt()) && near(&two[66], 0.5f64.sqrt()) && near(&one[67], 1.0));

    let out = good(place.with_model(&["embed", "--pooling", "last", "-p", "AB"]).args(REFERENCE)).out;
    let numbers: Vec<f32> = out.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(numbers.len() == 288 && (numbers[66] - 1.0).abs() < 1e-6, "{out}");
    // The file does not say which pooling it is for.
    bad(place.with_model(&["embed", "-p", "AB"]).args(REFERENCE), 2, &["--pooling"]);
}

//! `tokenizer.json` files: the ids of Hugging Face's `tokenizers`, for one small tokenizer of each form
//! (`tests/data/hf`, made by `conformance/witness/make_tokenizers.py`), and what is refused.

use cera_token::{Error, HfFiles, Kind, Shown, Special, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

macro_rules! forms {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("data/hf/", $name, ".json")))),*]
    };
}

const FORMS: [(&str, &str); 22] = forms! {
    "alphabet" "bert" "bert_cased" "deepseek" "falcon" "flags" "gemma" "gpt2" "llama2" "llama3" "metaspace_first"
    "metaspace_never" "o200k" "plain" "plain_fused" "qwen" "roberta" "starcoder" "t5" "threes" "unigram_bytes" "xlmr"
};

fn load(tokenizer: &str) -> Result<Tokenizer, Error> {
    Tokenizer::from_hf(&HfFiles { tokenizer, ..HfFiles::default() })
}

/// The tokenizer of a form, as JSON that a test may change.
fn form(name: &str) -> Value {
    let (_, text) = FORMS.into_iter().find(|(form, _)| *form == name).unwrap();
    serde_json::from_str::<Value>(text).unwrap()["tokenizer"].take()
}

fn refused(name: &str, change: impl FnOnce(&mut Value)) -> Error {
    let mut json = form(name);
    change(&mut json);
    load(&json.to_string()).expect_err("must be refused")
}

#[test]
fn every_form_agrees_with_tokenizers() {
    let mut failures = Vec::new();
    for (name, text) in FORMS {
        let data: Value = serde_json::from_str(text).unwrap();
        let tokenizer =
            load(&data["tokenizer"].to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
        // The first text is empty.
        let around = data["lines"][0]["whole"].as_array().unwrap();
        for line in data["lines"].as_array().unwrap() {
            let text = line["text"].as_str().unwrap();
            let wanted = |key: &str| -> Vec<u32> {
                line[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
            };
            let mut check = |way: &str, got: Vec<u32>, want: Vec<u32>| {
                if got != want {
                    failures.push(format!("{name} {way} {text:?}\n  want {want:?}\n  got  {got:?}"));
                }
            };
            let as_text = tokenizer.encode(text, Special::AsText).unwrap();
            check("parse", tokenizer.encode(text, Special::Parse).unwrap(), wanted("parse"));
            // `tokenizers` puts its tokens before and behind a text that spells them, too.
            let mut whole = wanted("whole");
            if whole.len() > 1 && tokenizer.add_bos().is_some() && whole[0] == whole[1] {
                whole.remove(0);
            }
            if whole.len() > 2 && around.len() > usize::from(tokenizer.add_bos().is_some()) {
                let last = whole.len() - 1;
                whole.drain(last..last + usize::from(whole[last] == whole[last - 1]));
            }
            check("whole", tokenizer.encode_whole(text, Special::Parse).unwrap(), whole);
            check("as text", as_text, wanted("as_text"));
            // A token that is found in normalized text is shown as the file has it, not as it was found.
            let shown_otherwise = name == "flags" && text.contains("River");
            if let Some(want) = line["decoded"].as_str().filter(|_| !shown_otherwise) {
                let got = tokenizer.decode(&wanted("as_text"), Shown::All).unwrap();
                if got != want {
                    failures.push(format!("{name} {text:?} comes back as {got:?}, wanted {want:?}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Real files, from the folder that `CERA_TEST_TOKENIZERS` names: `bert.json` and so on.
#[test]
fn real_files_agree_with_tokenizers() {
    let data: Value = serde_json::from_str(include_str!("data/hf_real.json")).unwrap();
    let folder = std::env::var_os("CERA_TEST_TOKENIZERS").map(std::path::PathBuf::from);
    let mut failures = Vec::new();
    for (name, wanted) in data["tokenizers"].as_object().unwrap() {
        let path = folder.as_ref().map(|folder| folder.join(format!("{name}.json")));
        let Some(file) = path.and_then(|path| std::fs::read_to_string(path).ok()) else {
            println!("skipped: tokenizer {name} not fetched");
            continue;
        };
        let tokenizer = load(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (text, wanted) in data["texts"].as_array().unwrap().iter().zip(wanted.as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let ids = tokenizer.encode(text, Special::AsText).unwrap();
            if json!(ids) != *wanted {
                failures.push(format!("{name} {text:?}\n  want {wanted}\n  got  {ids:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_is_not_supported_is_named() {
    let unsupported = |name, change: &dyn Fn(&mut Value)| match refused(name, change) {
        Error::Unsupported { part, what } => format!("{part}: {what}"),
        other => panic!("{other}"),
    };
    let part = |key: &'static str, value: Value| unsupported("gpt2", &|json| json[key] = value.clone());
    assert_eq!(part("normalizer", json!({"type": "Sorcery"})), "normalizer: Sorcery");
    assert_eq!(part("pre_tokenizer", json!({"type": "UnicodeScripts"})), "pre_tokenizer: UnicodeScripts");
    assert_eq!(part("post_processor", json!({"type": "Sorcery"})), "post_processor: Sorcery");
    assert_eq!(part("decoder", json!({"type": "CTC"})), "decoder: CTC");
}

#[test]
fn models_that_are_not_supported_are_named() {
    let model = |key: &'static str, value: Value| refused("gpt2", |json| json["model"][key] = value);
    let named = |error: Error, text: &str| assert!(error.to_string().contains(text), "{error}");
    named(model("type", json!("WordLevel")), "WordLevel");
    named(model("dropout", json!(0.1)), "dropout");
    named(model("end_of_word_suffix", json!("</w>")), "end_of_word_suffix");
    named(model("continuing_subword_prefix", json!("##")), "continuing_subword_prefix");
    assert!(matches!(model("merges", json!([])), Error::NoMerges));
    assert!(matches!(model("merges", json!(["a b c"])), Error::Merge { index: 0, .. }));
    assert!(matches!(model("merges", json!([["a", "nonesuch"]])), Error::Merge { index: 0, .. }));
    assert!(matches!(model("vocab", json!([["a", 0.5]])), Error::Unsupported { part: "model", .. }));
    let unknown = refused("bert", |json| json["model"]["unk_token"] = json!("[NONE]"));
    assert!(matches!(unknown, Error::NoUnknown), "{unknown}");
}

#[test]
fn expressions_that_engines_read_differently_are_refused() {
    let split = |expression: &str| {
        refused("qwen", |json| {
            json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!(expression);
        })
    };
    for expression in [r"\bword\b", r"(?<=a)b", r"(?i)a", r"a(?!b)", r"a*", "(", r"\p{Nonesuch}"] {
        let error = split(expression);
        let shown = matches!(&error, Error::Expression { expression: named, .. } if named == expression);
        assert!(shown, "{expression}: {error}");
    }
}

#[test]
fn ids_are_checked() {
    let token = |id: Value, content: &str| {
        let new = json!({"id": id, "content": content, "special": true});
        refused("gpt2", |json| json["added_tokens"].as_array_mut().unwrap().push(new))
    };
    // More than there are bytes in the file: a list of so many tokens would be the file's own doing.
    let refused_id = |id: u64, text: &str| match token(json!(id), text) {
        Error::TokenIdOf { id, what, .. } => (id, what),
        other => panic!("{other}"),
    };
    assert_eq!(refused_id(4_000_000_000, "<x>"), (4_000_000_000, "more than there can be tokens"));
    assert_eq!(refused_id(u64::MAX, "<x>"), (u64::MAX, "more than there can be tokens"));
    assert_eq!(refused_id(5, "<x>"), (5, "another token has it"));
    // The model has this one, as token 1.
    assert_eq!(refused_id(1000, "!"), (1, "an added token of the same text has another"));
    assert!(matches!(token(json!(-1), "<x>"), Error::Json { .. }));
    let score = refused("t5", |json| json["model"]["vocab"][9][1] = json!("much"));
    assert!(matches!(score, Error::Json { file: "tokenizer.json", .. }));
}

#[test]
fn json_that_is_none_is_refused_with_its_place() {
    for text in ["", "{", "[]", "{}", r#"{"model":7}"#, r#"{"model":{"vocab":{}}}"#] {
        assert!(load(text).is_err(), "{text}");
    }
    let error = load("{\"model\": {\n\"vocab\": {\"a\" 1}}}").unwrap_err().to_string();
    assert!(error.starts_with("tokenizer.json: ") && error.contains("line 2"), "{error}");
    let deep = format!("{{\"normalizer\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(load(&deep), Err(Error::Json { .. })));
}

#[test]
fn hostile_sequences_and_replacements_are_bounded() {
    let nested = |depth: usize| {
        (0..depth)
            .fold(json!({"type": "NFC"}), |inner, _| json!({"type": "Sequence", "normalizers": [inner]}))
    };
    assert!(matches!(refused("gpt2", |json| json["normalizer"] = nested(20)), Error::Unsupported { .. }));
    let many = |count: usize| json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); count]});
    assert!(matches!(refused("gpt2", |json| json["normalizer"] = many(100_000)), Error::Unsupported { .. }));
    let digits = json!({"type": "Digits", "individual_digits": true});
    let digits = json!({"type": "Sequence", "pretokenizers": vec![digits; 100]});
    assert!(matches!(refused("plain", |json| json["pre_tokenizer"] = digits), Error::Unsupported { .. }));
    let long = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "b".repeat(1000)});
    assert!(matches!(refused("gpt2", |json| json["normalizer"] = long), Error::Unsupported { .. }));
    // Each doubles the text.
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let mut json = form("gpt2");
    json["normalizer"] = json!({"type": "Sequence", "normalizers": vec![double; 60]});
    let tokenizer = load(&json.to_string()).unwrap();
    assert!(matches!(tokenizer.encode("a", Special::AsText), Err(Error::Grows { bytes: 1 })));
    assert!(tokenizer.encode("b", Special::AsText).is_ok());
}

#[test]
fn broken_maps_of_characters_are_refused_or_find_nothing() {
    use base64::Engine;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let with = |text: String| {
        let mut json = form("t5");
        json["normalizer"]["precompiled_charsmap"] = json!(text);
        load(&json.to_string())
    };
    assert!(matches!(with("?".into()), Err(Error::Charsmap(_))));
    assert!(matches!(with(encode(b"ab")), Err(Error::Charsmap(_))));
    assert!(matches!(with(encode(&[255; 8])), Err(Error::Charsmap(_))));
    assert!(matches!(with(encode(&[3, 0, 0, 0, 0, 0, 0])), Err(Error::Charsmap(_))));
    assert!(matches!(with(encode(&[0, 0, 0, 0, 0xFF, 0])), Err(Error::Charsmap(_))));
    assert!(matches!(with(encode(&[[0; 4].as_slice(), &[b'a'; 300]].concat())), Err(Error::Charsmap(_))));
    let real = form("t5")["normalizer"]["precompiled_charsmap"].as_str().unwrap().to_string();
    let real = base64::engine::general_purpose::STANDARD.decode(real).unwrap();
    // Every bit of the first units turned, one at a time.
    for bit in 32..32 + 8 * 400 {
        let mut bytes = real.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(tokenizer) = with(encode(&bytes)) {
            tokenizer.encode("Ａｂ ﬁ½… e\u{301}ｶﾞﷺ\u{3000}", Special::AsText).unwrap();
        }
    }
}

#[test]
fn the_files_beside_it_give_roles_and_a_template() {
    let tokenizer = form("llama3").to_string();
    let config = json!({
        "bos_token": {"content": "<|begin_of_text|>", "lstrip": false},
        "eos_token": "<|end_of_text|>",
        "pad_token": "[NOT THERE]",
        "chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ messages[0].content }}"}],
    })
    .to_string();
    let files = HfFiles { tokenizer: &tokenizer, config: Some(&config), ..HfFiles::default() };
    let read = Tokenizer::from_hf(&files).unwrap();
    let ids = read.special_ids();
    assert_eq!((ids.bos, ids.eos, ids.pad), (Some(0), Some(1), None));
    assert_eq!((read.eog(), read.add_bos(), read.kind(0)), (&[1][..], Some(0), Some(Kind::Control)));
    assert_eq!(read.template_source(), Some("{{ messages[0].content }}"));
    let files = HfFiles { template: Some("mine"), generation: Some(r#"{"eos_token_id": [1, 7]}"#), ..files };
    let read = Tokenizer::from_hf(&files).unwrap();
    assert_eq!((read.eog(), read.template_source()), (&[1, 7][..], Some("mine")));

    let missing = Some(r#"{"eos_token": "<gone>"}"#);
    let error = Tokenizer::from_hf(&HfFiles { config: missing, ..files }).unwrap_err();
    assert!(matches!(&error, Error::NoSuchToken { text, .. } if text == "<gone>"), "{error}");
    let error = Tokenizer::from_hf(&HfFiles { generation: Some("{"), ..files }).unwrap_err();
    assert!(matches!(error, Error::Json { file: "generation_config.json", .. }));
    let far = Some(r#"{"eos_token_id": 99999}"#);
    assert!(matches!(
        Tokenizer::from_hf(&HfFiles { generation: far, ..files }),
        Err(Error::SpecialId { .. })
    ));
}

#[test]
fn special_tokens_are_text_unless_parsed() {
    let tokenizer = load(&form("llama3").to_string()).unwrap();
    let text = "<|end_of_text|>";
    assert_eq!(tokenizer.encode(text, Special::Parse).unwrap(), [1]);
    let ids = tokenizer.encode(text, Special::AsText).unwrap();
    assert!(ids.len() > 1 && !ids.contains(&1));
    assert_eq!(tokenizer.decode(&ids, Shown::Text).unwrap(), text);
    assert_eq!(tokenizer.decode(&[1], Shown::Text).unwrap(), "");
    // Nor by way of a model that has them in its list.
    let tokenizer = load(&form("t5").to_string()).unwrap();
    assert!(!tokenizer.encode("</s> <pad>", Special::AsText).unwrap().iter().any(|id| *id < 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever the text, every form gives ids of its vocabulary, and byte-level ones the text back.
    #[test]
    fn every_text_has_tokens(text in r"\PC{0,30}|[ a-c▁'é\u{301}\r\n]{0,30}") {
        for (name, _) in FORMS {
            let tokenizer = load(&form(name).to_string()).unwrap();
            for special in [Special::AsText, Special::Parse] {
                let ids = tokenizer.encode(&text, special).unwrap();
                let back = tokenizer.decode(&ids, Shown::All).unwrap();
                if ["gpt2", "llama3", "o200k", "deepseek", "starcoder", "falcon", "threes"].contains(&name) {
                    prop_assert_eq!(&back, &text);
                }
            }
        }
    }

    /// A file with a part changed is refused or works.
    #[test]
    fn changed_files_do_not_panic(seed: u64, text in "[a-z <>▁é]{0,12}") {
        let (name, _) = FORMS[(seed % FORMS.len() as u64) as usize];
        let mut json = form(name);
        change(&mut json, seed / 32);
        if let Ok(tokenizer) = load(&json.to_string())
            && let Ok(ids) = tokenizer.encode_whole(&text, Special::Parse)
        {
            tokenizer.decode(&ids, Shown::Text).unwrap();
        }
    }
}

/// Changes one value somewhere in `json`.
fn change(json: &mut Value, seed: u64) {
    let children = match json {
        Value::Array(items) => items.len(),
        Value::Object(entries) => entries.len(),
        _ => 0,
    };
    if children == 0 || seed.is_multiple_of(5) {
        *json = match seed % 7 {
            0 => Value::Null,
            1 => json!(seed),
            2 => json!(-1),
            3 => json!(true),
            4 => json!("▁"),
            5 => json!([]),
            _ => json!({"type": "Sequence"}),
        };
        return;
    }
    let place = (seed / 5) as usize % children;
    let child = match json {
        Value::Array(items) => items.get_mut(place),
        Value::Object(entries) => entries.values_mut().nth(place),
        _ => None,
    };
    change(child.unwrap(), seed / 5 / children as u64);
}

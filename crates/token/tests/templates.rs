//! llama.cpp's collection of chat templates, rendered as Jinja2 renders them in transformers.
//!
//! The templates are read from the folder that `CERA_TEST_VOCABS` names (`cargo xtask fetch vocabs`). The conversations
//! and digests of the texts are in `data/templates.json`; `conformance/witness/templates.py` writes it, and prints a text.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use cera_token::{Chat, ChatTemplate, Error, VocabSpec};
use common::{spm, tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Record {
    now: u64,
    cases: BTreeMap<String, Case>,
    /// By template and case: the text's digest, "refused" where the template objects, none where Jinja2 fails.
    digests: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

#[derive(Deserialize)]
struct Case {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: Option<bool>,
    #[serde(flatten)]
    variables: Map<String, Value>,
}

/// Adds text to text that it calls safe, upon which Jinja2 escapes the former for HTML, quotes of a tool's description
/// too. No model was meant to see that, and nothing is escaped here.
const ESCAPED: &str = "meetkai-functionary-medium-v3.1";

/// FNV-1a of 64 bits (draft-eastlake-fnv), in hexadecimal.
fn digest(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[test]
fn templates_render_as_in_jinja2() {
    let Some(folder) = std::env::var_os("CERA_TEST_VOCABS").map(|v| PathBuf::from(v).join("templates"))
    else {
        println!("skipped: llama.cpp's templates not fetched (CERA_TEST_VOCABS names the folder above them)");
        return;
    };
    let record: Record = serde_json::from_str(include_str!("data/templates.json")).unwrap();
    // The record has the names of its first and last token, `<s>` and `</s>`.
    let tokenizer = tokenizer(VocabSpec { bos: Some(1), eos: Some(2), ..spm() });
    let mut wrong = String::new();
    let (mut texts, mut refused, mut escaped) = (0, 0, 0);
    for (name, digests) in &record.digests {
        let source = std::fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap();
        let template = match ChatTemplate::new(&source) {
            Ok(template) => template,
            Err(e) => {
                writeln!(wrong, "{name}: {e}").unwrap();
                continue;
            }
        };
        for (case, expected) in digests {
            let Case { messages, tools, add_generation_prompt, variables } = &record.cases[case];
            let chat = Chat {
                messages,
                tools: tools.as_deref(),
                add_generation_prompt: add_generation_prompt.unwrap_or(true),
                variables: variables.clone(),
                now: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(record.now)),
            };
            let got = template.render(&tokenizer, &chat).map(|prompt| prompt.text());
            match (expected.as_deref(), got) {
                (Some("refused"), Err(Error::TemplateRefused(_))) => refused += 1,
                (Some(expected), Ok(text)) if digest(&text) == expected => texts += 1,
                (Some(_), Ok(_)) if name == ESCAPED && tools.is_some() => escaped += 1,
                // Jinja2 fails on a value of another kind, where minijinja may know what to do.
                (None, _) => {}
                (_, Ok(text)) => writeln!(wrong, "{name}, {case}: another text: {text:?}").unwrap(),
                (_, Err(e)) => writeln!(wrong, "{name}, {case}: {e}").unwrap(),
            }
        }
    }
    println!("{} templates: {texts} texts, {refused} refusals", record.digests.len());
    assert!(wrong.is_empty(), "\n{wrong}");
    assert_eq!(escaped, 7, "conversations with tools under {ESCAPED}");
}

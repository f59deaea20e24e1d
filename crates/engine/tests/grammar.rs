//! Answers under a grammar, over a model whose answers are known: it would say the alphabet.

mod tiny;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use cera::{Engine, Error, Event, Finish, Grammar, Options, Report, Request, Service, ServiceOptions};
use cera_backend::Reference;
use cera_sample::Params;
use serde_json::{Value, json};
use tiny::Text;

fn engine(text: Text) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { sequences: 4, context: Some(1024), ..Options::default() };
    Engine::load(&tiny::write(folder.path(), text), Box::new(Reference), &options).unwrap()
}

fn greedy(grammar: Grammar) -> Request {
    Request { sampling: Params::greedy(), grammar: Some(grammar), ..Request::default() }
}

fn regex(text: &str) -> Grammar {
    Grammar::Regex(text.into())
}

fn schema(value: Value) -> Grammar {
    Grammar::JsonSchema(value)
}

/// The answer's text, its ids and how it ended.
fn answer(engine: &mut Engine, prompt: &str, request: &Request) -> Result<(String, Vec<u32>, Report), Error> {
    let mut sequence = engine.sequence();
    sequence.append(&prompt.bytes().map(u32::from).collect::<Vec<_>>()).unwrap();
    let (mut text, mut ids) = (String::new(), Vec::new());
    let report = engine.generate(&mut sequence, request, &mut |event| {
        if let Event::Token(token) = event {
            text.push_str(&token.text);
            ids.push(token.id);
        }
        ControlFlow::Continue(())
    })?;
    Ok((text, ids, report))
}

#[test]
fn the_model_says_what_it_would_where_the_grammar_lets_it() {
    let mut engine = engine(Text::Chat);
    let mut said = |form: Grammar| {
        let (text, ids, report) = answer(&mut engine, "A", &greedy(form)).unwrap();
        (text, ids.last() == Some(&tiny::END_OF_TURN), report.finish)
    };
    // It wants `BCD…`. Where nothing may follow, the answer ends without a token that says so.
    assert_eq!(said(regex("[A-C]{4}")), ("BCAB".into(), false, Finish::Eog));
    assert_eq!(said(regex("no|yes")), ("no".into(), false, Finish::Eog));
    // Where it may go on it goes on until the model itself ends it.
    assert_eq!(said(regex("[A-Z]*")), ("BCDEFGHIJKLMNOPQRSTUVWXYZ".into(), true, Finish::Eog));
    assert_eq!(said(Grammar::Gbnf("root ::= \"é\" [X-Z]+".into())), ("éXYZ".into(), true, Finish::Eog));
    let lark = "%llguidance {}\nstart: \"x=\" /[Y-Z]+/";
    assert_eq!(said(Grammar::Lark(lark.into())), ("x=YZ".into(), true, Finish::Eog));
}

#[test]
fn documents_satisfy_their_schema_or_are_broken_off_and_say_so() {
    let mut engine = engine(Text::Chat);
    let fields = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3, "maxLength": 5},
            "kind": {"enum": ["cat", "dog"]},
            "age": {"type": "integer", "minimum": 7, "maximum": 9},
            "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
        },
        "required": ["name", "kind", "age", "tags"],
        "additionalProperties": false,
    });
    let (text, _, report) = answer(&mut engine, "A", &greedy(schema(fields.clone()))).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report.finish, Finish::Eog, "{text}");
    // The alphabet begins again in each string.
    assert_eq!(document["name"], "ABCDE", "{text}");
    assert!(["cat", "dog"].contains(&document["kind"].as_str().unwrap()));
    assert!((7..=9).contains(&document["age"].as_u64().unwrap()));
    assert_eq!(document["tags"].as_array().unwrap().len(), 2);
    // The same at random, for several seeds.
    for seed in 0..20 {
        let sampling =
            Params { temperature: 30.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed, ..Params::default() };
        let request = Request { sampling, ..greedy(schema(fields.clone())) };
        let (text, _, report) = answer(&mut engine, "A", &request).unwrap();
        assert_eq!(report.finish, Finish::Eog, "{text}");
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!((3..=5).contains(&document["name"].as_str().unwrap().chars().count()), "{text}");
    }
    let request = Request { max_tokens: Some(10), ..greedy(schema(fields)) };
    let (text, ids, report) = answer(&mut engine, "A", &request).unwrap();
    assert_eq!((ids.len(), report.finish), (10, Finish::Length));
    assert!(serde_json::from_str::<Value>(&text).is_err(), "{text}");
}

#[test]
fn the_other_conditions_of_a_request_still_hold() {
    let mut engine = engine(Text::Chat);
    let mut said = |request: Request| {
        let (text, ids, report) = answer(&mut engine, "A", &request).unwrap();
        (text, ids.len(), report.finish)
    };
    let letters = || greedy(regex("[A-Z]+"));
    assert_eq!(said(Request { stop: vec!["EF".into()], ..letters() }), ("BCD".into(), 5, Finish::Stop));
    // The fewest tokens count as far as the grammar has a way on; where it has none, it ends.
    let least = Request { min_tokens: 30, max_tokens: Some(30), ..letters() };
    let (text, count, finish) = said(least);
    assert_eq!((count, finish), (30, Finish::Length));
    assert!(text.starts_with("BCDEFGHIJKLMNOPQRSTUVWXYZ") && text.bytes().all(|b| b.is_ascii_uppercase()));
    let short = Request { min_tokens: 10, ..greedy(regex("[A-Z]{2}")) };
    assert_eq!(said(short), ("BC".into(), 2, Finish::Eog));
    // Going on behind the end of a turn does not lead out of the grammar.
    let on = Request { ignore_eog: true, ..greedy(regex("[X-Z]*")) };
    assert_eq!(said(on), ("XYZ".into(), 4, Finish::Eog));
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_is_generated() {
    let mut engine = engine(Text::Chat);
    let deep = "(".repeat(100_000) + &")".repeat(100_000);
    let refused = [
        (regex("(a"), "regular expression"),
        (regex(&deep), "deep"),
        (schema(json!({"type": "no such type"})), "JSON schema"),
        (schema(json!(false)), "false"),
        (Grammar::Gbnf("root ::= missing".into()), "missing"),
        (Grammar::Gbnf("a ::= \"b\"".into()), "root"),
        (Grammar::Lark("start: <|no_such_token|>".into()), "no_such_token"),
        (regex("((((a{1,100}){1,100}){1,100}){1,100}){1,100}"), "regular expression"),
    ];
    for (grammar, word) in refused {
        let start = Instant::now();
        let error = answer(&mut engine, "A", &greedy(grammar)).unwrap_err();
        assert!(matches!(error, Error::Sample(_)), "{error}");
        assert!(error.to_string().contains(word), "no {word:?} in {error}");
        assert!(start.elapsed() < Duration::from_secs(2), "{error}: {:?}", start.elapsed());
    }
    let mut plain = self::engine(Text::None);
    assert!(matches!(answer(&mut plain, "A", &greedy(regex("a"))), Err(Error::NoTokenizer)));
}

#[test]
fn special_tokens_come_where_a_grammar_names_them_and_never_as_text() {
    let mut engine = engine(Text::Chat);
    let named = Grammar::Lark("start: \"B\" <|im_start|> \"A\"".into());
    let (text, ids, _) = answer(&mut engine, "A", &greedy(named)).unwrap();
    assert_eq!((text.as_str(), ids), ("BA", vec![66, tiny::TURN, 65]));
    let (text, ids, _) = answer(&mut engine, "A", &greedy(regex("<.im_start.>"))).unwrap();
    assert_eq!((text.len(), ids.len()), (12, 12));
}

#[test]
fn a_service_keeps_answers_with_different_grammars_apart() {
    let service = Service::start(engine(Text::Chat), ServiceOptions::default()).unwrap();
    let prompt = || vec![65u32];
    let forms = ["[A-C]{4}", "no|yes", "[A-Z]*", "B[0-9]"];
    let free = Request { grammar: None, ..greedy(regex("")) };
    let answers: Vec<_> =
        forms.iter().map(|form| service.submit(prompt(), greedy(regex(form))).unwrap()).collect();
    let unbound = service.submit(prompt(), free).unwrap();
    let choices = Request { choices: 2, ..greedy(regex("[B-D]{3}x")) };
    let several = service.submit(prompt(), choices).unwrap();
    let read = |answer: cera::Answer| {
        let mut texts = vec![String::new(); 2];
        for event in answer {
            match event.unwrap() {
                Event::Token(token) => texts[token.choice].push_str(&token.text),
                Event::Done(report) => assert_eq!(report.finish, Finish::Eog),
                Event::Prompt { .. } => {}
            }
        }
        texts
    };
    let texts: Vec<String> = answers.into_iter().map(|a| read(a).remove(0)).collect();
    let alphabet = "BCDEFGHIJKLMNOPQRSTUVWXYZ";
    assert_eq!(texts, ["BCAB", "no", alphabet, "B0"]);
    assert_eq!(read(unbound)[0], alphabet);
    assert_eq!(read(several), ["BCDx", "BCDx"]);
    let error = service.submit(prompt(), greedy(regex("["))).unwrap_err();
    assert!(matches!(error, Error::Sample(_)), "{error}");
    assert_eq!(service.stats().queued, 0);
}

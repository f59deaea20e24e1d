//! Constraints over a small vocabulary: what they let through, what they keep out, and what they refuse.

use cera_sample::{Compiled, Error, Grammar, Grammars, Kind, Params, Sampler, Spelling, TokenTable};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The 256 bytes, then these.
const MERGED: [&str; 12] =
    ["true", "false", "null", "\":", "\", \"", "{\"", "\"}", "the ", "é", "日本", "    ", "12"];
const CALL: u32 = 256 + MERGED.len() as u32;
const END: u32 = CALL + 1;
const END_OF_TEXT: u32 = CALL + 2;

/// A number of rows that no multiple of 32 is; the last few are no tokens.
const ROWS: usize = END_OF_TEXT as usize + 9;

fn grammars() -> &'static Grammars {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    GRAMMARS.get_or_init(|| {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|b| [b]).collect();
        let bytes = bytes.iter().map(|b| Spelling::Text(b));
        let merged = MERGED.iter().map(|m| Spelling::Text(m.as_bytes()));
        let special = ["<|call|>", "<|end|>", "<|endoftext|>"].map(Spelling::Special);
        let table = TokenTable::new(bytes.chain(merged).chain(special), &[END, END_OF_TEXT]);
        Grammars::new(&table).expect("a vocabulary")
    })
}

fn compile(grammar: &Grammar) -> Compiled {
    grammars().compile(grammar).unwrap_or_else(|e| panic!("{e}: {grammar:?}"))
}

fn gbnf(text: &str) -> Grammar {
    Grammar::Gbnf(text.into())
}

fn lark(text: &str) -> Grammar {
    Grammar::Lark(text.into())
}

/// Whether the text, byte by byte, is a whole answer.
fn takes(compiled: &Compiled, text: &str) -> bool {
    let mut c = compiled.start();
    for byte in text.bytes() {
        if c.is_complete() || !c.allows(u32::from(byte)).expect("a mask") {
            return false;
        }
        c.accept(u32::from(byte)).expect("an allowed token");
    }
    c.is_complete() || c.allows(END).expect("a mask")
}

#[track_caller]
fn check(grammar: &Grammar, good: &[&str], bad: &[&str]) {
    let compiled = compile(grammar);
    good.iter().for_each(|text| assert!(takes(&compiled, text), "{text:?} is kept out by {grammar:?}"));
    bad.iter().for_each(|text| assert!(!takes(&compiled, text), "{text:?} is let through by {grammar:?}"));
}

/// Compiling ends with an error of this kind that says this, in less than a second.
#[track_caller]
fn refused(grammar: &Grammar, kind: Kind, words: &[&str]) {
    let start = Instant::now();
    let error = grammars().compile(grammar).err().unwrap_or_else(|| panic!("taken: {grammar:?}"));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(matches!(error, Error::Grammar { kind: k, .. } if k == kind), "{error}");
    let text = error.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "no {word:?} in {text:?}"));
}

/// An answer by random logits, at most `most` tokens; whether it came to its end.
fn answer(compiled: &Compiled, seed: u64, most: usize, wish: impl Fn(usize, u32) -> f32) -> (String, bool) {
    let params = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed, ..Params::default() };
    let mut sampler = Sampler::new(params).expect("parameters");
    let mut c = compiled.start();
    let mut bytes = Vec::new();
    for step in 0..most {
        let mut logits: Vec<f32> = (0..ROWS as u32).map(|t| wish(step, t)).collect();
        c.apply(&mut logits).expect("a mask");
        let token = sampler.sample(&mut logits).expect("a token");
        if token == END || token == END_OF_TEXT {
            return (String::from_utf8(bytes).expect("text"), true);
        }
        match token {
            0..=255 => bytes.push(token as u8),
            CALL => bytes.extend(b"<|call|>"),
            _ => bytes.extend(MERGED[token as usize - 256].as_bytes()),
        }
        c.accept(token).expect("an allowed token");
        if c.is_complete() {
            return (String::from_utf8(bytes).expect("text"), true);
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), false)
}

#[test]
fn regular_expressions_match_the_whole_answer() {
    check(&Grammar::Regex("[a-c]+x?".into()), &["a", "abcx"], &["", "x", "axx", "d", "ax "]);
    check(&Grammar::Regex(r"\d{2}/\d{2}|é+".into()), &["12/34", "éé"], &["1/2", "e"]);
    check(&Grammar::Regex("^(yes|no)$".into()), &["yes", "no"], &["y", "yesno"]);
    check(&Grammar::Regex(String::new()), &[""], &["a"]);
    refused(&Grammar::Regex("(a".into()), Kind::Regex, &[]);
    refused(&Grammar::Regex("a(?=b)".into()), Kind::Regex, &["look"]);
    refused(&Grammar::Regex("[b-a]".into()), Kind::Regex, &[]);
}

#[test]
fn lark_grammars_are_read() {
    let sums = lark("start: sum\nsum: NUMBER (\"+\" NUMBER)*\nNUMBER: /[0-9]+/\n%ignore /[ ]/");
    check(&sums, &["1", "1+22", "1 + 2"], &["+", "1+", "a"]);
    refused(&lark("start: nothing"), Kind::Lark, &["nothing"]);
    refused(&lark("start "), Kind::Lark, &[]);
    refused(&lark(""), Kind::Lark, &[]);
}

#[test]
fn special_tokens_come_only_where_they_are_named() {
    let compiled = compile(&lark("start: \"a\" <|call|> \"b\""));
    let mut c = compiled.start();
    assert!(!c.allows(CALL).unwrap());
    c.accept(u32::from(b'a')).unwrap();
    assert!(c.allows(CALL).unwrap() && !c.allows(u32::from(b'<')).unwrap());
    c.accept(CALL).unwrap();
    assert!(c.allows(u32::from(b'b')).unwrap() && !c.allows(END).unwrap());
    // As text it is spelled; the token spells nothing.
    let any = compile(&Grammar::Regex("(?s:.*)".into()));
    assert!(takes(&any, "<|call|>"));
    assert!(!any.start().allows(CALL).unwrap());
    let by_number = format!("root ::= \"a\" <[{CALL}]> <|end|>");
    for text in ["root ::= \"a\" <|call|>", &by_number] {
        let mut c = compile(&gbnf(text)).start();
        c.accept(u32::from(b'a')).unwrap();
        assert!(c.allows(CALL).unwrap(), "{text}");
    }
    refused(&gbnf("root ::= <|fly|>"), Kind::Gbnf, &["fly"]);
}

#[test]
fn gbnf_grammars_mean_what_they_do_in_llama_cpp() {
    check(&gbnf("root ::= \"yes\" | \"no\""), &["yes", "no"], &["", "yesno", "y"]);
    check(&gbnf("root ::= [a-z]+ \"end\""), &["xend", "endend", "enend"], &["end", "x"]);
    check(&gbnf("root ::= [^\\n\"]* \"\\\"\""), &["\"", "a é日\""], &["a\n\"", "a"]);
    check(&gbnf("root ::= . \"\\x41\\u00e9\\U0001F600\""), &["xAé😀", "日Aé😀", "\nAé😀"], &["Aé😀"]);
    check(
        &gbnf("root ::= \"a\"{2,3} \"b\"{2} \"c\"{1,} \"d\"?"),
        &["aabbc", "aaabbccd"],
        &["abbc", "aabc", "aabb"],
    );
    check(&gbnf("root ::= (\"a\" | \"b\" \"c\")* \"-\""), &["-", "abca-"], &["ac-", "b-"]);
    check(&gbnf("root ::= \"ab\"*"), &["", "abab"], &["a", "abb"]);
    check(&gbnf("root ::= \"a\" \"\"\n"), &["a"], &["", "aa"]);
    check(&gbnf("root ::= [a\\]-]+"), &["a]-"], &["\\"]);
    check(
        &gbnf("# a comment\nroot ::=\n  item # another\n\nitem ::= \"x\" |\n \"y\"\n  | \"z\"\n"),
        &["x", "y", "z"],
        &["xy"],
    );
    check(&gbnf("root ::= ( # inside\n \"a\"\n \"b\" )\n"), &["ab"], &["a"]);
}

/// Rules that name themselves: characters are the lexemes, so nothing is swallowed.
#[test]
fn gbnf_grammars_may_be_recursive_and_ambiguous() {
    check(&gbnf("root ::= \"(\" root \")\" | \"\""), &["", "()", "((()))"], &["(", "())", ")("]);
    check(&gbnf("root ::= root \"a\" | \"b\""), &["b", "baa"], &["", "a", "bb"]);
    check(
        &gbnf("root ::= word | \"[\" root \"]\"\nword ::= [a-z]+ \"end\""),
        &["[xend]", "endend"],
        &["[x]", "end"],
    );
    let sums = gbnf("root ::= root \"+\" root | [0-9]+");
    check(&sums, &["1", "1+2+33"], &["+", "1+", "1++2"]);
    check(&gbnf("root ::= \"a\" root \"a\" | \"a\" root | \"a\""), &["a", "aaaa"], &["", "ab"]);
    check(&gbnf("root ::= \"ab\" root \"c\" | \"a\" \"b\" \"x\""), &["abx", "ababxc"], &["abc", "ab"]);
    let json = include_str!("fixtures/json.gbnf");
    let good = ["{}", "{\"a\": [1, -2.5e3, null], \"b\\u00e9\": {\"c\":true}}", "{ \"x\" : \"日本\" }"];
    check(&gbnf(json), &good, &["{", "{]", "{\"a\" 1}", "[1,]", "{\"a\": 01}"]);
}

#[test]
fn faults_of_gbnf_grammars_are_named() {
    let cases = [
        ("", "`root`"),
        ("# nothing", "`root`"),
        ("start ::= \"a\"", "`root`"),
        ("root ::= thing", "`thing`"),
        ("root ::= \"a\"\nroot ::= \"b\"", "twice"),
        ("root ::= \"a", "does not end"),
        ("root ::= [a", "does not end"),
        ("root ::= []", "no characters"),
        ("root ::= [z-a]", "ends before"),
        ("root ::= (\"a\"", "`)`"),
        ("root ::= \"a\" )", "no meaning"),
        ("root ::= *", "nothing before"),
        ("root ::= \"a\"**", "brackets"),
        ("root ::= \"a\"{3,2}", "below"),
        ("root ::= \"a\"{}", "number of times"),
        ("root ::= \"a\"{99999}", "99999"),
        ("root ::= \"\\q\"", "escape"),
        ("root ::= \"\\ud800\"", "code"),
        ("root ::= !<|call|>", "`!`"),
        ("root = \"a\"", "::="),
        ("root ::= \"a\" root", "no end"),
        ("root ::= other\nother ::= root", "no end"),
    ];
    for (text, word) in cases {
        refused(&gbnf(text), Kind::Gbnf, &[word]);
    }
    let error = grammars().compile(&gbnf("root ::= x\n\nx ::= \"a\" %\n")).expect_err("a fault").to_string();
    assert!(error.contains("line 3") && error.contains('%'), "{error}");
    refused(
        &gbnf(&format!("root ::= {}\"a\"{}", "(".repeat(500), ")".repeat(500))),
        Kind::Gbnf,
        &["500", "200"],
    );
}

#[test]
fn json_schemas_hold() {
    let person = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "age": { "type": "integer", "minimum": 0, "maximum": 150 } },
        "required": ["name", "age"],
        "additionalProperties": false
    });
    let good = [
        "{\"name\":\"a\",\"age\":7}",
        "{\"name\": \"\\n\\u0000é\", \"age\": 150}",
        "{\n  \"name\": \"\",\n  \"age\": 0\n}",
    ];
    let bad = [
        "{\"name\":\"a\"}",
        "{\"age\":7,\"name\":\"a\"}",
        "{\"name\":\"a\",\"age\":151}",
        "{\"name\":\"a\",\"age\":7.5}",
        "[]",
    ];
    check(&Grammar::JsonSchema(person), &good, &bad);
    check(&Grammar::json_object(), &["{}", "{\"a\": [1]}"], &["[]", "1", "{"]);
    check(&Grammar::JsonSchema(json!(true)), &["1", "[]", "null"], &["", "x"]);
    // No spaces for ever.
    check(&Grammar::json_object(), &["{ }"], &["{   }", "{\n\n}"]);
    let error = |text: &str| Grammar::json_schema(text).expect_err("a fault").to_string();
    assert!(error("{").contains("JSON"));
    refused(&Grammar::JsonSchema(json!(false)), Kind::JsonSchema, &[]);
    refused(&Grammar::JsonSchema(json!([1])), Kind::JsonSchema, &["object"]);
    refused(&Grammar::JsonSchema(json!({ "type": "poem" })), Kind::JsonSchema, &["poem"]);
    refused(&Grammar::JsonSchema(json!({ "not": { "type": "null" } })), Kind::JsonSchema, &["not"]);
}

/// Large, deep or many, and still fine.
#[test]
fn large_schemas_are_compiled_in_time_and_hold() {
    let item = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"], "additionalProperties": false });
    let forty: serde_json::Map<String, Value> =
        (0..40).map(|i| (format!("p{i}"), json!({ "type": "integer" }))).collect();
    let options: Vec<Value> = (0..200)
        .map(|i| json!({ "type": "object", "properties": { "kind": { "const": i } }, "required": ["kind"], "additionalProperties": false }))
        .collect();
    let tree = json!({
        "$defs": { "node": { "type": "object", "properties": { "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] } },
                   "required": ["next"], "additionalProperties": false } },
        "$ref": "#/$defs/node"
    });
    let list = json!({ "type": "array", "minItems": 10, "maxItems": 1000, "items": item });
    let cases = [
        (list, format!("[{}]", ["{\"a\":1}"; 10].join(",")), format!("[{}]", ["{\"a\":1}"; 9].join(","))),
        (
            json!({ "type": "object", "properties": forty, "additionalProperties": false }),
            "{\"p3\":1,\"p39\":2}".into(),
            "{\"p40\":1}".into(),
        ),
        (json!({ "anyOf": options }), "{\"kind\":199}".into(), "{\"kind\":200}".into()),
        (tree, "{\"next\":{\"next\":null}}".into(), "{\"next\":{}}".into()),
        (json!({ "type": "string", "maxLength": 100_000 }), format!("\"{}\"", "x".repeat(1000)), "\"".into()),
        (json!({ "type": "string", "pattern": "^(a+)+$" }), "\"aaaa\"".into(), "\"aaab\"".into()),
    ];
    for (schema, good, bad) in cases {
        let start = Instant::now();
        let compiled = compile(&Grammar::JsonSchema(schema.clone()));
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}: {schema}", start.elapsed());
        assert!(takes(&compiled, &good), "{good} by {schema}");
        assert!(!takes(&compiled, &bad), "{bad} by {schema}");
    }
}

/// What may be too much ends within a second, one way or the other; and so does each step of what was taken.
#[test]
fn hostile_grammars_end_within_a_second() {
    let mut deep = json!({ "type": "null" });
    for _ in 0..500 {
        deep = json!({ "type": "array", "items": deep });
    }
    let chain: serde_json::Map<String, Value> = (0..500)
        .map(|i| {
            (format!("d{i}"), json!({ "type": "array", "items": { "$ref": format!("#/$defs/d{}", i + 1) } }))
        })
        .chain([("d500".into(), json!({}))])
        .collect();
    let many: serde_json::Map<String, Value> =
        (0..5000).map(|i| (format!("property number {i}"), json!({}))).collect();
    let schemas = [
        json!({ "type": "string", "pattern": format!("^({})$", "(ab?c|d[e-z]+){1,9}".repeat(1000)) }),
        json!({ "type": "string", "pattern": "(a{1,1000}){1,1000}" }),
        json!({ "type": "string", "pattern": ".*a.{1000}" }),
        json!({ "type": "string", "minLength": 99_999, "maxLength": 100_000 }),
        json!({ "type": "array", "minItems": 1_000_000_000 }),
        json!({ "$defs": chain, "$ref": "#/$defs/d0" }),
        json!({ "properties": many }),
        json!({ "type": "object", "patternProperties": { "^(a|b)*c{100}": { "type": "string" }, "x.*y.*z": {} } }),
        json!({ "enum": (0..20_000).collect::<Vec<_>>() }),
        json!({ "oneOf": (0..300).map(|i| json!({ "minimum": i })).collect::<Vec<_>>() }),
        json!({ "allOf": (0..300).map(|i| json!({ "multipleOf": i + 2, "type": "integer" })).collect::<Vec<_>>() }),
        deep.clone(),
    ];
    let texts = [
        gbnf(&format!("root ::= {}", "(\"a\" | \"aa\" | root)".repeat(2000))),
        gbnf("root ::= ((\"a\"{0,2000}){0,2000}){0,2000}"),
        gbnf("root ::= (\"a\"? \"a\"? \"a\"?){1000} root?"),
        gbnf("root ::= root root | root root root | \"a\" | \"\""),
        gbnf(
            &(0..4000)
                .map(|i| format!("r{i} ::= r{} | \"a\"\n", i + 1))
                .chain(["r4000 ::= \"b\"\nroot ::= r0".into()])
                .collect::<String>(),
        ),
        gbnf(&"a ::= b\n".repeat(100_000)),
        lark(&format!("start: {}", "(".repeat(100_000))),
        lark(&format!("start: {}", "\"a\"? ".repeat(50_000))),
        lark("start: start start | start | \"a\"?"),
        lark("start: /((a{0,500}){0,500}){0,500}b/"),
        Grammar::Regex("(".repeat(100_000)),
        Grammar::Regex("((a{0,100}){0,100}){0,100}".into()),
        Grammar::Regex(r"(?i:\w{1,300}\p{L}{1,300}\w{1,300})".into()),
        Grammar::Regex(format!("({})+", (0..3000).map(|i| format!("w{i}")).collect::<Vec<_>>().join("|"))),
        Grammar::Regex("(a|b)*a(a|b){24}".into()),
    ];
    for grammar in schemas.into_iter().map(Grammar::JsonSchema).chain(texts) {
        let start = Instant::now();
        let compiled = grammars().compile(&grammar);
        let time = start.elapsed();
        let short: String = format!("{grammar:?}").chars().take(100).collect();
        assert!(time < Duration::from_secs(1), "{time:?}: {short}");
        let said = match compiled {
            Err(e) => e.to_string(),
            Ok(compiled) => {
                let mut c = compiled.start();
                let mut slowest = Duration::ZERO;
                let mut said = "taken".to_owned();
                for step in 0..60 {
                    let start = Instant::now();
                    let mut logits: Vec<f32> =
                        (0..ROWS).map(|t| ((t * 7919 + step * 31) % 101) as f32).collect();
                    let next = c.apply(&mut logits).map(|()| {
                        logits[END as usize] -= 1000.0;
                        logits[END_OF_TEXT as usize] -= 1000.0;
                        (0..ROWS).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).map_or(0, |t| t as u32)
                    });
                    let went = next.and_then(|t| c.accept(t));
                    slowest = slowest.max(start.elapsed());
                    if let Err(e) = went {
                        said = e.to_string();
                        break;
                    }
                    if c.is_complete() {
                        break;
                    }
                }
                assert!(slowest < Duration::from_secs(1), "a step: {slowest:?}: {short}");
                format!("{said}, slowest step {slowest:?}")
            }
        };
        println!("{time:?} {short}: {said}");
    }
    refused(&Grammar::JsonSchema(deep), Kind::JsonSchema, &["deep"]);
    let text = format!("{}{}", "{\"items\":".repeat(500), "}".repeat(500));
    assert!(Grammar::json_schema(&text).is_err());
    refused(&Grammar::Regex("a".repeat(2 << 20)), Kind::Regex, &["bytes"]);
}

#[test]
fn references_stay_within_the_schema() {
    refused(
        &Grammar::JsonSchema(json!({ "$ref": "https://example.com/schema.json" })),
        Kind::JsonSchema,
        &["example.com"],
    );
    refused(&Grammar::JsonSchema(json!({ "$ref": "file:///etc/passwd" })), Kind::JsonSchema, &["passwd"]);
    refused(&Grammar::JsonSchema(json!({ "$ref": "#/$defs/none" })), Kind::JsonSchema, &["none"]);
    refused(
        &Grammar::JsonSchema(json!({ "$defs": { "a": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" })),
        Kind::JsonSchema,
        &[],
    );
    check(
        &Grammar::JsonSchema(json!({ "$defs": { "a/b": { "const": 1 } }, "$ref": "#/$defs/a~1b" })),
        &["1"],
        &["2"],
    );
}

#[test]
fn a_grammar_that_nothing_can_begin_is_refused() {
    let few = TokenTable::new(
        ["a", "b"].iter().map(|t| Spelling::Text(t.as_bytes())).chain([Spelling::Special("<end>")]),
        &[2],
    );
    let few = Grammars::new(&few).unwrap();
    let error = few.compile(&Grammar::Regex("x+".into())).expect_err("no token").to_string();
    assert!(error.contains("no token"), "{error}");
    assert!(few.compile(&Grammar::Regex("b+".into())).is_ok());
    assert!(few.compile(&Grammar::json_object()).is_err());
    // Nothing ends an answer: it ends where nothing can follow.
    let endless = TokenTable::new(["a", "b"].iter().map(|t| Spelling::Text(t.as_bytes())), &[]);
    let mut c = Grammars::new(&endless).unwrap().compile(&Grammar::Regex("ab".into())).unwrap().start();
    c.accept(0).unwrap();
    c.accept(1).unwrap();
    assert!(c.is_complete());
    assert!(Grammars::new(&TokenTable::default()).is_err());
}

#[test]
fn exact_values_stay_exact() {
    let words = ["é", "\"", "\\", "\n", "日本\u{1F600}", "\u{7f}", &"long ".repeat(2000)];
    let choices = Grammar::JsonSchema(json!({ "enum": words }));
    let compiled = compile(&choices);
    for word in words {
        // The character behind the printable ones is written by its code.
        let text = serde_json::to_string(word).unwrap().replace('\u{7f}', "\\u007F");
        assert!(takes(&compiled, &text), "{text}");
    }
    assert!(!takes(&compiled, "\"e\""));
    check(&Grammar::JsonSchema(json!({ "const": null })), &["null"], &["", "0", "\"null\""]);
    let edge = 1i64 << 53;
    let bounded = Grammar::JsonSchema(json!({ "type": "integer", "minimum": -edge, "maximum": edge }));
    check(
        &bounded,
        &["9007199254740992", "-9007199254740992", "0"],
        &["9007199254740993", "-9007199254740993", "90071992547409920"],
    );
}

#[test]
fn random_answers_satisfy_their_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "kind": { "enum": ["é", "b"] },
            "list": { "type": "array", "items": { "type": "integer", "minimum": -3, "maximum": 12 }, "minItems": 2, "maxItems": 3 },
            "on": { "type": "boolean" }
        },
        "required": ["kind", "list", "on"],
        "additionalProperties": false
    });
    let compiled = compile(&Grammar::JsonSchema(schema));
    for seed in 0..30 {
        let (text, ended) = answer(&compiled, seed, 400, |_, t| ((t * 31) % 17) as f32 / 8.0);
        assert!(ended, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value["kind"] == "é" || value["kind"] == "b", "{value}");
        let list = value["list"].as_array().unwrap_or_else(|| panic!("no list: {value}"));
        assert!((2..=3).contains(&list.len()) && value["on"].is_boolean(), "{value}");
        assert!(list.iter().all(|n| (-3.0..=12.0).contains(&n.as_f64().unwrap())), "{value}");
    }
}

#[test]
fn answers_from_one_grammar_are_independent() {
    let compiled = compile(&Grammar::Regex("ab|cd".into()));
    let (mut one, mut two) = (compiled.start(), compiled.start());
    one.accept(u32::from(b'a')).unwrap();
    two.accept(u32::from(b'c')).unwrap();
    assert!(one.allows(u32::from(b'b')).unwrap() && !one.allows(u32::from(b'd')).unwrap());
    assert!(two.allows(u32::from(b'd')).unwrap() && !two.allows(u32::from(b'b')).unwrap());
    let error = one.accept(u32::from(b'x')).expect_err("kept out");
    assert!(matches!(error, Error::Step { kind: Kind::Regex, .. }), "{error}");
    assert_eq!(one.allows(u32::from(b'b')), Err(error), "what failed fails again");
    two.accept(u32::from(b'd')).unwrap();
    assert!(two.is_complete());
    assert!(matches!(two.apply(&mut [0.0; 4]), Err(Error::Step { .. })));
}

#[test]
fn rows_that_are_no_tokens_are_ruled_out() {
    let compiled = compile(&Grammar::Regex("(?s:.*)".into()));
    let mut logits = vec![1.0; ROWS];
    compiled.start().apply(&mut logits).unwrap();
    assert!(logits[END_OF_TEXT as usize + 1..].iter().all(|l| *l == f32::NEG_INFINITY));
    assert_eq!((logits[END as usize], logits[97], logits[CALL as usize]), (1.0, 1.0, f32::NEG_INFINITY));
}

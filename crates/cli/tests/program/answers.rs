//! Answers: run and chat.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::json;

use crate::tiny::{TEMPLATE, Text};
use crate::{Place, Ran, bad, good, object, objects, ran};

const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const GREEDY: &[&str] = &["--device", "reference", "--temp", "0"];

/// The program with `input` on its standard input.
fn fed(command: &mut std::process::Command, input: &str) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    ran(child.wait_with_output().unwrap())
}

#[test]
fn run_puts_the_prompt_into_the_chat_template() {
    let place = Place::new(Text::Chat);
    let r = good(place.with_model(&["run", "-p", "hello"]).args(GREEDY));
    assert_eq!(r.out, format!("{ALPHABET}\n"));
    let lines: Vec<&str> = r.err.lines().collect();
    let [line] = lines[..] else { panic!("one line on standard error: {lines:?}") };
    for part in ["prompt: 24 tokens", "tokens/s", "generation: 27 tokens", "first token: 0.", "load: "] {
        assert!(line.contains(part), "no {part:?} in {line:?}");
    }
}

#[test]
fn run_goes_on_from_plain_text_where_there_is_no_template_or_it_is_not_wanted() {
    let chat = Place::new(Text::Chat);
    let r = good(chat.with_model(&["run", "--raw", "-p", "W"]).args(GREEDY));
    assert_eq!(r.out, "XYZ\n");
    let plain = Place::new(Text::Plain);
    let file = plain.file("prompt", "W");
    assert_eq!(good(plain.with_model(&["run", "-f", &file]).args(GREEDY)).out, "XYZ\n");
    assert_eq!(fed(plain.with_model(&["run", "-f", "-"]).args(GREEDY), "W").out, "XYZ\n");
    let template = plain.file("template", TEMPLATE);
    let r = good(plain.with_model(&["run", "-p", "W", "--chat-template", &template]).args(GREEDY));
    assert_eq!(r.out, format!("{ALPHABET}\n"));
    let wrong = plain.file("wrong", "{% for %}");
    bad(plain.with_model(&["run", "-p", "W", "--chat-template", &wrong]).args(GREEDY), 1, &[]);
    bad(plain.with_model(&["run", "-p", "W", "--system", "x"]).args(GREEDY), 1, &["--chat-template"]);
}

#[test]
fn run_goes_on_from_prompts_that_former_runs_read() {
    let place = Place::new(Text::Chat);
    let folder = place.path("prompts");
    let run = |folder: &std::path::Path, prompt: &str| {
        let words = ["run", "--raw", "--json", "-n", "3", "-p", prompt, "--prompt-cache"];
        let o = object(&good(place.with_model(&words).arg(folder).args(GREEDY)).out);
        assert_eq!(o["text"], "XYZ");
        o["reused_tokens"].clone()
    };
    let long = "a".repeat(100);
    assert_eq!(run(&folder, &format!("{long}W")), 0);
    assert_eq!(run(&folder, &format!("{long}bcW")), 96);
    // What cannot be a folder is said; sizes are checked.
    let file = place.file("file", "");
    bad(place.with_model(&["run", "-p", "W", "--prompt-cache", &file]).args(GREEDY), 1, &["file"]);
    bad(&mut place.with_model(&["run", "-p", "W", "--prompt-cache-size", "much"]), 2, &["500M"]);
}

#[test]
fn run_tells_everything_as_json() {
    let place = Place::new(Text::Chat);
    let r = good(place.with_model(&["run", "-p", "hello", "--json", "-n", "3", "--seed", "5"]).args(GREEDY));
    let o = object(&r.out);
    assert_eq!(o["text"], "ABC");
    assert_eq!(o["ids"], json!([65, 66, 67]));
    assert_eq!((&o["finish"], &o["seed"]), (&json!("length"), &json!(5)));
    assert_eq!((&o["generated_tokens"], &o["chat_template"]), (&json!(3), &json!(true)));
    assert!(
        o["start_to_first_token_seconds"].as_f64().unwrap() >= o["first_token_seconds"].as_f64().unwrap()
    );
    let o = object(&good(place.with_model(&["run", "-p", "x", "--json", "--stop", "CD"]).args(GREEDY)).out);
    assert_eq!((&o["text"], &o["finish"]), (&json!("AB"), &json!("stop")));
}

#[test]
fn answers_follow_the_form_that_is_asked_for() {
    let place = Place::new(Text::Chat);
    let said = |words: &[&str]| {
        let o = object(&good(place.with_model(&["run", "--json", "-p", "x"]).args(GREEDY).args(words)).out);
        assert_eq!(o["finish"], "eog");
        o["text"].as_str().unwrap().to_owned()
    };
    let schema = r#"{"type": "array", "items": {"enum": ["B", "C"]}, "minItems": 2, "maxItems": 2}"#;
    let file = place.file("schema.json", schema);
    for words in [["--json-schema", schema], ["-j", schema], ["--json-schema-file", &file]] {
        let document: Vec<String> = serde_json::from_str(&said(&words)).unwrap();
        assert!(document.len() == 2 && document.iter().all(|d| d == "B" || d == "C"), "{document:?}");
    }
    let gbnf = place.file("answer.gbnf", "root ::= \"é\" [A-D]{3}");
    assert_eq!(said(&["--grammar-file", &gbnf]), "éABC");
    assert_eq!(said(&["--grammar", "root ::= [X-Z]{2}"]), "XY");
    assert_eq!(said(&["--grammar", "%llguidance {}\nstart: \"<\" /[A-B]{2}/"]), "<AB");
    assert_eq!(said(&["--regex", "no|[A-C]{2}"]), "AB");
    // Each turn of a conversation.
    let chat = fed(place.with_model(&["chat", "--regex", "[K-M]{2}"]).args(GREEDY), "a\nb\n");
    assert_eq!((chat.code, chat.out.as_str()), (Some(0), "KL\nKL\n"), "{}", chat.err);
    // What breaks an answer off is said.
    let words = ["run", "--json", "-p", "x", "-n", "4", "--json-schema", schema];
    assert_eq!(object(&good(place.with_model(&words).args(GREEDY)).out)["finish"], "length");
}

#[test]
fn forms_that_cannot_be_asked_for_are_refused() {
    let place = Place::new(Text::Chat);
    let refuse = |code: i32, words: &[&str], says: &[&str]| {
        bad(place.with_model(&["run", "-p", "x"]).args(GREEDY).args(words), code, says);
    };
    refuse(2, &["--json-schema", "{"], &["--json-schema", "not JSON"]);
    refuse(2, &["--regex", "a", "--grammar", "root ::= \"a\""], &["--regex", "--grammar"]);
    refuse(1, &["--json-schema-file", "no-such-file"], &["no-such-file"]);
    let file = place.file("wrong.json", "[1");
    refuse(1, &["--json-schema-file", &file], &["wrong.json", "not JSON"]);
    refuse(1, &["--json-schema", r#"{"type": "strange"}"#], &["JSON schema", "strange"]);
    refuse(1, &["--regex", "(a"], &["regular expression"]);
    refuse(1, &["--grammar", "root ::= other"], &["GBNF", "other"]);
    let ids = Place::new(Text::None);
    bad(ids.with_model(&["run", "--ids", "65", "--regex", "a"]).args(GREEDY), 1, &["tokenizer"]);
}

#[test]
fn run_samples_by_its_seed() {
    let place = Place::new(Text::None);
    let draw = |seed: &str| {
        let words = ["run", "--ids", "65", "-n", "16", "--temp", "40", "--top-k", "0", "--top-p", "1"];
        let mut command = place.with_model(&words);
        command.args(["--min-p", "0", "--device", "reference", "--json", "--seed", seed]);
        object(&good(&mut command).out)["ids"].clone()
    };
    assert_eq!(draw("1"), draw("1"));
    assert_ne!(draw("1"), draw("2"));
}

#[test]
fn run_chooses_as_its_flags_say() {
    let place = Place::new(Text::Chat);
    let ids = |prompt: &str, flags: &[&str]| {
        let mut command = place.with_model(&["run", "--raw", "-p", prompt, "-n", "1", "--json"]);
        object(&good(command.args(GREEDY).args(flags)).out)["ids"].clone()
    };
    assert_eq!(ids("ABCDABC", &[]), json!([68]));
    assert_eq!(ids("A", &["--logit-bias", "90+100"]), json!([90]));
    assert_eq!(ids("A", &["-l", "66-inf"]), json!([0]), "all others are alike: the first");
    assert_eq!(ids("DC", &["--presence-penalty", "20"]), json!([0]));
    assert_eq!(ids("DC", &["--presence-penalty", "20", "--repeat-last-n", "1"]), json!([68]));
    assert_eq!(ids("ABCDABC", &["--dry-multiplier", "20"]), json!([0]));
    assert_eq!(ids("ABCDABC", &["--dry-multiplier", "20", "--dry-sequence-breaker", "BC"]), json!([68]));
    assert_eq!(
        ids("A", &["--xtc-probability", "1", "--xtc-threshold", "0"]),
        json!([66]),
        "top-k is before it"
    );
    let samplers = ["--samplers", "xtc;temperature", "--xtc-probability", "1", "--xtc-threshold", "0"];
    assert_eq!(ids("A", &samplers), json!([259]), "the least likely of all, the last of equals");
    assert_eq!(ids("Z", &[]), json!([258]));
    assert_eq!(ids("Z", &["--min-tokens", "1"]), json!([0]));
    let beyond = place.with_model(&["run", "-p", "x", "-l", "260+1"]).args(GREEDY).output().unwrap();
    let r = ran(beyond);
    assert!(r.code == Some(1) && r.err.contains("260"), "{}", r.err);
}

#[test]
fn run_tells_probabilities_where_they_are_asked_for() {
    let place = Place::new(Text::Chat);
    let mut command = place.with_model(&["run", "--raw", "-p", "A", "-n", "2", "--json", "--logprobs", "2"]);
    let o = object(&good(command.args(GREEDY)).out);
    let places = o["logprobs"].as_array().unwrap();
    assert_eq!(places.len(), 2);
    for (place, id) in places.iter().zip([66, 67]) {
        assert_eq!(place["top"][0][0], id);
        assert_eq!(place["top"][0][1], place["logprob"]);
        assert_eq!(place["top"][1][0], 0);
        assert!(place["logprob"].as_f64().unwrap() > -0.01, "{place}");
    }
    let mut without = place.with_model(&["run", "--raw", "-p", "A", "-n", "2", "--json"]);
    assert!(object(&good(without.args(GREEDY)).out).get("logprobs").is_none());
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_both_numbers() {
    let place = Place::new(Text::Plain);
    let long = "x".repeat(101);
    bad(place.with_model(&["run", "-c", "100", "-p", &long]).args(GREEDY), 1, &["101", "100", "-c"]);
    bad(place.with_model(&["run", "-c", "9999", "-p", "x"]).args(GREEDY), 1, &["9999", "4096"]);
}

#[test]
fn text_needs_a_vocabulary_and_ids_do_not() {
    let place = Place::new(Text::None);
    bad(place.with_model(&["run", "-p", "x"]).args(GREEDY), 1, &["--ids"]);
    let r = good(place.with_model(&["run", "--ids", "88", "-n", "2"]).args(GREEDY));
    assert_eq!(r.out.trim_end(), "89 90");
}

#[test]
fn chat_keeps_what_was_said_and_reads_only_what_is_new() {
    let place = Place::new(Text::Chat);
    let mut command = place.with_model(&["chat", "--json"]);
    let r = fed(command.args(GREEDY), "hello\n\n/help\nand now?\n/reset\nagain\n/exit\nnot read\n");
    assert_eq!(r.code, Some(0), "{}", r.err);
    assert!(r.err.contains("/reset"), "{}", r.err);
    let turns = objects(&r.out);
    assert_eq!(turns.len(), 3);
    assert!(turns.iter().all(|t| t["text"] == ALPHABET && t["finish"] == "eog"), "{turns:?}");
    let numbers = |i: usize| ["reused_tokens", "prompt_tokens"].map(|k| turns[i][k].as_u64().unwrap());
    // A turn in this template: <|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n
    let turn = |message: &str| (1 + "user\n".len() + message.len() + 2 + 1 + "assistant\n".len()) as u64;
    assert_eq!(numbers(0), [0, turn("hello")]);
    // The answer is in the cache; its <|im_end|> and the line end behind it are new.
    assert_eq!(numbers(1), [turn("hello") + 26, 2 + turn("and now?")]);
    assert_eq!(numbers(2), [0, turn("again")]);
}

#[test]
fn chat_streams_text_and_takes_lines_that_go_on() {
    let place = Place::new(Text::Chat);
    let r = fed(place.with_model(&["chat", "--system", "be brief"]).args(GREEDY), "one \\\ntwo\n/fly\n");
    assert_eq!((r.code, r.out.as_str()), (Some(0), &*format!("{ALPHABET}\n")), "{}", r.err);
    assert!(r.err.contains("/fly"), "{}", r.err);
}

#[test]
fn a_scripted_chat_ends_at_a_message_that_is_refused() {
    let place = Place::new(Text::Chat);
    let input = format!("hello\n{}\nnot read\n", "x".repeat(300));
    let why = "tokens do not fit the context of 100";
    let r = fed(place.with_model(&["chat", "-c", "100", "--json"]).args(GREEDY), &input);
    assert_eq!(r.code, Some(1), "{}", r.err);
    assert!(r.err.contains(why), "{}", r.err);
    let lines = objects(&r.out);
    let [first, second] = &lines[..] else { panic!("an answer and a refusal: {lines:?}") };
    assert_eq!(first["prompt_tokens"], 24);
    assert!(second["error"].as_str().unwrap().contains(why), "{second}");
    let r = fed(place.with_model(&["chat", "-c", "100"]).args(GREEDY), &input);
    assert_eq!((r.code, r.out.as_str()), (Some(1), &*format!("{ALPHABET}\n")), "{}", r.err);
    assert!(r.err.contains(why), "{}", r.err);

    let fussy = "{% if messages[0].content == 'no' %}{{ raise_exception('never no') }}{% endif %}yes";
    let fussy = place.file("fussy", fussy);
    let r = fed(place.with_model(&["chat", "--json", "--chat-template", &fussy]).args(GREEDY), "no\n");
    assert_eq!(r.code, Some(1), "{}", r.err);
    assert!(object(&r.out)["error"].as_str().unwrap().contains("never no"), "{}", r.out);
}

#[test]
fn two_slashes_begin_a_message_that_begins_with_one() {
    let place = Place::new(Text::Chat);
    let prompt_tokens = |message: &str| {
        let mut command = place.with_model(&["chat", "--json"]);
        let r = fed(command.args(GREEDY), &format!("{message}\n"));
        assert_eq!(r.code, Some(0), "{}", r.err);
        object(&r.out)["prompt_tokens"].as_u64().unwrap()
    };
    // A byte is a token here.
    let hello = prompt_tokens("hello");
    assert_eq!(prompt_tokens("//exit"), hello);
    assert_eq!(prompt_tokens("//ab /"), hello);
    assert_eq!(prompt_tokens("///abc"), hello);
    assert_eq!(prompt_tokens("a//bc"), hello);
    let r = fed(place.with_model(&["chat"]).args(GREEDY), "/help\n");
    assert!(r.err.contains("//"), "{}", r.err);
}

#[test]
fn chat_needs_a_template() {
    let place = Place::new(Text::Plain);
    bad(place.with_model(&["chat"]).args(GREEDY), 1, &["--chat-template"]);
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let place = Place::new(Text::Chat);
    let mut command = place.with_model(&["run", "--raw", "-p", "A", "--ignore-eos"]);
    let mut child = command.args(GREEDY).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"BCD");
    drop(out);
    let r = ran(child.wait_with_output().unwrap());
    assert_eq!((r.code, r.err.as_str()), (Some(0), ""));
}

//! Answers as models of each family write them, taken apart.
//!
//! The answers follow the families' templates and model cards. `calls_come_back_from_the_templates_that_write_them`
//! takes the witness from the models themselves: a template renders a history with calls, and what it wrote is read
//! as if the model had said it.

mod common;

use std::path::PathBuf;

use cera_token::{Chat, ChatTemplate, ReplyFormat, ReplyPart, VocabSpec};
use common::{spm, tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An answer, put together again.
#[derive(Debug, Default, PartialEq)]
struct Reply {
    reasoning: String,
    text: String,
    calls: Vec<(String, Value)>,
    malformed: bool,
}

impl Reply {
    fn add(&mut self, parts: Vec<ReplyPart>) {
        for part in parts {
            match part {
                ReplyPart::Text(text) => self.text.push_str(&text),
                ReplyPart::Reasoning(text) => self.reasoning.push_str(&text),
                ReplyPart::Call(call) => {
                    self.calls.push((call.name, serde_json::from_str(&call.arguments).unwrap()));
                }
                ReplyPart::Malformed => self.malformed = true,
            }
        }
    }
}

/// What the template shows, for the formats of the cases.
fn format(name: &str) -> ReplyFormat {
    let shown = match name {
        "hermes" => "{{ tools }} <tool_call> <think></think>",
        "coder" => "{{ tools }} <tool_call> <function=",
        "glm" => "{{ tools }} <tool_call> <arg_key> <think>",
        "mistral" => "{{ tools }} [TOOL_CALLS] [THINK]",
        "deepseek" => "{{ tools }} <｜tool▁calls▁begin｜><｜tool▁call▁begin｜></think>",
        "kimi" => "{{ tools }} <|tool_calls_section_begin|>",
        "lfm" => "{{ tools }} <|tool_call_start|>",
        "gemma" => "{{ tools }} <|tool_call> <|\"|> <|channel>thought",
        "functiongemma" => "{{ tools }} <start_function_call>",
        "granite" => "{{ tools }} <|tool_call|>",
        "llama" => "{{ tools }} ipython",
        "harmony" => "<|channel|><|message|>",
        _ => "",
    };
    ReplyFormat::of(shown)
}

fn tools() -> Vec<Value> {
    let parameters = json!({ "type": "object", "properties": {
        "city": { "type": "string" }, "days": { "type": "integer" }, "code": { "type": "string" } } });
    let tool = |name| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    vec![tool("weather"), tool("now")]
}

/// Answers, their formats and what they are.
fn cases() -> Vec<(&'static str, &'static str, Reply)> {
    let call = |name: &str, arguments: Value| (name.to_owned(), arguments);
    let paris = || call("weather", json!({ "city": "Paris", "days": 2 }));
    let now = || call("now", json!({}));
    let said = |text: &str, calls| Reply { text: text.into(), calls, ..Reply::default() };
    let wrong = |text: &str| Reply { text: text.into(), malformed: true, ..Reply::default() };
    let thought = |reasoning: &str, text: &str, calls| Reply {
        reasoning: reasoning.into(),
        text: text.into(),
        calls,
        malformed: false,
    };
    vec![
        (
            "plain",
            " a <tool_call>{}</tool_call> <think>\n",
            said(" a <tool_call>{}</tool_call> <think>\n", vec![]),
        ),
        ("hermes", "Just text, a < b.\n", said("Just text, a < b.\n", vec![])),
        (
            "hermes",
            "<think>\nHm, <tool_call> or not?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            thought("Hm, <tool_call> or not?", "I look.", vec![paris(), now()]),
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"weather\", \"arguments\": {\"code\": \"a </tool_call> \\\" }\"}}</tool_call>",
            said("", vec![call("weather", json!({ "code": "a </tool_call> \" }" }))]),
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"days\\\": 1}\"}</tool_call>",
            said("", vec![call("weather", json!({ "days": 1 }))]),
        ),
        ("hermes", "<tool_call>{\"name\": \"now\"}</tool_call>", said("", vec![now()])),
        (
            "hermes",
            "So: <tool_call>{\"name\": \"now\", </tool_call> there",
            wrong("So: <tool_call>{\"name\": \"now\", </tool_call> there"),
        ),
        (
            "hermes",
            "<tool_call>\n{\"name\": \"now\", \"argum",
            wrong("<tool_call>\n{\"name\": \"now\", \"argum"),
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
            wrong("<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>"),
        ),
        ("hermes", "<think>cut of", thought("cut of", "", vec![])),
        ("hermes", "I say <think> here", said("I say <think> here", vec![])),
        (
            "coder",
            "Fine.\n<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=code>\nif a:\n  b\n\n</parameter>\n</function>\n</tool_call>",
            said("Fine.", vec![call("weather", json!({ "city": "12", "days": 2, "code": "if a:\n  b\n" }))]),
        ),
        (
            "coder",
            "<tool_call>\n<function=weather>\n<parameter=city>\nP",
            wrong("<tool_call>\n<function=weather>\n<parameter=city>\nP"),
        ),
        (
            "glm",
            "<think>a</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
            thought("a", "", vec![paris(), now()]),
        ),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}, \"id\": \"123456789\"}, {\"name\": \"now\", \"arguments\": {}}]",
            said("", vec![paris(), now()]),
        ),
        (
            "mistral",
            "[THINK]hm[/THINK]Yes.[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\", \"days\": 2}[TOOL_CALLS]now[CALL_ID]a1[ARGS]{}",
            thought("hm", "Yes.", vec![paris(), now()]),
        ),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Paris\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            said("", vec![paris(), now()]),
        ),
        (
            "deepseek",
            "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            said("I look.", vec![paris()]),
        ),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\", \"days\": 2}<|tool_call_end|><|tool_calls_section_end|>",
            said("", vec![paris()]),
        ),
        (
            "lfm",
            "<|tool_call_start|>[weather(city=\"Paris\", days=2), now()]<|tool_call_end|>I look.",
            said("I look.", vec![paris(), now()]),
        ),
        (
            "lfm",
            "<|tool_call_start|>[weather(code='it\\'s [1]\\n', city=None, days=-1.5e3)]<|tool_call_end|>",
            said("", vec![call("weather", json!({ "code": "it's [1]\n", "city": null, "days": -1500.0 }))]),
        ),
        (
            "lfm",
            "<|tool_call_start|>[weather(city=Paris)]<|tool_call_end|>",
            wrong("<|tool_call_start|>[weather(city=Paris)]<|tool_call_end|>"),
        ),
        (
            "gemma",
            "<|channel>thought\nHm.\n<channel|><|tool_call>call:weather{city:<|\"|>Paris<|\"|>,days:2}<tool_call|>",
            thought("Hm.", "", vec![paris()]),
        ),
        (
            "functiongemma",
            "<start_function_call>call:weather{city:<escape>Paris<escape>,days:2}<end_function_call>",
            said("", vec![paris()]),
        ),
        (
            "granite",
            "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}]",
            said("", vec![paris()]),
        ),
        (
            "llama",
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 2}}; {\"name\": \"now\", \"parameters\": {}}",
            said("", vec![paris(), now()]),
        ),
        ("llama", "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", said("", vec![now()])),
        ("llama", "[weather(city='Paris', days=2), now()]", said("", vec![paris(), now()])),
        ("llama", "[1, 2] is a list", said("[1, 2] is a list", vec![])),
        ("llama", "{\"name\": \"Ann\", \"age\": 3}", said("{\"name\": \"Ann\", \"age\": 3}", vec![])),
        (
            "llama",
            "Use {\"name\": \"now\", \"parameters\": {}}",
            said("Use {\"name\": \"now\", \"parameters\": {}}", vec![]),
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Paris\", \"days\": 2}",
            thought("Let me see.", "I look.", vec![paris()]),
        ),
        (
            "harmony",
            " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
            said("", vec![now()]),
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>One < two.\n<|return|>",
            thought("a", "One < two.\n", vec![]),
        ),
        ("harmony", "<|channel|>commentary to=functions.now<|message|>{\"a\"", wrong("{\"a\"")),
    ]
}

fn parse(format: ReplyFormat, prompt: &str, pieces: &[&str]) -> Reply {
    let mut parser = format.parser(prompt, &tools());
    let mut reply = Reply::default();
    for piece in pieces {
        reply.add(parser.push(piece));
    }
    reply.add(parser.finish());
    reply
}

#[test]
fn answers_are_taken_apart() {
    for (name, answer, expected) in cases() {
        assert_eq!(parse(format(name), "", &[answer]), expected, "{name}: {answer}");
    }
}

#[test]
fn an_answer_may_begin_within_reasoning() {
    let reply = parse(format("hermes"), "<|im_start|>assistant\n<think>\n", &["so\n</think>\n\nYes."]);
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("so", "Yes."));
    let reply = parse(format("hermes"), "<|im_start|>assistant\n<think>\n\n</think>\n\n", &["Yes."]);
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("", "Yes."));
}

#[test]
fn without_tools_nothing_is_a_call() {
    for (name, answer, _) in cases().into_iter().filter(|(name, ..)| *name != "harmony") {
        let mut parser = format(name).parser("", &[]);
        let mut reply = Reply::default();
        reply.add(parser.push(answer));
        reply.add(parser.finish());
        assert!(reply.calls.is_empty() && !reply.malformed, "{name}: {answer}");
    }
}

#[test]
fn text_goes_out_as_it_comes() {
    let mut parser = format("hermes").parser("", &tools());
    assert_eq!(parser.push("One"), [ReplyPart::Text("One".into())]);
    assert_eq!(parser.push(" two <"), [ReplyPart::Text(" two".into())]);
    assert_eq!(parser.push("b"), [ReplyPart::Text(" <b".into())]);
    assert_eq!(parser.push("<tool_call>{\"name\": \"now\", \"arguments\": {"), []);
    assert_eq!(parser.push("}}").len(), 1, "a call goes out with its last character");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any way to cut an answer gives the same, whatever the answer.
    #[test]
    fn cuts_do_not_show(case in 0..cases().len(), cuts in prop::collection::vec(0.0..1.0, 0..40), drop in 0.0..1.5) {
        let (name, answer, expected) = cases().swap_remove(case);
        // Beginnings of answers are answers too.
        let chars: Vec<char> = answer.chars().collect();
        let kept = ((drop * chars.len() as f64) as usize).min(chars.len());
        let answer: String = chars[..kept].iter().collect();
        let whole = parse(format(name), "", &[&answer]);
        if kept == chars.len() {
            prop_assert_eq!(&whole, &expected);
        }
        let mut places: Vec<usize> = cuts.iter().map(|c| (c * kept as f64) as usize).collect();
        places.extend([0, kept]);
        places.sort_unstable();
        let pieces: Vec<String> = places.windows(2).map(|w| chars[w[0]..w[1]].iter().collect()).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(parse(format(name), "", &pieces), whole);
    }

    /// Nothing panics, and nothing is lost but markers and blanks.
    #[test]
    fn any_text_comes_to_an_end(
        words in prop::collection::vec(prop::sample::select(vec![
            "<tool_call>", "</tool_call>", "{", "}", "[", "]", "\"", "\\", "<think>", "</think>", "a", " ", "\n", "é",
            "\"name\": \"now\"", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "analysis", "to=functions.now",
            "<function=", ">", "<parameter=", "</parameter>", "</function>", "[TOOL_CALLS]", "[ARGS]", "(", ")", "=",
            "<|tool_call_start|>", "<|tool_call_end|>", "call:", "<|tool_call>", "<|\"|>", "<tool_call|>", ",", ":",
        ]), 0..60),
        format_index in 0usize..12,
    ) {
        let names = ["hermes", "coder", "glm", "mistral", "deepseek", "kimi", "lfm", "gemma", "functiongemma", "granite", "llama", "harmony"];
        let text = words.concat();
        let reply = parse(format(names[format_index]), "", &[&text]);
        for letter in ["a", "é"] {
            let count = |s: &str| s.matches(letter).count();
            let calls: usize = reply.calls.iter().map(|(name, arguments)| count(name) + count(&arguments.to_string())).sum();
            let out = count(&reply.text) + count(&reply.reasoning) + calls;
            // Headers of channels and names of calls may hold letters that are not the reader's.
            prop_assert!(out <= count(&text) || names[format_index] == "harmony");
        }
        let pieces: Vec<&str> = words.clone();
        prop_assert_eq!(parse(format(names[format_index]), "", &pieces), reply);
    }
}

/// Templates whose calls must be read; the others of the collection write none, or in ways that are not known here.
const READ: &[&str] = &[
    "Apriel-1.6-15b-Thinker-fixed",
    "Bielik-11B-v3.0-Instruct",
    "ByteDance-Seed-OSS",
    "GLM-4.6",
    "GLM-4.7-Flash",
    "GigaChat3.1-10B-A1.8B",
    "LFM2.5-8B-A1B",
    "MiMo-VL",
    "MiniMax-M1",
    "MiniMax-M2",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "NVIDIA-Nemotron-Nano-v2",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "Reka-Edge",
    "Spark2.5",
    "StepFun3.5-Flash",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "deepseek-ai-DeepSeek-V4",
    "google-gemma-4-31B-it-interleaved",
    "google-gemma-4-31B-it",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
    "inclusionai-ling-3.0-flash",
    "llama-cpp-deepseek-r1",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "poolside-Laguna-S-2.1",
    "poolside-Laguna-XS-2.1",
    "poolside-Laguna-XS.2",
    "unsloth-Apriel-1.5",
    "unsloth-mistral-Devstral-Small-2507",
];

#[test]
fn calls_come_back_from_the_templates_that_write_them() {
    let Some(folder) = std::env::var_os("CERA_TEST_VOCABS").map(|v| PathBuf::from(v).join("templates"))
    else {
        println!("skipped: llama.cpp's templates not fetched (CERA_TEST_VOCABS names the folder above them)");
        return;
    };
    let tokenizer = tokenizer(VocabSpec { bos: Some(1), eos: Some(2), ..spm() });
    let arguments = json!({ "city": "São \"Paulo\"\n<b>", "days": 2 });
    let function = |text: bool| match text {
        true => json!({ "name": "weather", "arguments": arguments.to_string() }),
        false => json!({ "name": "weather", "arguments": arguments }),
    };
    let tools = tools();
    let mut read = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "jinja")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let source = std::fs::read_to_string(path).unwrap();
        let Ok(template) = ChatTemplate::new(&source) else { continue };
        let render = |messages: &[Value], add_generation_prompt| {
            let chat = Chat { messages, tools: Some(&tools), add_generation_prompt, ..Chat::default() };
            template.render(&tokenizer, &chat).map(|prompt| prompt.text())
        };
        let user = json!({ "role": "user", "content": "How is it?" });
        let Ok(prompt) = render(std::slice::from_ref(&user), true) else { continue };
        let found = [false, true].into_iter().any(|as_text| {
            let call = json!({ "id": "abcdefghi", "type": "function", "function": function(as_text) });
            let said = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
            let Ok(history) = render(&[user.clone(), said], false) else { return false };
            let common = prompt.bytes().zip(history.bytes()).take_while(|(a, b)| a == b).count();
            let common = (0..=common).rev().find(|&at| history.is_char_boundary(at)).unwrap();
            // Two markers may begin alike.
            let open = history[..common].rfind('<').filter(|&at| !history[at..common].contains('>'));
            let common = open.unwrap_or(common);
            let (before, answer) = history.split_at(common);
            let ends = [
                "<|im_end|>",
                "</s>",
                "<|eot_id|>",
                "<｜end▁of▁sentence｜>",
                "<|call|>",
                "<|end_of_text|>",
                "<|tool_response>",
                "<turn|>",
                "[e~[",
                "<|message_sep|>",
            ];
            let end = ends.iter().filter_map(|end| answer.find(end)).min().unwrap_or(answer.len());
            let mut reply = Reply::default();
            let mut parser = ReplyFormat::of(&source).parser(before, &tools);
            reply.add(parser.push(&answer[..end]));
            reply.add(parser.finish());
            let good = reply.calls == [("weather".to_owned(), arguments.clone())] && !reply.malformed;
            if !good && READ.contains(&name) {
                println!("{name}: {:?} gives {reply:?}", &answer[..end]);
            }
            good
        });
        if found {
            read.push(name.to_owned());
        }
    }
    println!("{} templates: {}", read.len(), read.join(", "));
    let missing: Vec<&&str> = READ.iter().filter(|name| !read.contains(&name.to_string())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

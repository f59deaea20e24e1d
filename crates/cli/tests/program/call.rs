//! Calls that make no sense, and models that are not there.

use crate::tiny::Text;
use crate::{Place, bad, good};

#[test]
fn a_wrong_call_exits_with_2() {
    let place = Place::new(Text::Chat);
    bad(&mut place.cera(&["fly"]), 2, &["fly"]);
    bad(&mut place.cera(&["run", "-p", "x"]), 2, &["--model"]);
    bad(&mut place.with_model(&["run"]), 2, &["-p TEXT", "-f FILE"]);
    bad(&mut place.with_model(&["run", "-p", "x", "-f", "y"]), 2, &["cannot be used with"]);
    bad(&mut place.with_model(&["run", "-p", "x", "--raw", "--system", "y"]), 2, &["cannot be used with"]);
    bad(&mut place.with_model(&["run", "-p", "x", "--stop", ""]), 2, &["--stop"]);
    let both = ["run", "-p", "x", "--mirostat", "2", "--typical", "0.5"];
    bad(&mut place.with_model(&both), 2, &["mirostat", "typical_p"]);
    bad(&mut place.with_model(&["run", "-p", "x", "--samplers", "top_q"]), 2, &["top_q", "top_n_sigma"]);
    bad(&mut place.with_model(&["logits", "-p", "x"]), 2, &["--out"]);
    bad(&mut place.with_model(&["bench", "-p", "0", "-n", "0"]), 2, &["nothing to measure"]);
    bad(&mut place.with_model(&["bench", "-p", "199", "-c", "198"]), 2, &["198", "199"]);
    bad(&mut place.with_model(&["bench", "--device", "reference", "-t", "2"]), 2, &["--threads"]);
}

#[test]
fn a_flag_value_that_cannot_be_exits_with_2() {
    let place = Place::new(Text::Chat);
    let cases = [
        ("-t", "0"),
        ("-c", "0"),
        ("--chunk", "-1"),
        ("-n", "-2"),
        ("--temp", "-0.5"),
        ("--temp", "warm"),
        ("--top-k", "-1"),
        ("--top-p", "1.5"),
        ("--min-p", "NaN"),
        ("--repeat-penalty", "0"),
        ("--repeat-last-n", "-2"),
        ("--presence-penalty", "inf"),
        ("--frequency-penalty", "NaN"),
        ("--typical", "1.1"),
        ("--top-nsigma", "inf"),
        ("--xtc-probability", "-0.1"),
        ("--xtc-threshold", "2"),
        ("--dynatemp-range", "-1"),
        ("--dynatemp-exp", "-1"),
        ("--dry-multiplier", "-1"),
        ("--dry-base", "0.5"),
        ("--dry-allowed-length", "-1"),
        ("--dry-penalty-last-n", "-2"),
        ("--dry-sequence-breaker", ""),
        ("--mirostat", "1"),
        ("--mirostat-ent", "-1"),
        ("--mirostat-lr", "x"),
        ("--logit-bias", "7"),
        ("--logit-bias", "7+inf"),
        ("--samplers", "top_k;adaptive_p"),
        ("--samplers", "top_k;topk"),
        ("--min-tokens", "-1"),
        ("--logprobs", "-1"),
        ("--seed", "x"),
        ("--cpu-tier", "mmx"),
        ("--device", "abacus"),
        ("--ids", "1,x"),
    ];
    for (flag, value) in cases {
        let words: &[&str] = if flag == "--ids" { &["run"] } else { &["run", "-p", "x"] };
        let flag_and_value = format!("{flag}={value}");
        let flag_and_value = if flag.starts_with("--") { flag_and_value } else { format!("{flag}{value}") };
        bad(place.with_model(words).arg(flag_and_value), 2, &[]);
    }
}

#[test]
fn keys_and_values_may_be_kept_differently_by_the_short_flags_too() {
    let place = Place::new(Text::Chat);
    for flags in [["-ctk", "q4_0", "-ctv", "q8_0"], ["--cache-type-k", "f32", "--cache-type-v", "q4_0"]] {
        let mut command = place.with_model(&["run", "-p", "x", "--temp", "0", "-n", "3"]);
        assert_eq!(good(command.args(flags)).out, "ABC\n");
    }
    for flag in ["-ctk", "-ctv", "--cache-type"] {
        bad(place.with_model(&["run", "-p", "x"]).args([flag, "q9_9"]), 2, &["q9_9", "q4_0"]);
    }
}

#[test]
fn every_flag_has_its_twin_in_the_environment() {
    let place = Place::new(Text::Chat);
    let mut command = place.cera(&["run"]);
    command.env("CERA_MODEL", &place.model).env("CERA_PROMPT", "hi").env("CERA_TEMP", "0");
    command.env("CERA_TOKENS", "3").env("CERA_JSON", "1").env("CERA_DEVICE", "reference");
    let answer = crate::object(&good(&mut command).out);
    assert_eq!(answer["text"], "ABC");
    bad(place.with_model(&["run", "-p", "x"]).env("CERA_TOP_P", "2"), 2, &["top_p"]);

    // What --help says of each flag names the twin.
    for command in [
        "run", "chat", "inspect", "plan", "tokenize", "logits", "embed", "rerank", "bench", "doctor", "pull",
        "list",
    ] {
        let help = good(&mut place.cera(&[command, "--help"])).out;
        let flags = help.split("\n      --").skip(1).chain(help.split("\n  -").skip(1));
        for flag in flags.map(|f| f.split("\n  -").next().unwrap().split("\n      --").next().unwrap()) {
            let own = flag.contains("help") || flag.contains("version");
            // Long lines are broken anywhere.
            let words: Vec<&str> = flag.split_whitespace().collect();
            assert!(own || words.join(" ").contains("[env: CERA_"), "{command}: {flag}");
        }
    }
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let place = Place::new(Text::Chat);
    for command in ["run", "tokenize"] {
        bad(&mut place.cera(&[command, "-m", "/no/such.gguf", "-p", "x"]), 1, &["/no/such.gguf"]);
    }
    for command in ["chat", "inspect", "plan", "bench", "pull"] {
        bad(&mut place.cera(&[command, "-m", "/no/such.gguf"]), 1, &["/no/such.gguf"]);
    }
    bad(&mut place.cera(&["run", "-m", "gpt9", "-p", "x"]), 1, &["gpt9", "smollm2"]);
    bad(&mut place.cera(&["pull", "gpt9"]), 1, &["gpt9", "smollm2"]);
    bad(&mut place.cera(&["pull"]), 2, &[]);
    bad(&mut place.cera(&["run", "-m", "smollm2", "-p", "x"]), 1, &["smollm2", "HF_HUB_OFFLINE"]);
}

#[test]
fn a_file_that_is_no_model_is_refused() {
    let place = Place::new(Text::Chat);
    let junk = place.file("junk.gguf", "this is text");
    bad(&mut place.cera(&["run", "-m", &junk, "-p", "x"]), 1, &["cera inspect"]);
    let folder = crate::text(&place.folder);
    bad(&mut place.cera(&["inspect", "-m", &folder]), 1, &["no Hugging Face folder"]);
}

#[test]
fn lists_what_can_be_had() {
    let place = Place::new(Text::Chat);
    let list = good(&mut place.cera(&["list"])).out;
    assert!(list.contains("smollm2") && list.contains("not fetched"), "{list}");
    let objects = crate::objects(&good(&mut place.cera(&["list", "--json"])).out);
    assert!(objects.iter().any(|o| o["name"] == "smollm2" && o["local"] == false));
}

#[test]
fn pulls_a_path_by_giving_it_back() {
    let place = Place::new(Text::Chat);
    let out = good(&mut place.with_model(&["pull"])).out;
    assert_eq!(out.trim_end(), crate::text(&place.model));
    let object = crate::object(&good(&mut place.with_model(&["pull", "--json"])).out);
    assert_eq!(object["path"], crate::text(&place.model));
}

//! Measuring, alone and beside another engine's programs, which are played by scripts here.

use serde_json::{Value, json};

use crate::tiny::Text;
use crate::{Place, bad, good, object, objects, text};

const REFERENCE: &[&str] = &["--device", "reference"];

fn number(o: &Value, key: &str) -> f64 {
    o[key].as_f64().unwrap_or_else(|| panic!("no {key} in {o}"))
}

#[test]
fn every_number_of_prompts_tokens_depths_and_sequences_is_measured() {
    let place = Place::new(Text::None);
    let words = ["bench", "-p", "8,16", "-n", "3", "-d", "0,40", "--batch", "1,3", "-r", "2", "--json"];
    let tests = objects(&good(place.with_model(&words).args(REFERENCE)).out);
    let names: Vec<&str> = tests.iter().map(|t| t["test"].as_str().unwrap()).collect();
    let shallow = ["pp8", "pp16", "tg3", "tg3 x3"];
    let deep = ["pp8 @ d40", "pp16 @ d40", "tg3 @ d40", "tg3 x3 @ d40"];
    assert_eq!(names, [shallow, deep].concat());
    for test in &tests {
        assert!(0.0 < number(test, "least") && number(test, "least") <= number(test, "tokens_per_second"));
        assert_eq!(test["samples"].as_array().unwrap().len(), 2);
        // The reference is no measure of a machine.
        assert_eq!((&test["limit"], &test["peer"]), (&Value::Null, &Value::Null));
    }
    assert_eq!((&tests[7]["sequences"], &tests[7]["depth"]), (&json!(3), &json!(40)));
}

#[test]
fn the_processors_speed_is_told_as_a_part_of_its_limits() {
    let place = Place::new(Text::None);
    let words = ["bench", "-p", "64", "-n", "4", "-r", "1", "-t", "1"];
    let out = good(&mut place.with_model(&words)).out;
    assert!(out.contains("limits: ") && out.contains("GB/s read") && out.contains(" % of "), "{out}");
    for test in objects(&good(place.with_model(&words).arg("--json")).out) {
        let limit = &test["limit"];
        let fraction = number(&test, "tokens_per_second") / number(limit, "tokens_per_second");
        assert!((fraction / number(limit, "fraction") - 1.0).abs() < 1e-9, "{test}");
        assert!(limit["bound"] == "memory" || limit["bound"] == "arithmetic");
        assert!(number(limit, "bytes") >= test["weight_bytes"].as_f64().unwrap() / 2.0, "{test}");
    }
}

#[test]
fn the_first_token_is_timed_from_the_start_of_the_program() {
    let place = Place::new(Text::None);
    let words = ["bench", "-p", "0", "-n", "0", "--ttft", "-r", "2", "--json"];
    // The twins of this process's flags are not the other's.
    let mut command = place.with_model(&words);
    command.args(REFERENCE).env("CERA_PROMPT", "not for the program that is measured");
    let o = object(&good(&mut command).out);
    assert_eq!((&o["test"], &o["prompt"]), (&json!("first_token"), &json!(32)));
    assert!(0.0 < number(&o, "least") && number(&o, "seconds") < 60.0, "{o}");
    assert_eq!(o["samples"].as_array().unwrap().len(), 2);
    let out = good(place.with_model(&words[..8]).args(REFERENCE)).out;
    assert!(out.contains("32 + 1 tokens") && out.contains("seconds"), "{out}");
}

#[test]
fn calls_that_measure_nothing_are_wrong() {
    let place = Place::new(Text::None);
    bad(&mut place.with_model(&["bench", "--batch", "0"]), 2, &["--batch"]);
    bad(&mut place.with_model(&["bench", "--batch", "4", "--chunk", "3"]), 2, &["--batch 4", "3 rows"]);
    bad(&mut place.with_model(&["bench", "--against-args", "-rtr 1"]), 2, &["--against"]);
    bad(&mut place.with_model(&["bench", "--against-name", "other"]), 2, &["--against"]);
    bad(&mut place.with_model(&["bench", "--against-batched", "x"]), 2, &["--batch"]);
    let huge = usize::MAX.to_string();
    bad(&mut place.with_model(&["bench", "-p", &huge, "-d", "1"]), 2, &["too large"]);
    let words = ["bench", "-p", "4", "-n", "0", "-r", "1", "--plot", "/no/such/folder/x.svg"];
    let ran = crate::run(place.with_model(&words).args(REFERENCE));
    assert!(ran.code == Some(1) && ran.err.contains("/no/such/folder/x.svg"), "{}", ran.err);
}

#[cfg(unix)]
mod against {
    use super::*;

    use std::os::unix::fs::PermissionsExt;

    /// Answers as llama.cpp's does, with 1000 tokens a second for prompts and 10 for generations, and keeps what it is
    /// called with.
    const LLAMA: &str = r#"#!/bin/sh
if [ "$1" = --help ]; then
    printf -- '-n, --n-gen <n>\n-d, --n-depth <n>\n-o, --output <json>\n--no-warmup\n'
    exit 0
fi
echo "$*" >> "$0.calls"
depth=0
while [ $# -gt 0 ]; do
    case $1 in -p) prompt=$2 ;; -n) tokens=$2 ;; -d) depth=$2 ;; esac
    shift
done
row() {
    printf '%s  {\n    "n_prompt": %s,\n    "n_gen": %s,\n    "n_depth": %s,\n    "samples_ts": [ %s ]\n  }' "$before" "$@"
    before=','
}
echo '['
[ "$prompt" = 0 ] || row "$prompt" 0 "$depth" 1000.0
[ "$tokens" = 0 ] || row 0 "$tokens" "$depth" 10.0
printf '\n]\n'
"#;

    /// Answers as ik_llama.cpp's does, which has `-gp` in place of `-d`.
    const IK: &str = r#"#!/bin/sh
if [ "$1" = --help ]; then
    printf -- '-n, --n-gen <n>\n-gp <pp,tg>\n-o, --output <json>\n-w, --warmup <0|1>\n'
    exit 0
fi
echo "$*" >> "$0.calls"
echo '['
echo '======= Repacked 3 tensors'
case "$*" in
*-gp*) printf '{\n"n_prompt": 40,\n"n_gen": 4,\n"test": "tg4@pp40",\n"samples_ts": [ 20 ]\n}\n]\n' ;;
*) printf '{\n"n_prompt": 16,\n"n_gen": 0,\n"samples_ts": [ 500 ]\n},\n{\n"n_prompt": 0,\n"n_gen": 4,\n"samples_ts": [ 30 ]\n}\n]\n' ;;
esac
"#;

    /// Answers as llama-batched-bench does.
    const BATCHED: &str = r#"#!/bin/sh
echo "$*" >> "$0.calls"
echo '|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |'
echo '|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|'
echo '|    40 |      4 |    3 |    132 |    0.000 |     -nan |    1.759 |    55.50 |    1.759 |     1.14 |'
"#;

    fn program(place: &Place, name: &str, script: &str) -> String {
        let path = place.file(name, script);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn calls(program: &str) -> Vec<String> {
        let calls = std::fs::read_to_string(format!("{program}.calls")).unwrap();
        calls.lines().map(str::to_owned).collect()
    }

    #[test]
    fn both_engines_take_turns_on_the_same_tests() {
        let place = Place::new(Text::None);
        let peer = program(&place, "llama-bench", LLAMA);
        let svg = text(&place.path("speed.svg"));
        let words = ["bench", "-p", "16", "-n", "4", "-d", "0,40", "-r", "3", "-t", "2", "--ttft"];
        let mut command = place.with_model(&words);
        command.args(["--against", &peer, "--against-args", "-fa 1", "--plot", &svg]);
        let tests = objects(&good(command.arg("--json")).out);
        let [first, tests @ ..] = &tests[..] else { panic!("no results") };
        assert!(number(&first["peer"], "seconds") > 0.0 && number(&first["peer"], "ratio") > 0.0, "{first}");
        let names: Vec<&str> = tests.iter().map(|t| t["test"].as_str().unwrap()).collect();
        assert_eq!(names, ["pp16", "tg4", "pp16 @ d40", "tg4 @ d40"]);
        for (test, speed) in tests.iter().zip([1000.0, 10.0, 1000.0, 10.0]) {
            let peer = &test["peer"];
            assert_eq!(peer["name"], "llama-bench -fa 1");
            assert_eq!(peer["samples"], json!([speed, speed, speed]));
            let ratio = number(test, "tokens_per_second") / speed;
            assert!((number(peer, "ratio") / ratio - 1.0).abs() < 1e-9, "{test}");
        }
        let calls = calls(&peer);
        let model = text(&place.model);
        let cold = format!("-m {model} -t 2 -r 1 -o json -p 32 -n 0 --no-warmup -fa 1");
        let shallow = format!("-m {model} -t 2 -r 1 -o json -p 16 -n 4 -fa 1");
        let deep = format!("-m {model} -t 2 -r 1 -o json -p 16 -n 4 -d 40 -fa 1");
        let times = |call: &String, n| std::iter::repeat_n(call.clone(), n);
        let expected: Vec<String> =
            times(&cold, 4).chain(times(&shallow, 3)).chain(times(&deep, 3)).collect();
        assert_eq!(calls, expected);

        let picture = std::fs::read_to_string(&svg).unwrap();
        for part in ["<svg", "Counts", "pp16 @ d40", "cera", "llama-bench -fa 1", "tokens a second", "</svg>"]
        {
            assert!(picture.contains(part), "no {part} in {picture}");
        }
        let mut command = place.with_model(&words[..9]);
        let out = good(command.args(["--against", &peer, "--against-name", "the other"])).out;
        assert!(
            out.contains("against the other") && out.contains("ratio") && out.contains("1000.00"),
            "{out}"
        );
    }

    #[test]
    fn what_the_other_cannot_measure_is_left_open() {
        let place = Place::new(Text::None);
        let (peer, batched) = (program(&place, "ik", IK), program(&place, "batched", BATCHED));
        let words = ["bench", "-p", "16", "-n", "4", "-d", "0,40", "--batch", "1", "-r", "1", "--json"];
        let mut command = place.with_model(&words);
        let tests = objects(&good(command.args(REFERENCE).args(["--against", &peer])).out);
        let speeds: Vec<&Value> = tests.iter().map(|t| &t["peer"]["tokens_per_second"]).collect();
        assert_eq!(speeds, [&json!(500.0), &json!(30.0), &Value::Null, &json!(20.0)]);
        assert!(calls(&peer)[1].contains("-p 0 -n 0 -gp 40,4"), "{:?}", calls(&peer));

        let words = ["bench", "-p", "0", "-n", "4", "-d", "40", "--batch", "1,3", "-r", "1"];
        let mut command = place.with_model(&words);
        command.args(REFERENCE).args(["--against-batched", &batched, "--against-batched-args", "-fa 1"]);
        let tests = objects(&good(command.arg("--json")).out);
        assert_eq!(tests[0]["peer"], Value::Null);
        assert_eq!(tests[1]["peer"]["tokens_per_second"], json!(55.5));
        let call = &calls(&batched)[0];
        assert!(call.contains("-t 1 -c 768 -npp 40 -ntg 4 -npl 3 -fa 1"), "{call}");
        let mut command = place.with_model(&words);
        let out = good(command.args(REFERENCE).args(["--against-batched", &batched])).out;
        assert!(out.contains("tg4 x3 @ d40") && out.contains("55.50"), "{out}");
    }

    #[test]
    fn a_peer_that_fails_is_named() {
        let place = Place::new(Text::None);
        let words = ["bench", "-p", "16", "-n", "4", "-r", "1", "--json", "--against"];
        let fails = |peer: &str, said: &[&str]| {
            let mut command = place.with_model(&words);
            bad(command.arg(peer).args(REFERENCE), 1, said);
        };
        fails("/no/such/llama-bench", &["/no/such/llama-bench", "cannot be started"]);
        let other = program(&place, "other", "#!/bin/sh\necho I know no flags\n");
        fails(&other, &[&other, "--n-gen"]);
        let dies = program(&place, "dies", &LLAMA.replace("echo '['", "echo no memory >&2; exit 7"));
        fails(&dies, &[&dies, "no memory", "7"]);
        let silent = program(&place, "silent", &LLAMA.replace("row ", ": "));
        fails(&silent, &[&silent, "0 results of pp16"]);
        let chatty = program(&place, "chatty", &LLAMA.replace("echo '['", "echo '[{'"));
        fails(&chatty, &[&chatty, "JSON"]);

        let empty = program(&place, "empty", "#!/bin/sh\necho nothing fits\n");
        let words = ["bench", "-p", "0", "-n", "4", "--batch", "3", "-r", "1", "--against-batched", &empty];
        let ran = crate::run(place.with_model(&words).args(REFERENCE));
        assert!(ran.code == Some(1) && ran.err.contains("no result of tg4 x3"), "{}", ran.err);
        assert!(ran.err.contains(&empty), "{}", ran.err);
    }
}

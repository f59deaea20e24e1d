//! Ctrl-C.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::Place;
use crate::tiny::Text;

const ENDLESS: &[&str] = &["--device", "reference", "--temp", "0", "--ignore-eos"];

fn interrupt(child: &Child) {
    let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

#[test]
fn it_ends_a_run_with_what_there_is() {
    let place = Place::new(Text::Plain);
    let mut command = place.with_model(&["run", "-p", "A"]);
    let command = command.args(ENDLESS).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 3];
    out.read_exact(&mut first).unwrap();
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130));
    assert!(rest.len() < 4000 && rest.ends_with('\n'), "{}", rest.len());
    assert!(String::from_utf8(done.stderr).unwrap().contains("broken off"));
}

#[test]
fn it_ends_an_answer_of_a_chat_and_not_the_chat() {
    let place = Place::new(Text::Chat);
    let mut command = place.with_model(&["chat"]);
    let command = command.args(ENDLESS).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        input.write_all(b"hello\n").unwrap();
        let mut first = [0; 3];
        out.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"ABC");
        interrupt(&child);
        let mut rest = String::new();
        out.read_line(&mut rest).unwrap();
        assert!(rest.ends_with('\n') && rest.len() < 4000, "{}", rest.len());
    }
    input.write_all(b"/exit\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_message_whose_answer_has_not_begun_is_taken_back() {
    let place = Place::new(Text::Chat);
    let mut command = place.with_model(&["chat", "--json", "--chunk", "1", "-n", "2"]);
    let command = command.args(ENDLESS).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut answer = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        crate::object(&line)
    };
    input.write_all(b"hello\n").unwrap();
    let first = answer();
    assert_eq!(first["text"], "AB");
    // What is said of the unknown command comes just before the long message is read.
    input.write_all(format!("/fly\n{}\n", "x".repeat(3900)).as_bytes()).unwrap();
    err.read_line(&mut String::new()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(150));
    interrupt(&child);
    let broken_off = answer();
    assert_eq!((&broken_off["finish"], &broken_off["text"]), (&"cancelled".into(), &"".into()));
    let mut said = String::new();
    err.read_line(&mut said).unwrap();
    assert!(said.contains("taken back"), "{said}");
    // The conversation goes on behind the first answer, as if the long message had not been.
    input.write_all(b"hello\n").unwrap();
    let next = answer();
    assert_eq!(next["text"], "AB");
    let read = |a: &serde_json::Value| ["reused_tokens", "prompt_tokens"].map(|k| a[k].as_u64().unwrap());
    let ([_, once], [reused, new]) = (read(&first), read(&next));
    // Between the two turns: what the answer is, its end and the line end behind that.
    assert_eq!(reused + new, 2 * once + 2 + 2);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

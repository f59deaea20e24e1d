//! The text that a command is given, and its tokens.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use cera_token::{Special, Tokenizer};

use crate::args::{InputArgs, PlainTextArgs};
use crate::failure::Failure;

/// What was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A text, not empty.
    Text(String),
    /// Token ids, at least one.
    Ids(Vec<u32>),
}

/// Reads what the flags name.
pub fn read(args: &InputArgs) -> Result<Input, Failure> {
    if let Some(ids) = &args.ids {
        return Ok(Input::Ids(parse_ids(ids)?));
    }
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read_file(path)?,
        (None, None) => {
            return Err(Failure::Call("no text: give one of -p TEXT, -f FILE and --ids IDS".into()));
        }
    };
    if text.is_empty() {
        return Err(Failure::Call("the text is empty".into()));
    }
    Ok(Input::Text(text))
}

/// A text file as it stands; `-` is standard input.
pub fn read_file(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().read_to_string(&mut text).map(|_| ()),
        false => fs::read_to_string(path).map(|t| text = t),
    };
    read.map_err(|e| Failure::new(format_args!("{} cannot be read: {e}", path.display())))?;
    Ok(text)
}

/// The input's tokens. The tokenizer is asked for only where there is text.
pub fn tokens<'a>(
    input: &Input,
    tokenizer: impl FnOnce() -> Result<&'a Tokenizer, cera::Error>,
    how: PlainTextArgs,
) -> Result<Vec<u32>, Failure> {
    let text = match input {
        Input::Ids(ids) => return Ok(ids.clone()),
        Input::Text(text) => text,
    };
    let tokenizer = tokenizer()?;
    let special = if how.parse_special { Special::Parse } else { Special::AsText };
    let tokens = match how.no_special {
        true => tokenizer.encode(text, special),
        false => tokenizer.encode_whole(text, special),
    };
    Ok(tokens.map_err(cera::Error::from)?)
}

fn parse_ids(text: &str) -> Result<Vec<u32>, Failure> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|w| !w.is_empty());
    let id = |word: &str| {
        let bad = |e| Failure::Call(format!("--ids: {} is no token id: {e}", cera_gguf::shown(word)));
        word.parse::<u32>().map_err(bad)
    };
    let ids: Vec<u32> = words.map(id).collect::<Result<_, _>>()?;
    if ids.is_empty() { Err(Failure::Call("--ids has no token id".into())) } else { Ok(ids) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parted_by_commas_and_blanks() {
        assert_eq!(parse_ids("1, 2,3  4\n").unwrap(), [1, 2, 3, 4]);
        for wrong in ["", " , ", "1 x", "-1", "4294967296"] {
            assert!(matches!(parse_ids(wrong), Err(Failure::Call(_))), "{wrong:?}");
        }
    }
}

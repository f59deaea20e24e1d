//! What a model's name means: a path, a catalogue entry or a place on the Hub.

use crate::cache::{is_inner_path, is_plain_name};
use crate::{Entry, Error};
use std::path::{Path, PathBuf};

/// A model's name, understood.
#[derive(Debug)]
pub(crate) enum Reference {
    Path(PathBuf),
    Entry(&'static Entry),
    Hub(HubReference),
}

/// `hf:org/repo[@revision][:selector]`.
#[derive(Debug, PartialEq)]
pub(crate) struct HubReference {
    pub(crate) repo: String,
    pub(crate) revision: String,
    /// File name or quantization; `None` leaves the choice to [`choose`].
    pub(crate) selector: Option<String>,
}

impl Reference {
    /// A text with a path separator or ending in `.gguf` is a path; then come short names, then files of that name.
    pub(crate) fn parse(text: &str, catalogue: &'static [Entry]) -> Result<Self, Error> {
        if let Some(rest) = text.strip_prefix("hf:") {
            return HubReference::parse(rest).map(Self::Hub);
        }
        let path = Path::new(text);
        if text.contains(['/', '\\']) || text.to_ascii_lowercase().ends_with(".gguf") {
            return if path.exists() {
                Ok(Self::Path(path.to_owned()))
            } else {
                Err(Error::NoSuchPath { path: path.to_owned() })
            };
        }
        if let Some(entry) = catalogue.iter().find(|e| e.name == text) {
            return Ok(Self::Entry(entry));
        }
        if !text.is_empty() && path.exists() {
            return Ok(Self::Path(path.to_owned()));
        }
        let known = catalogue.iter().map(|e| e.name).collect();
        Err(Error::UnknownName { name: text.to_owned(), known })
    }
}

impl HubReference {
    fn parse(text: &str) -> Result<Self, Error> {
        let bad = |reason| Error::BadReference { text: format!("hf:{text}"), reason };
        let (place, selector) = match text.split_once(':') {
            Some((place, selector)) => (place, Some(selector)),
            None => (text, None),
        };
        let (repo, revision) = place.split_once('@').unwrap_or((place, "main"));
        match repo.split_once('/') {
            Some((org, name)) if is_plain_name(org) && is_plain_name(name) => {}
            _ => return Err(bad("a model on the Hub is hf:org/repo, in letters, digits, `.`, `_` and `-`")),
        }
        if !is_inner_path(revision) || !revision.split('/').all(is_plain_name) {
            return Err(bad("the revision after `@` must be a branch, a tag or a commit"));
        }
        if selector.is_some_and(|s| !is_inner_path(s)) {
            return Err(bad("after `:` comes a file of the repository or a quantization such as Q4_K_M"));
        }
        Ok(Self {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            selector: selector.map(str::to_owned),
        })
    }
}

/// The files, in order, that `selector` means among a repository's `names`: one, or all parts of a split model.
///
/// A selector is a file name, or a quantization that the name contains as a word, in any case. Without one the
/// repository's only model is meant, or its Q4_K_M, which is what llama.cpp takes.
pub(crate) fn choose(repo: &str, selector: Option<&str>, names: &[String]) -> Result<Vec<String>, Error> {
    if let Some(file) = selector.and_then(|s| names.iter().find(|n| *n == s)) {
        return Ok(with_parts(file, names));
    }
    let models: Vec<&String> = names.iter().filter(|n| is_model(n)).collect();
    let of_quant = |quant: &str| -> Vec<&String> {
        models
            .iter()
            .copied()
            .filter(|n| has_word(&n.to_ascii_lowercase(), &quant.to_ascii_lowercase()))
            .collect()
    };
    let available = || models.iter().map(|n| (*n).clone()).collect::<Vec<_>>();
    let fitting = match selector {
        Some(s) => of_quant(s),
        None if models.len() == 1 => models.clone(),
        None => of_quant("Q4_K_M"),
    };
    match (fitting.as_slice(), selector) {
        ([one], _) => Ok(with_parts(one, names)),
        ([], Some(s)) => {
            Err(Error::NoMatch { repo: repo.to_owned(), selector: s.to_owned(), available: available() })
        }
        ([], None) if models.is_empty() => Err(Error::NoMatch {
            repo: repo.to_owned(),
            selector: "*.gguf".to_owned(),
            available: Vec::new(),
        }),
        ([], None) => Err(Error::Ambiguous { repo: repo.to_owned(), available: available() }),
        (several, _) => Err(Error::Ambiguous {
            repo: repo.to_owned(),
            available: several.iter().map(|n| (*n).clone()).collect(),
        }),
    }
}

/// A GGUF file that is a model of its own: no later part of a split one, no vision projector.
fn is_model(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    file.ends_with(".gguf") && !file.starts_with("mmproj") && split_of(name).is_none_or(|s| s.part == 1)
}

/// Whether `word` occurs in `text` with no letter, digit or `_` beside it, so that `Q4_K` is not `Q4_K_M`.
fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text.get(..at), text.get(at + word.len()..));
        !word.is_empty()
            && !joins(before.and_then(|t| t.chars().next_back()))
            && !joins(after.and_then(|t| t.chars().next()))
    })
}

/// A part's place in a split model: `<stem>-00002-of-00003.gguf`.
pub(crate) struct Split<'a> {
    pub(crate) stem: &'a str,
    pub(crate) part: u32,
    pub(crate) parts: u32,
}

/// Reads the split naming; `None` for a file that is whole.
pub(crate) fn split_of(name: &str) -> Option<Split<'_>> {
    let (rest, parts) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |t: &str| (t.len() == 5).then(|| t.parse().ok()).flatten();
    let (part, parts) = (number(part)?, number(parts)?);
    (1..=parts).contains(&part).then_some(Split { stem, part, parts })
}

/// `file`, or all parts of the split model whose first part it is, in order.
fn with_parts(file: &str, names: &[String]) -> Vec<String> {
    let Some(first) = split_of(file).filter(|s| s.part == 1) else { return vec![file.to_owned()] };
    let mut parts: Vec<(u32, &String)> = names
        .iter()
        .filter_map(|n| split_of(n).map(|s| (s, n)))
        .filter(|(s, _)| s.stem == first.stem && s.parts == first.parts)
        .map(|(s, n)| (s.part, n))
        .collect();
    parts.sort();
    parts.into_iter().map(|(_, n)| n.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::CATALOGUE;

    fn hub(text: &str) -> Result<HubReference, Error> {
        match Reference::parse(text, CATALOGUE)? {
            Reference::Hub(h) => Ok(h),
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn references_are_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.gguf");
        std::fs::write(&file, "").expect("written");
        let text = file.to_str().expect("utf-8");
        assert!(matches!(Reference::parse(text, CATALOGUE), Ok(Reference::Path(p)) if p == file));
        assert!(
            matches!(Reference::parse("smollm2", CATALOGUE), Ok(Reference::Entry(e)) if e.name == "smollm2")
        );
        assert!(matches!(Reference::parse("no/such.gguf", CATALOGUE), Err(Error::NoSuchPath { .. })));
        assert!(matches!(Reference::parse("smollm2.gguf", CATALOGUE), Err(Error::NoSuchPath { .. })));
        let unknown = Reference::parse("smollm3", CATALOGUE).expect_err("unknown").to_string();
        assert!(unknown.contains("smollm3") && unknown.contains("smollm2"), "{unknown}");
        assert!(matches!(Reference::parse("", CATALOGUE), Err(Error::UnknownName { .. })));
    }

    #[test]
    fn hub_references() {
        let of = |repo: &str, revision: &str, selector: Option<&str>| HubReference {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            selector: selector.map(str::to_owned),
        };
        assert_eq!(hub("hf:a/b").expect("valid"), of("a/b", "main", None));
        assert_eq!(hub("hf:a/b:Q4_K_M").expect("valid"), of("a/b", "main", Some("Q4_K_M")));
        assert_eq!(hub("hf:a/b@v1:x/y.gguf").expect("valid"), of("a/b", "v1", Some("x/y.gguf")));
        for bad in [
            "hf:",
            "hf:a",
            "hf:a/b/c",
            "hf:../b",
            "hf:a/..",
            "hf:a/b@../x",
            "hf:a/b:../x",
            "hf:a/b:",
            "hf:a/b@",
        ] {
            assert!(matches!(hub(bad), Err(Error::BadReference { .. })), "{bad}");
        }
    }

    #[test]
    fn files_are_chosen_by_name_and_by_quantization() {
        let names: Vec<String> = [
            "README.md",
            "m-Q4_K_S.gguf",
            "m-Q4_K_M.gguf",
            "m.Q8_0.gguf",
            "big/m-f16-00002-of-00002.gguf",
            "big/m-f16-00001-of-00002.gguf",
            "mmproj-m-f16.gguf",
        ]
        .map(str::to_owned)
        .to_vec();
        let pick = |s: Option<&str>| choose("a/b", s, &names);
        assert_eq!(pick(Some("q8_0")).expect("one"), ["m.Q8_0.gguf"]);
        assert_eq!(pick(Some("m-Q4_K_S.gguf")).expect("one"), ["m-Q4_K_S.gguf"]);
        assert_eq!(pick(None).expect("the usual one"), ["m-Q4_K_M.gguf"]);
        assert_eq!(
            pick(Some("f16")).expect("both parts"),
            ["big/m-f16-00001-of-00002.gguf", "big/m-f16-00002-of-00002.gguf"]
        );
        let none = pick(Some("Q4_K")).expect_err("only M and S").to_string();
        assert!(none.contains("m-Q4_K_M.gguf") && none.contains("a/b"), "{none}");
        let several = choose("a/b", None, &["x-Q2_K.gguf".to_owned(), "x-Q3_K.gguf".to_owned()]);
        assert!(matches!(several, Err(Error::Ambiguous { available, .. }) if available.len() == 2));
        assert_eq!(choose("a/b", None, &["x-Q2_K.gguf".to_owned()]).expect("the only one"), ["x-Q2_K.gguf"]);
        assert!(matches!(choose("a/b", None, &["x.bin".to_owned()]), Err(Error::NoMatch { .. })));
    }
}

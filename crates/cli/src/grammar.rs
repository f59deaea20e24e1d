//! The flags that say what an answer must look like.

use std::path::{Path, PathBuf};

use cera::Grammar;
use clap::Args;

use crate::failure::Failure;
use crate::input::read_file;

/// What an answer must look like: at most one of these.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What answers must look like")]
pub struct GrammarArgs {
    /// The answer is a JSON document for which this JSON schema holds; `{}` is any document.
    #[arg(short = 'j', long, env = "CERA_JSON_SCHEMA", value_name = "SCHEMA", group = "form")]
    pub json_schema: Option<String>,
    /// The same, with the schema in a file.
    #[arg(long, env = "CERA_JSON_SCHEMA_FILE", value_name = "FILE", group = "form")]
    pub json_schema_file: Option<PathBuf>,
    /// The answer follows this grammar: GBNF, as in llama.cpp, or Lark where it begins with `%llguidance`.
    #[arg(long, env = "CERA_GRAMMAR", group = "form")]
    pub grammar: Option<String>,
    /// The same, with the grammar in a file.
    #[arg(long, env = "CERA_GRAMMAR_FILE", value_name = "FILE", group = "form")]
    pub grammar_file: Option<PathBuf>,
    /// The answer, from its beginning to its end, matches this regular expression.
    #[arg(long, env = "CERA_REGEX", group = "form")]
    pub regex: Option<String>,
}

impl GrammarArgs {
    /// The grammar, where one is given.
    pub fn grammar(&self) -> Result<Option<Grammar>, Failure> {
        let read = |path: &Option<PathBuf>| path.as_deref().map(read_file).transpose();
        if let Some(text) = &self.json_schema {
            return schema(text, None).map(Some);
        }
        if let Some(text) = read(&self.json_schema_file)? {
            return schema(&text, self.json_schema_file.as_deref()).map(Some);
        }
        let text = match &self.grammar {
            Some(text) => Some(text.clone()),
            None => read(&self.grammar_file)?,
        };
        let of = |text: String| match text.trim_start().starts_with("%llguidance") {
            true => Grammar::Lark(text),
            false => Grammar::Gbnf(text),
        };
        Ok(text.map(of).or_else(|| self.regex.clone().map(Grammar::Regex)))
    }
}

fn schema(text: &str, file: Option<&Path>) -> Result<Grammar, Failure> {
    Grammar::json_schema(text).map_err(|e| match file {
        Some(file) => Failure::new(format_args!("{}: {e}", file.display())),
        None => Failure::Call(format!("--json-schema: {e}")),
    })
}

//! Grammars against a model's vocabulary.

use std::sync::{Arc, OnceLock};

use cera_sample::{Compiled, Grammar, Grammars, Spelling, TokenTable};
use cera_token::{Kind, Shown, Tokenizer};

use crate::Error;

/// Compiles grammars. The vocabulary is made ready when the first comes, once. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    tokenizer: Option<Tokenizer>,
    grammars: Arc<OnceLock<Result<Grammars, cera_sample::Error>>>,
}

impl Compiler {
    pub fn new(tokenizer: Option<&Tokenizer>) -> Self {
        Self { tokenizer: tokenizer.cloned(), grammars: Arc::default() }
    }

    /// Compiles a grammar, within a second once the vocabulary is ready.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], [`Error::Sample`].
    pub fn compile(&self, grammar: &Grammar) -> Result<Compiled, Error> {
        let tokenizer = self.tokenizer.as_ref().ok_or(Error::NoTokenizer)?;
        let grammars = self.grammars.get_or_init(|| Grammars::new(&table(tokenizer)));
        Ok(grammars.as_ref().map_err(Clone::clone)?.compile(grammar)?)
    }
}

/// What the tokens spell in an answer. Whatever ends one is special, even where the file calls it text: a grammar must not
/// take it for a spelling.
fn table(tokenizer: &Tokenizer) -> TokenTable {
    let spelling = |id| {
        let piece = |shown| tokenizer.piece(id, shown).unwrap_or_default();
        match tokenizer.kind(id) {
            Some(Kind::Control) => special(piece(Shown::All)),
            _ if tokenizer.is_eog(id) => special(piece(Shown::All)),
            Some(Kind::Normal | Kind::UserDefined | Kind::Byte) => match piece(Shown::Text) {
                [] => Spelling::Nothing,
                bytes => Spelling::Text(bytes),
            },
            Some(Kind::Unknown | Kind::Unused) | None => Spelling::Nothing,
        }
    };
    // Ids are 32 bits wide.
    TokenTable::new((0..tokenizer.len() as u32).map(spelling), tokenizer.eog())
}

fn special(name: &[u8]) -> Spelling<'_> {
    std::str::from_utf8(name).map_or(Spelling::Nothing, Spelling::Special)
}

//! A vocabulary as constraints see it: what each token spells, which are special, which end an answer.

use std::sync::Arc;

use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// The most tokens, and the most bytes of one that can come: limits of the tree that is searched.
const MAX_TOKENS: usize = 1 << 23;
const MAX_BYTES: usize = 1000;

/// What a token is in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling<'a> {
    /// Text: these bytes, which need not be whole characters.
    Text(&'a [u8]),
    /// Structure of this name, such as `<|im_end|>`. It comes only where a grammar names it.
    Special(&'a str),
    /// Nothing: it never comes.
    Nothing,
}

/// What tokens spell, by id.
#[derive(Clone, Debug, Default)]
pub struct TokenTable {
    words: Vec<Vec<u8>>,
    ends: Vec<u32>,
}

impl TokenTable {
    /// Of the tokens in order of id, and the ids that end an answer.
    pub fn new<'a>(tokens: impl Iterator<Item = Spelling<'a>>, ends: &[u32]) -> Self {
        let words: Vec<Vec<u8>> = tokens.map(word).collect();
        let ends = ends.iter().copied().filter(|&id| (id as usize) < words.len()).collect();
        Self { words, ends }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// The token's place in the tree. Special ones lie behind a byte that no text has.
fn word(spelling: Spelling<'_>) -> Vec<u8> {
    match spelling {
        Spelling::Text(bytes) if bytes.len() <= MAX_BYTES => bytes.to_vec(),
        // Grammars write names of special tokens in these brackets; others are named by id alone.
        Spelling::Special(name) if name.len() < MAX_BYTES && name.starts_with('<') && name.ends_with('>') => {
            [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
        }
        Spelling::Text(_) | Spelling::Special(_) | Spelling::Nothing => Vec::new(),
    }
}

struct Tokens {
    trie: TokTrie,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(bytes)
    }

    /// Text that a grammar forces is left to the model to spell.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The tree of all tokens.
pub(super) fn environment(table: &TokenTable) -> Result<TokEnv, String> {
    let count = table.words.len();
    let size = u32::try_from(count).ok().filter(|_| (1..MAX_TOKENS).contains(&count));
    let Some(size) = size else { return Err(format!("{count} tokens: it must be 1 to {MAX_TOKENS}")) };
    // Its limits are assertions.
    let trie = catch_unwind(std::panic::AssertUnwindSafe(|| {
        let info = TokRxInfo::new(size, table.ends.first().copied().unwrap_or(INVALID_TOKEN));
        let trie = TokTrie::from(&info, &table.words);
        Ok(if table.ends.is_empty() { trie } else { trie.with_eos_tokens(&table.ends) })
    }));
    Ok(Arc::new(Tokens { trie: trie.map_err(|e| e.to_string())? }))
}

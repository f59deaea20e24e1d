//! The ways in which a word becomes tokens.

use crate::Error;
use crate::bpe::Bpe;
use crate::merge::Symbol;
use crate::plamo2::{self, Plamo2};
use crate::rwkv::Rwkv;
use crate::spm::Spm;
use crate::unigram::{self, Unigram};
use crate::vocab::Vocab;
use crate::wordpiece::WordPiece;

#[derive(Debug)]
pub(crate) enum Model {
    Bpe(Bpe),
    Spm(Spm),
    Unigram(Unigram),
    WordPiece(WordPiece),
    Rwkv(Rwkv),
    Plamo2(Plamo2),
}

/// What models use again from word to word.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    symbols: Vec<Symbol>,
    unigram: unigram::Scratch,
    plamo2: plamo2::Scratch,
}

impl Model {
    /// Appends the tokens of a word, in which no special token is looked for.
    pub fn word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), Error> {
        if u32::try_from(word.len()).is_err() {
            return Err(Error::WordLength { bytes: word.len() });
        }
        match self {
            Self::Bpe(bpe) => bpe.word(vocab, word, &mut scratch.symbols, out),
            Self::Spm(spm) => spm.word(vocab, word, &mut scratch.symbols, out),
            Self::Unigram(unigram) => unigram.word(vocab, word, &mut scratch.unigram, out),
            Self::WordPiece(wordpiece) => {
                wordpiece.word(word, out);
                Ok(())
            }
            Self::Rwkv(rwkv) => rwkv.word(vocab, word, out),
            Self::Plamo2(plamo2) => plamo2.word(vocab, word, &mut scratch.plamo2, out),
        }
    }
}

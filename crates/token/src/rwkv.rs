//! RWKV's world tokenizer: the longest token of bytes, then the longest behind it.

use crate::trie::Trie;
use crate::vocab::Vocab;
use crate::{Error, bytes};

#[derive(Debug)]
pub(crate) struct Rwkv {
    trie: Trie,
}

impl Rwkv {
    /// # Errors
    /// Those of [`Trie::new`].
    pub fn new(vocab: &Vocab) -> Result<Self, Error> {
        Ok(Self { trie: Trie::new(vocab.normal())? })
    }

    /// Appends the tokens of a text.
    pub fn word(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) -> Result<(), Error> {
        let mut rest = text;
        while let Some(&byte) = rest.first() {
            let (length, id) = match self.trie.longest(rest) {
                Some(found) => found,
                None => (1, vocab.ids.unk.ok_or(Error::NoByte { byte })?),
            };
            out.push(id);
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Appends the bytes of a token that is spelled as Python's `repr` has a byte string. What is no escape stands for
/// itself.
pub(crate) fn unescape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.extend_from_slice(plain.as_bytes());
        let (byte, length) = match escape.as_bytes().get(1) {
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(byte @ (b'\\' | b'\'' | b'"')) => (*byte, 2),
            Some(b'x') => match escape.get(2..4).and_then(bytes::hex) {
                Some(byte) => (byte, 4),
                None => (b'\\', 1),
            },
            _ => (b'\\', 1),
        };
        out.push(byte);
        rest = escape.get(length..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_pythons() {
        let bytes = |text| {
            let mut out = Vec::new();
            unescape(text, &mut out);
            out
        };
        assert_eq!(bytes(r"a\tb\n\r\\\'\x00\xff é"), b"a\tb\n\r\\'\x00\xff \xC3\xA9");
        // Nothing that Python writes.
        assert_eq!(bytes(r"\q\xg0\x1"), br"\q\xg0\x1");
        assert_eq!(bytes(r"\"), br"\");
    }
}

//! `tokenizer.model`: SentencePiece's vocabulary, a message of protocol buffers.
//!
//! The fields are those of `sentencepiece_model.proto`: pieces with text, score and kind, what the trainer was told, and how
//! text is normalized. Of the encoding (protobuf.dev, *Encoding*) no more is read than these need.

use crate::Error;

/// A vocabulary.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pieces {
    pub pieces: Vec<Piece>,
    /// How pieces are joined.
    pub kind: u64,
    /// Whether text gets a space in front.
    pub space_prefix: bool,
}

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub text: String,
    pub score: f32,
    pub kind: u64,
}

/// [`Pieces::kind`] of pairs that are merged, the best first.
pub(super) const BPE: u64 = 2;

/// [`Piece::kind`]s.
pub(super) const UNKNOWN: u64 = 2;
pub(super) const CONTROL: u64 = 3;
pub(super) const UNUSED: u64 = 5;
pub(super) const BYTE: u64 = 6;

/// Reads a file.
///
/// # Errors
/// [`Error::Pieces`].
pub(super) fn read(bytes: &[u8]) -> Result<Pieces, Error> {
    // What the message has where it says nothing.
    let mut found = Pieces { pieces: vec![], kind: 1, space_prefix: true };
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(bytes)) => found.pieces.push(piece(bytes)?),
            (2, Field::Bytes(bytes)) => {
                for field in Fields(bytes) {
                    if let (3, Field::Number(kind)) = field? {
                        found.kind = kind;
                    }
                }
            }
            (3, Field::Bytes(bytes)) => {
                for field in Fields(bytes) {
                    if let (3, Field::Number(prefix)) = field? {
                        found.space_prefix = prefix != 0;
                    }
                }
            }
            _ => {}
        }
    }
    if found.pieces.is_empty() {
        return Err(Error::Pieces { what: "it has no pieces" });
    }
    Ok(found)
}

fn piece(bytes: &[u8]) -> Result<Piece, Error> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: 1 };
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => {
                let text = std::str::from_utf8(text);
                piece.text = text.map_err(|_| Error::Pieces { what: "a piece is not UTF-8" })?.into();
            }
            (2, Field::Four(bytes)) => piece.score = f32::from_le_bytes(bytes),
            (3, Field::Number(kind)) => piece.kind = kind,
            _ => {}
        }
    }
    if piece.score.is_nan() {
        return Err(Error::Pieces { what: "the score of a piece is NaN" });
    }
    Ok(piece)
}

/// A field's value.
enum Field<'a> {
    Number(u64),
    Four([u8; 4]),
    Eight,
    Bytes(&'a [u8]),
}

/// The fields of a message, by number.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field =
            self.field().ok_or(Error::Pieces { what: "it is cut, or no vocabulary of SentencePiece" });
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.number()?;
        let field = match tag & 7 {
            0 => Field::Number(self.number()?),
            1 => {
                self.take(8)?;
                Field::Eight
            }
            2 => {
                let len = usize::try_from(self.number()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Four(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        Some((tag >> 3, field))
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (some, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces `a` of score -1.5 and `<0x41>`, a byte; pairs are merged; no space in front.
    const FILE: &[u8] =
        b"\x0a\x08\x0a\x01a\x15\0\0\xc0\xbf\x0a\x0a\x0a\x06<0x41>\x18\x06\x12\x02\x18\x02\x1a\x02\x18\0";

    #[test]
    fn pieces_are_read() {
        let found = read(FILE).unwrap();
        let piece = |text: &str, score, kind| Piece { text: text.into(), score, kind };
        assert_eq!(found.pieces, [piece("a", -1.5, 1), piece("<0x41>", 0.0, BYTE)]);
        assert_eq!((found.kind, found.space_prefix), (BPE, false));
    }

    #[test]
    fn what_is_cut_or_no_vocabulary_is_refused() {
        // Between two fields a cut cannot be seen.
        let whole = [10, 22, 26];
        for len in (0..FILE.len()).filter(|len| !whole.contains(len)) {
            assert!(matches!(read(&FILE[..len]), Err(Error::Pieces { .. })), "{len}");
        }
        for bytes in [
            &b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
            b"\x0a\x03\x0a\x01\xff",
            b"\x0b",
            b"{}",
        ] {
            assert!(matches!(read(bytes), Err(Error::Pieces { .. })), "{bytes:?}");
        }
    }
}

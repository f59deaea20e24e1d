//! SentencePiece's compiled map of characters: a double-array trie of what is replaced, and the replacements.
//!
//! Its bytes are a length (u32, little-endian), so many bytes of trie units (u32), and the replacements, each ended
//! by a zero byte. A unit holds the label of the edge into it (bits 0 to 7), whether a string ends there (bit 8)
//! and how far its children are (bits 10 to 30, shifted by 8 more where bit 9 is set), or in the unit behind the end
//! of a string the place of its replacement (bits 0 to 30): Yata's `darts-clone`, which SentencePiece embeds.

use unicode_segmentation::UnicodeSegmentation;

use crate::Error;

/// Longest replacement in bytes; those of NFKC have up to 33.
const LONGEST: usize = 256;
/// Longest cluster of characters in bytes that `tokenizers` looks up as one.
const LONGEST_CLUSTER: usize = 5;

#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
    /// Whether a string of the map begins with this ASCII character.
    ascii: [bool; 128],
}

impl Charsmap {
    /// # Errors
    /// [`Error::Charsmap`]. An index inside the trie that leads nowhere is no error: nothing is found there.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or(Error::Charsmap("it has no length"))?;
        let length = u32::from_le_bytes(*length) as usize;
        if !length.is_multiple_of(4) {
            return Err(Error::Charsmap("its trie is not made of 4-byte units"));
        }
        let (trie, replacements) =
            rest.split_at_checked(length).ok_or(Error::Charsmap("its trie is longer than it"))?;
        let (units, _) = trie.as_chunks::<4>();
        let replacements = std::str::from_utf8(replacements)
            .map_err(|_| Error::Charsmap("its replacements are not UTF-8"))?;
        if replacements.split('\0').any(|one| one.len() > LONGEST) {
            return Err(Error::Charsmap("a replacement is longer than 256 bytes"));
        }
        let mut map = Self {
            units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            replacements: replacements.into(),
            ascii: [false; 128],
        };
        let root = map.unit(0).map_or(0, offset);
        for byte in 1..128u8 {
            let child = map.unit(root ^ u32::from(byte));
            map.ascii[usize::from(byte)] = child.is_some_and(|unit| label(unit) == u32::from(byte));
        }
        Ok(map)
    }

    fn unit(&self, at: u32) -> Option<u32> {
        self.units.get(at as usize).copied()
    }

    /// The strings of the map that `text` begins with, shortest first: length and replacement.
    fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, &'a str)> + 'a {
        let mut at = self.unit(0).map(offset);
        let walk = text.iter().enumerate().map_while(move |(i, &byte)| {
            let node = at? ^ u32::from(byte);
            let unit = self.unit(node).filter(|&unit| byte != 0 && label(unit) == u32::from(byte))?;
            let children = node ^ offset(unit);
            at = Some(children);
            let ends = unit >> 8 & 1 == 1;
            Some((i + 1, ends.then_some(children)))
        });
        walk.filter_map(|(length, leaf)| {
            let start = (self.unit(leaf?)? & 0x7FFF_FFFF) as usize;
            let rest = self.replacements.get(start..)?;
            Some((length, rest.split('\0').next().unwrap_or_default()))
        })
    }

    /// Whether ASCII `byte` stays as it is, whatever follows it.
    pub fn keeps(&self, byte: u8) -> bool {
        self.ascii.get(usize::from(byte)) == Some(&false)
    }

    /// What the longest string of the map that `text` begins with is replaced by: its length, the replacement.
    pub fn longest<'a>(&'a self, text: &'a [u8]) -> Option<(usize, &'a str)> {
        self.prefixes(text).last()
    }

    /// `text` with its replacements as `tokenizers` makes them: a cluster of characters as a whole or, if the map has
    /// none or it is long, each of its characters; for either, the shortest string of the map that it begins with says
    /// what all of it becomes. None where nothing changes.
    pub fn by_grapheme(&self, text: &str) -> Option<String> {
        let mut out: Option<String> = None;
        let mut done = 0;
        let mut at = 0;
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(at) {
            // Between two ASCII characters, one cluster ends and another begins, but for a line break of two.
            let alone = byte.is_ascii() && byte != b'\r' && bytes.get(at + 1).is_none_or(u8::is_ascii);
            if alone && self.keeps(byte) {
                at += 1;
                continue;
            }
            let cluster = if alone {
                text.get(at..at + 1)
            } else {
                text.get(at..).and_then(|rest| rest.graphemes(true).next())
            };
            let cluster = cluster.unwrap_or_default();
            if cluster.is_empty() {
                break;
            }
            let mut replace = |start: usize, old: &str| -> bool {
                let Some((_, new)) = self.prefixes(old.as_bytes()).next() else { return false };
                let out = out.get_or_insert_with(|| String::with_capacity(text.len() + text.len() / 4));
                out.push_str(text.get(done..start).unwrap_or_default());
                out.push_str(new);
                done = start + old.len();
                true
            };
            if cluster.len() > LONGEST_CLUSTER || !replace(at, cluster) {
                for (offset, c) in cluster.char_indices() {
                    replace(at + offset, cluster.get(offset..offset + c.len_utf8()).unwrap_or_default());
                }
            }
            at += cluster.len();
        }
        if let Some(out) = &mut out {
            out.push_str(text.get(done..).unwrap_or_default());
        }
        out
    }
}

fn offset(unit: u32) -> u32 {
    (unit >> 10) << ((unit & 1 << 9) >> 6)
}

/// The label of a unit. A unit that holds a replacement's place has a bit here that no byte has.
fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xFF)
}

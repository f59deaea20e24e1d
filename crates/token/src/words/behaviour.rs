//! What becomes of the matches of a cut and of what lies between them.

use std::ops::Range;

use crate::Error;

/// The behaviours of Hugging Face's `tokenizers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Matches and gaps are pieces.
    Isolated,
    /// Gaps alone are pieces.
    Removed,
    /// Matches that follow each other are one piece.
    Contiguous,
    /// A match joins the gap before it.
    MergedWithPrevious,
    /// A match joins the gap behind it.
    MergedWithNext,
}

impl Behaviour {
    /// `cut` gives ranges that follow each other and whether each is a match; `each` takes the pieces.
    pub fn apply(
        self,
        cut: impl FnOnce(&mut dyn FnMut(Range<usize>, bool) -> Result<(), Error>) -> Result<(), Error>,
        mut each: impl FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A piece that may yet grow, and whether what it ends in is a match.
        let mut open: Option<Range<usize>> = None;
        let mut was_match = false;
        cut(&mut |range, is_match| {
            let joins = match self {
                Self::Isolated => return each(range),
                Self::Removed => return if is_match { Ok(()) } else { each(range) },
                Self::Contiguous => is_match == was_match,
                Self::MergedWithPrevious => is_match && !was_match,
                Self::MergedWithNext => was_match && !is_match,
            };
            was_match = is_match;
            match &mut open {
                Some(piece) if joins => piece.end = range.end,
                _ => {
                    if let Some(piece) = open.replace(range) {
                        return each(piece);
                    }
                }
            }
            Ok(())
        })?;
        open.map_or(Ok(()), each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of a text whose matches are its dashes.
    fn pieces(behaviour: Behaviour, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let cut = |found: &mut dyn FnMut(Range<usize>, bool) -> Result<(), Error>| {
            let mut done = 0;
            for (at, _) in text.match_indices('-') {
                if done < at {
                    found(done..at, false)?;
                }
                found(at..at + 1, true)?;
                done = at + 1;
            }
            if done < text.len() { found(done..text.len(), false) } else { Ok(()) }
        };
        let each = |range: Range<usize>| {
            out.push(text[range].to_string());
            Ok(())
        };
        behaviour.apply(cut, each).unwrap();
        out
    }

    /// The example of the `tokenizers` documentation.
    #[test]
    fn as_documented() {
        let text = "the-final--countdown";
        assert_eq!(pieces(Behaviour::Removed, text), ["the", "final", "countdown"]);
        assert_eq!(pieces(Behaviour::Isolated, text), ["the", "-", "final", "-", "-", "countdown"]);
        assert_eq!(pieces(Behaviour::MergedWithPrevious, text), ["the-", "final-", "-", "countdown"]);
        assert_eq!(pieces(Behaviour::MergedWithNext, text), ["the", "-final", "-", "-countdown"]);
        assert_eq!(pieces(Behaviour::Contiguous, text), ["the", "-", "final", "--", "countdown"]);
    }
}

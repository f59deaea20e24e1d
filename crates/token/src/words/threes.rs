//! Digits cut into threes, counted from the right: the expressions that say so look ahead without bound.

use std::ops::Range;

use super::expression::Expression;
use super::pattern::Pattern;
use crate::Error;

#[derive(Debug)]
pub(crate) struct Threes {
    way: Way,
    digits: Pattern,
    /// What Oniguruma takes for a character of a word.
    word: Pattern,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each group is a match.
    Groups,
    /// The same, where no character of a word follows the digits.
    GroupsBeforeBoundary,
    /// The places that a multiple of three digits follows, up to the last: nothing but a place to cut.
    Places,
}

impl Threes {
    /// `digits` is the expression of a run of them.
    pub fn new(way: Way, digits: &str) -> Result<Self, Error> {
        let pattern = |source| Pattern::new(&Expression::new(source)?);
        Ok(Self { way, digits: pattern(digits)?, word: pattern(r"[\p{L}\p{M}\p{Nd}\p{Pc}]")? })
    }

    pub fn each(
        &self,
        text: &str,
        each: &mut dyn FnMut(Range<usize>, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        self.digits.each(text, &mut |run, is_match| {
            let whole = text.get(run.end..).unwrap_or_default();
            let skipped = self.way == Way::GroupsBeforeBoundary && self.word.begins(whole)?;
            if !is_match || skipped {
                return Ok(());
            }
            let is_group = self.way != Way::Places;
            if is_group && done < run.start {
                each(done..run.start, false)?;
                done = run.start;
            }
            let digits = text.get(run.clone()).unwrap_or_default();
            let mut left = digits.chars().count();
            for (offset, _) in digits.char_indices() {
                let place = run.start + offset;
                if left.is_multiple_of(3) && done < place {
                    each(done..place, is_group)?;
                    done = place;
                }
                left -= 1;
            }
            if is_group {
                each(done..run.end, true)?;
                done = run.end;
            }
            Ok(())
        })?;
        if done < text.len() { each(done..text.len(), false) } else { Ok(()) }
    }
}

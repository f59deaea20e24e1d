//! Pre-tokenizers: how a text is cut into words before BPE joins bytes inside each.
//!
//! A pre-tokenizer is a list of expressions. The first cuts the text, the next cuts each piece, and so on. What
//! lies between two matches is a piece too (the `Isolated` behaviour of Hugging Face `tokenizers`).
//!
//! The expressions are those of the models' own `tokenizer.json` files, as llama.cpp records them beside its
//! names. Where llama.cpp uses a simpler stand-in for one (gpt-4o, tekken), the model's own stands here.
//!
//! All but one of their constructs are regular, so a linear-time engine runs them: a hostile text cannot make
//! it backtrack. The one is `\s+(?!\S)|\s+`, blanks but for the last before a word. It is written `\s+` here,
//! and [`Blanks`] gives the last blank back.

use std::ops::Range;

use regex::Regex;

use crate::Error;

/// When a run of blanks gives its last one back to the word behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blanks {
    /// The expression has no such rule.
    Keep,
    /// Every run.
    GiveBack,
    /// A run that ends in a line break is matched by an alternative of its own, and stays whole.
    GiveBackUnlessBreak,
}
use Blanks::{GiveBack, GiveBackUnlessBreak, Keep};

/// One cut.
enum Cut {
    /// By an expression.
    Match(&'static str, Blanks),
    /// The digits that an expression finds, into threes counted from the right.
    Thousands(&'static str),
}
use Cut::{Match, Thousands};

macro_rules! contraction {
    () => {
        r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}
macro_rules! cased {
    // Words in upper then lower case, as OpenAI's o200k has them; `$tail` may follow a word.
    ($tail:expr, $digits:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $tail,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $tail,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
        )
    };
}

const DIGIT: Cut = Match(r"\p{N}", Keep);
const THREE_DIGITS: Cut = Match(r"\p{N}{1,3}", Keep);
const GPT2: Cut = Match(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", GiveBack);
const LLAMA3: Cut = Match(
    concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"),
    GiveBackUnlessBreak,
);
const QWEN2: Cut = Match(
    concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"),
    GiveBackUnlessBreak,
);
const QWEN35: Cut = Match(
    concat!(
        contraction!(),
        r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    GiveBackUnlessBreak,
);
const CJK: Cut = Match(r"[一-龥぀-ゟ゠-ヿ]+", Keep);
const DEEPSEEK3: Cut = Match(
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    GiveBackUnlessBreak,
);
const BLOOM: Cut = Match(r" ?[^(\s|.,!?…。，、।۔،)]+", Keep);
const LINES: Cut = Match(r"[^\n]+|\n+", Keep);
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ",
    r"Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ",
    r"Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
);

/// A pre-tokenizer and what llama.cpp ties to its name.
pub(crate) struct Pre {
    names: &'static [&'static str],
    cuts: &'static [Cut],
    /// A word that is a token is that token, whatever the merges say.
    pub whole_words: bool,
    /// Whether texts begin with `bos` where the file does not say.
    pub add_bos: bool,
}

const fn pre(names: &'static [&'static str], cuts: &'static [Cut]) -> Pre {
    Pre { names, cuts, whole_words: false, add_bos: false }
}

const fn whole(names: &'static [&'static str], cuts: &'static [Cut], add_bos: bool) -> Pre {
    Pre { names, cuts, whole_words: true, add_bos }
}

static TABLE: &[Pre] = &[
    pre(
        &["default"],
        &[Match(r"[\p{P}$+<=>^~|]+", Keep), GPT2, Match(r"\p{N}+", Keep), Match("[0-9][0-9][0-9]", Keep)],
    ),
    pre(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        &[GPT2],
    ),
    whole(
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[LLAMA3],
        true,
    ),
    whole(&["glm4", "glm5"], &[LLAMA3], false),
    pre(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    pre(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[QWEN2],
    ),
    pre(&["qwen35"], &[QWEN35]),
    pre(
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT2],
    ),
    pre(&["falcon"], &[Match(r"[\p{P}$+<=>^~|`]+", Keep), GPT2, Match("[0-9][0-9][0-9]", Keep)]),
    pre(
        &["deepseek-llm"],
        &[
            Match(r"[\r\n]", Keep),
            Match(DEEPSEEK_LETTERS, Keep),
            Match("\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+", Keep),
            Match(r"\s+$", Keep),
            Match("[一-龥\u{800}-一가-\u{D7FF}]+", Keep),
            Match(r"\p{N}+", Keep),
        ],
    ),
    pre(
        &["deepseek-coder"],
        &[
            Match(r"[\r\n]", Keep),
            Match(r"\s?\p{L}+", Keep),
            Match(r"\s?\p{P}+", Keep),
            Match("[一-龥\u{800}-一가-\u{D7FF}]+", Keep),
            DIGIT,
        ],
    ),
    pre(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[THREE_DIGITS, CJK, DEEPSEEK3]),
    pre(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[Match(cased!(concat!("(?:", contraction!(), ")?"), r"\p{N}{1,3}"), GiveBackUnlessBreak)],
    ),
    pre(
        &["tiny_aya", "cohere2moe"],
        &[
            Thousands(r"\p{Nd}+\b"),
            Match(cased!(concat!("(?:", contraction!(), ")?"), r"\p{N}{1,3}"), GiveBackUnlessBreak),
        ],
    ),
    whole(&["tekken"], &[Match(cased!("", r"\p{N}"), GiveBackUnlessBreak)], true),
    pre(&["superbpe"], &[Match(r"\p{N}+", Keep), Thousands(r"\p{Nd}+")]),
    pre(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    pre(&["viking"], &[BLOOM, DIGIT]),
    pre(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[Match(
            r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+",
            GiveBackUnlessBreak,
        )],
    ),
    pre(
        &["seed-coder"],
        &[Match(
            concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"),
            GiveBackUnlessBreak,
        )],
    ),
    pre(
        &["ufakzeka"],
        &[Match(
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            GiveBackUnlessBreak,
        )],
    ),
    pre(
        &["exaone-moe"],
        &[Match(
            concat!(
                contraction!(),
                r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+"
            ),
            GiveBackUnlessBreak,
        )],
    ),
    pre(&["laguna"], &[LINES, QWEN2]),
    whole(
        &["minicpm5"],
        &[
            THREE_DIGITS,
            Match(
                concat!(
                    contraction!(),
                    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
                ),
                GiveBackUnlessBreak,
            ),
        ],
        false,
    ),
    pre(&["gemma4"], &[LINES]),
];

/// Names that [`crate::VocabSpec::pre`] may have.
pub fn pre_tokenizers() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|pre| pre.names).copied()
}

impl Pre {
    /// The pre-tokenizer of that name.
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        let found = TABLE.iter().find(|pre| pre.names.contains(&name));
        found.ok_or_else(|| Error::UnknownPre { pre: name.into() })
    }
}

/// A pre-tokenizer ready to run.
#[derive(Debug)]
pub(crate) struct Splitter {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    regex: Regex,
    blanks: Blanks,
    /// Each match is cut into threes from its right end.
    threes: bool,
}

impl Splitter {
    /// Compiles the expressions of `pre`, which takes about a millisecond each.
    pub fn new(pre: &Pre) -> Result<Self, Error> {
        let step = |cut: &Cut| {
            let (source, blanks, threes) = match *cut {
                Match(source, blanks) => (source, blanks, false),
                Thousands(source) => (source, Keep, true),
            };
            let regex = Regex::new(source).map_err(|e| Error::Expression(e.to_string()))?;
            Ok(Step { regex, blanks, threes })
        };
        Ok(Self { steps: pre.cuts.iter().map(step).collect::<Result<_, Error>>()? })
    }

    /// Cuts `text` into words, which follow each other without gaps.
    pub fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces = vec![0..text.len()];
        let mut cut = Vec::new();
        for step in &self.steps {
            cut.clear();
            for piece in &pieces {
                if let Some(inside) = text.get(piece.clone()) {
                    step.cut(inside, piece.start, &mut cut);
                }
            }
            std::mem::swap(&mut pieces, &mut cut);
        }
        pieces
    }
}

impl Step {
    /// Cuts `text`, which begins at `base` of the whole.
    fn cut(&self, text: &str, base: usize, out: &mut Vec<Range<usize>>) {
        let mut push = |start: usize, end: usize| {
            if start < end {
                out.push(base + start..base + end);
            }
        };
        let mut at = 0;
        while let Some(found) = self.regex.find_at(text, at) {
            push(at, found.start());
            if self.threes {
                // Digits of one script have one length in UTF-8, so a character count is enough.
                let mut start = found.start();
                let mut left = found.as_str().chars().count();
                for (i, _) in found.as_str().char_indices().skip(1) {
                    left -= 1;
                    if left % 3 == 0 {
                        push(start, found.start() + i);
                        start = found.start() + i;
                    }
                }
                push(start, found.end());
                at = found.end();
                continue;
            }
            let end = found.end() - self.given_back(found.as_str(), found.end() == text.len());
            push(found.start(), end);
            // No expression matches the empty string; were there one, this ends the loop all the same.
            if end == at {
                break;
            }
            at = end;
        }
        push(at, text.len());
    }

    /// Bytes of the last blank of a match, where it goes to the word behind.
    fn given_back(&self, found: &str, at_end: bool) -> usize {
        let mut backwards = found.chars().rev();
        match (self.blanks, backwards.next(), backwards.next()) {
            (Keep, ..) | (_, None, _) | (_, _, None) => 0,
            (GiveBackUnlessBreak, Some('\r' | '\n'), _) => 0,
            (_, Some(last), _) if last.is_whitespace() && !at_end => last.len_utf8(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(pre: &str, text: &str) -> Vec<String> {
        let splitter = Splitter::new(Pre::find(pre).unwrap()).unwrap();
        splitter.split(text).into_iter().map(|range| text[range].to_string()).collect()
    }

    #[test]
    fn blanks_before_a_word() {
        assert_eq!(words("gpt-2", "a   b \n c  "), ["a", "  ", " b", " \n", " c", "  "]);
        assert_eq!(words("llama-bpe", "a   b \n c  "), ["a", "  ", " b", " \n", " c", "  "]);
        assert_eq!(
            words("llama-bpe", "x \n\n  y\u{3000}\u{3000}z"),
            ["x", " \n\n", " ", " y", "\u{3000}", "\u{3000}z"]
        );
    }

    #[test]
    fn digits() {
        assert_eq!(words("smollm", "x 123"), ["x", " ", "1", "2", "3"]);
        assert_eq!(words("llama3", "12345"), ["123", "45"]);
        assert_eq!(words("superbpe", "12345"), ["12", "345"]);
        assert_eq!(words("tiny_aya", "12345 1234567"), ["12", "345", " ", "1", "234", "567"]);
    }

    #[test]
    fn case_parts_words() {
        assert_eq!(words("gpt-4o", "helloWorld FOOBar it's"), ["hello", "World", " FOOBar", " it's"]);
        assert_eq!(words("tekken", "helloWorld it's"), ["hello", "World", " it", "'s"]);
    }

    #[test]
    fn unknown_name_is_refused() {
        let error = Pre::find("qwen9").err().unwrap().to_string();
        assert!(error.contains("qwen9") && error.contains("--pre"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = pre_tokenizers().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whatever the text, the words of every pre-tokenizer are the text.
        #[test]
        fn nothing_is_lost(text in r"[ \n\r\ta-cA-C0-9'.!é中\u{3000}\u{301}٣]{0,40}|\PC{0,20}") {
            for pre in TABLE {
                let mut at = 0;
                for word in Splitter::new(pre).unwrap().split(&text) {
                    prop_assert!(word.start == at && word.end > at && text.is_char_boundary(word.end));
                    at = word.end;
                }
                prop_assert_eq!(at, text.len());
            }
        }
    }
}

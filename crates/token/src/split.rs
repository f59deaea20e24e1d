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
/// Letters of the scripts that DeepSeek's first tokenizer lists, some with one blank in front.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-",
    r"\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-",
    r"\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-",
    r"\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}",
    r"\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-",
    r"\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}",
    r"\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-",
    r"\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}",
    r"\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}",
    r"\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}",
    r"\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-",
    r"\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}",
    r"\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}",
    r"\u{1E900}-\u{1E943}",
    r"]+"
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
        let mut pieces: Vec<Range<usize>> = std::iter::once(0..text.len()).collect();
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
                    if left.is_multiple_of(3) {
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

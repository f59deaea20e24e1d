//! The pre-tokenizers that GGUF files name: a table of expressions.
//!
//! The first expression cuts the text, the next cuts each piece, and so on; what lies between two matches is a
//! piece too. The expressions are those of the models' own `tokenizer.json` files, as llama.cpp records them beside
//! its names. Where llama.cpp uses a simpler stand-in for one (gpt-4o, tekken, afmoe), the model's own stands here.

use super::{Cut, Step};
use crate::Error;
use crate::vocab::Spelling;

/// A pre-tokenizer and what llama.cpp ties to its name.
#[derive(Debug)]
pub(crate) struct Pre {
    names: &'static [&'static str],
    cuts: &'static [&'static str],
    pub spelling: Spelling,
    /// A word that is a token is that token, whatever the merges say.
    pub whole_words: bool,
    /// The same for words of line breaks alone.
    pub whole_lines: bool,
    pub bos: Bos,
}

/// Whether texts begin with `bos`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bos {
    IfAsked,
    UnlessRefused,
    /// Gemma 4's files say no, and the model needs it (llama.cpp, pull request 21500).
    Always,
}

macro_rules! contraction {
    () => {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}
macro_rules! cased {
    // Words in upper then lower case, as OpenAI's o200k has them; a word has nothing of `$but`, and `$tail` may follow.
    ($but:expr, $tail:expr, $rest:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
            $but,
            r"]*[\p{Ll}\p{Lm}\p{Lo}\p{M}",
            $but,
            "]+",
            $tail,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
            $but,
            r"]+[\p{Ll}\p{Lm}\p{Lo}\p{M}",
            $but,
            "]*",
            $tail,
            "|",
            $rest
        )
    };
}
/// What follows letters and digits in most expressions: other characters, line breaks, blanks.
macro_rules! others {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}

const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
const LINES: &str = r"[^\n]+|\n+";
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|", others!());
const QWEN2: &str = concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", others!());
const QWEN35: &str = concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const JAIS2: &str = concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)",
    r"|\s{1,2}(?!\S)|\s{1}"
);
const O200K: &str = cased!(
    "",
    concat!(contraction!(), "?"),
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = cased!("", "", r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const YOUTU: &str =
    cased!("", concat!(contraction!(), "?"), r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const KIMI: &str = concat!(
    r"\p{Han}+|",
    cased!(r"&&[^\p{Han}]", concat!(contraction!(), "?"), concat!(r"\p{N}{1,3}|", others!()))
);
const KANA: &str = r"[一-龥぀-ゟ゠-ヿ]+";
const CJK: &str = "[一-龥\u{800}-一가-\u{D7FF}]+";
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
);
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// Scripts without spaces between words.
const UNSPACED: &str = concat!(
    r"[一-\u{9FFF}㐀-\u{4DBF}\u{F900}-\u{FAFF}぀-ゟ゠-ヿ･-ﾟ⼀-\u{2FDF}เ-\u{E7F}\u{E80}-\u{EFF}ក-\u{17FF}",
    r"က-\u{109F}\u{AA60}-\u{AA7F}\u{A9E0}-\u{A9FF}가-\u{D7AF}\u{1100}-\u{11FF}]+"
);
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

const fn pre(names: &'static [&'static str], cuts: &'static [&'static str]) -> Pre {
    Pre { names, cuts, spelling: Spelling::Bytes, whole_words: false, whole_lines: false, bos: Bos::IfAsked }
}

const fn whole(names: &'static [&'static str], cuts: &'static [&'static str], bos: Bos) -> Pre {
    Pre { whole_words: true, bos, ..pre(names, cuts) }
}

const fn spaces(names: &'static [&'static str]) -> Pre {
    Pre { spelling: Spelling::Spaces, ..pre(names, &[LINES]) }
}

static TABLE: &[Pre] = &[
    pre(&["default"], &[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
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
        Bos::UnlessRefused,
    ),
    whole(&["glm4", "glm5"], &[LLAMA3], Bos::IfAsked),
    pre(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    pre(&["jais-2"], &[JAIS2]),
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
    pre(&["falcon"], &[r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"]),
    pre(
        &["deepseek-llm"],
        &[r"[\r\n]", DEEPSEEK_LETTERS, "\\s?[!-/:-\\~！-／：-～‘-‟\u{3000}-。]+", r"\s+$", CJK, r"\p{N}+"],
    ),
    pre(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT]),
    pre(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[THREE_DIGITS, KANA, DEEPSEEK3]),
    pre(&["spark2_5"], &[THREE_DIGITS, KANA, SPARK, DIGIT]),
    pre(&["afmoe"], &[Cut::NUMBERS_IN_THREES, UNSPACED, DEEPSEEK3]),
    pre(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[O200K]),
    whole(&["granite-embed-multi-97m"], &[O200K], Bos::IfAsked),
    pre(&["tiny_aya", "cohere2moe"], &[r"\d{1,3}(?=(?:\d{3})*\b)", O200K]),
    pre(&["kimi-k2"], &[KIMI]),
    whole(
        &["youtu"],
        &[r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", YOUTU],
        Bos::IfAsked,
    ),
    whole(&["tekken"], &[TEKKEN], Bos::UnlessRefused),
    Pre {
        bos: Bos::UnlessRefused,
        ..pre(
            &["chameleon"],
            &[
                "<sentinel:[0-9]+>",
                "IMGIMG[A-I]{1,4}Z",
                r"[\t\n]|    |  ",
                DIGIT,
                r"[\p{P}!-/:-@\[-`{-\~]",
                GPT2,
            ],
        )
    },
    pre(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    pre(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    pre(&["viking"], &[BLOOM, DIGIT]),
    pre(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    pre(
        &["seed-coder"],
        &[concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
    ),
    pre(&["ufakzeka"], &[concat!(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", others!())]),
    pre(
        &["exaone-moe"],
        &[concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        )],
    ),
    pre(&["laguna"], &[LINES, QWEN2]),
    whole(
        &["minicpm5"],
        &[THREE_DIGITS, concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|", others!())],
        Bos::IfAsked,
    ),
    Pre { whole_lines: true, bos: Bos::Always, ..spaces(&["gemma4", "granite-embed-multi-311m"]) },
    spaces(&["sarvam-moe"]),
    Pre { spelling: Spelling::Plain, ..pre(&["whitespace"], &[]) },
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

    /// Its steps, ready to run.
    pub fn steps(&self) -> Result<Vec<Step>, Error> {
        if self.spelling == Spelling::Plain {
            return Ok(vec![Step::whitespace_split()]);
        }
        self.cuts.iter().map(|source| Ok(Step::isolated(Cut::expression(source)?))).collect()
    }
}

#[cfg(test)]
impl Pre {
    /// All of them.
    pub fn all() -> &'static [Self] {
        TABLE
    }
}

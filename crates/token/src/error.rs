use cera_gguf::shown;

/// What can be wrong with a vocabulary, a template or a request. Every message names the thing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A metadata key is missing or has another type than it must.
    #[error(transparent)]
    Metadata(#[from] cera_gguf::Error),
    /// The file says that it has no vocabulary (`no_vocab`): only token ids can be given to it.
    #[error("tokenizer.ggml.model is {}: the file has no vocabulary", shown(model))]
    NoVocabulary {
        /// What the file says.
        model: String,
    },
    /// A kind of tokenizer that this crate does not have.
    #[error("tokenizer.ggml.model {} is not supported ({})", shown(model), crate::gguf::MODELS.join(", "))]
    UnknownModel {
        /// What the file says.
        model: String,
    },
    /// The file names a pre-tokenizer that this crate does not have.
    #[error(
        "pre-tokenizer {} is unknown: another one changes every token, choose one with --pre NAME",
        shown(pre)
    )]
    UnknownPre {
        /// What the file or the caller says.
        pre: String,
    },
    /// A BPE vocabulary without the name of its pre-tokenizer.
    #[error(
        "tokenizer.ggml.pre is missing: choose a pre-tokenizer with --pre NAME (`default` for old files)"
    )]
    MissingPre,
    /// An array has another length than the token list.
    #[error("{key} has {found} items for {tokens} tokens")]
    Length {
        /// Metadata key.
        key: &'static str,
        /// Items it has.
        found: usize,
        /// Tokens of the vocabulary.
        tokens: usize,
    },
    /// There are no tokens, or more bytes of them than 32 bits can count.
    #[error("tokenizer.ggml.tokens has {tokens} tokens, which is not possible")]
    Size {
        /// Tokens in the list.
        tokens: usize,
    },
    /// A special token's id lies outside the vocabulary.
    #[error("{key} is {id}, but there are {tokens} tokens")]
    SpecialId {
        /// Metadata key.
        key: &'static str,
        /// The id.
        id: u32,
        /// Tokens of the vocabulary.
        tokens: usize,
    },
    /// The file asks for a token at the start or the end of every text and does not say which.
    #[error("{flag} is true, but {key} is missing")]
    MissingSpecial {
        /// The key that asks.
        flag: &'static str,
        /// The key that should answer.
        key: &'static str,
    },
    /// A token type that the format does not have.
    #[error("tokenizer.ggml.token_type[{id}] is {found}, which is not 0 to 6")]
    TokenType {
        /// Token id.
        id: usize,
        /// The type.
        found: i32,
    },
    /// A score that cannot be compared.
    #[error("tokenizer.ggml.scores[{id}] is not a number")]
    Score {
        /// Token id.
        id: usize,
    },
    /// Two tokens have the same text.
    #[error("tokens {first} and {second} are both {}", shown(text))]
    Duplicate {
        /// The text.
        text: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// A BPE vocabulary of more than one token needs merges.
    #[error("tokenizer.ggml.merges is missing or empty")]
    NoMerges,
    /// A merge that cannot be used.
    #[error("tokenizer.ggml.merges[{index}] is {}: {what}", shown(merge))]
    Merge {
        /// Its place in the list.
        index: usize,
        /// Its text.
        merge: String,
        /// What is wrong.
        what: MergeFault,
    },
    /// The text has a byte that the vocabulary cannot express.
    #[error("the vocabulary has no token for byte 0x{byte:02X} and no unknown token")]
    NoByte {
        /// The byte.
        byte: u8,
    },
    /// A token id that the vocabulary does not have.
    #[error("token {id} does not exist: there are {tokens} tokens")]
    TokenId {
        /// The id.
        id: u32,
        /// Tokens of the vocabulary.
        tokens: usize,
    },
    /// The file has no chat template.
    #[error("the file has no chat template (tokenizer.chat_template): it completes text, or give a template")]
    NoTemplate,
    /// The file does not say how two texts are put to the model together.
    #[error(
        "the file does not say how a query and a document become one text (tokenizer.chat_template.rerank)"
    )]
    NoPair,
    /// The template is not Jinja.
    #[error("chat template, line {line}: {what}")]
    TemplateSyntax {
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        what: String,
    },
    /// The template failed while it ran.
    #[error("chat template, line {line}: {what}")]
    TemplateRun {
        /// Line, from 1; 0 where it is not known.
        line: usize,
        /// What went wrong.
        what: String,
    },
    /// The template itself refused the conversation (`raise_exception`).
    #[error("the chat template refuses: {0}")]
    TemplateRefused(String),
    /// The template did more work than any real one: a loop without end, or an endless text.
    #[error("chat template: stopped after {fuel} steps")]
    TemplateFuel {
        /// The bound that was reached.
        fuel: u64,
    },
    /// An expression of a pre-tokenizer that this crate cannot run as it was meant.
    #[error("expression {} is not supported: {what}", shown(expression))]
    Expression {
        /// The expression.
        expression: String,
        /// What stands in the way.
        what: String,
    },
    /// An expression that is built so that a text makes it read the same characters again and again.
    #[error("expression {} takes too long on this text", shown(expression))]
    Slow {
        /// The expression.
        expression: String,
    },
    /// Normalizers that make a text many times longer.
    #[error("the normalizers make a text of {bytes} bytes more than 64 times longer")]
    Grows {
        /// Bytes of the text.
        bytes: usize,
    },
    /// A map of characters (`precompiled_charsmap`) that cannot be used.
    #[error("precompiled_charsmap: {0}")]
    Charsmap(&'static str),
    /// A token too long for a model that walks texts byte by byte.
    #[error("token {id} has {bytes} bytes, more than {most}")]
    TokenLength {
        /// Token id.
        id: u32,
        /// Bytes it has.
        bytes: usize,
        /// The most that are possible.
        most: usize,
    },
    /// A word with more bytes than 32 bits can count.
    #[error("a word of the text has {bytes} bytes, which is too many")]
    WordLength {
        /// Bytes it has.
        bytes: usize,
    },
    /// A model that needs a token for unknown words names none.
    #[error("the vocabulary has no token for unknown words")]
    NoUnknown,
    /// A file of a Hugging Face folder that is not the JSON that it should be.
    #[error("{file}: {what}")]
    Json {
        /// Name of the file.
        file: &'static str,
        /// What is wrong, and where.
        what: String,
    },
    /// A part of a `tokenizer.json` that this crate does not have.
    #[error("tokenizer.json: {part}: {what} is not supported")]
    Unsupported {
        /// The part of the file.
        part: &'static str,
        /// The component or its setting.
        what: String,
    },
    /// A token of a `tokenizer.json` whose id cannot be.
    #[error("tokenizer.json: token {} has id {id}: {what}", shown(text))]
    TokenIdOf {
        /// Its text.
        text: String,
        /// The id.
        id: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A special token that a file names is not in the vocabulary.
    #[error("{file}: {} is no token of the vocabulary", shown(text))]
    NoSuchToken {
        /// Name of the file.
        file: &'static str,
        /// The token's text.
        text: String,
    },
    /// The automaton over the special tokens could not be built.
    #[error("the special tokens are too many or too long: {0}")]
    Specials(String),
}

/// What is wrong with one merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MergeFault {
    /// A merge is two tokens with a space between them.
    #[error("no space between two parts")]
    NoSpace,
    /// The part before the space is no token.
    #[error("its left part is no token")]
    Left,
    /// The part after the space is no token.
    #[error("its right part is no token")]
    Right,
    /// The parts joined are no token.
    #[error("its parts joined are no token")]
    Joined,
}

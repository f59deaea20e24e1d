//! Tokens that are structure by their text: a file's types are not always right about them.

use crate::vocab::Kind;

/// Texts that end generation wherever a vocabulary has them, whatever its types say (llama.cpp's list).
/// The first `TURN_ENDS` also name the end of a turn where the file does not, in this order.
const EOG_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    "<|eom_id|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    // Padding, repository and file separators of fill-in-the-middle.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];
const TURN_ENDS: usize = 11;

/// Texts that are structure wherever a vocabulary has them, but do not end generation: fill-in-the-middle.
const CONTROL_TEXTS: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];

/// What the texts of a vocabulary say.
pub(crate) struct KnownTexts {
    /// The end of a turn.
    pub eot: Option<u32>,
    /// What ends generation, ascending.
    pub eog: Vec<u32>,
}

impl KnownTexts {
    /// Finds the tokens that are structure by their text, and makes them control tokens. `given` end generation too, the
    /// first of them a text. `is_merged` says whether ordinary text can become a token of that text.
    pub fn find<S: AsRef<str>>(
        tokens: &[S],
        kinds: &mut [Kind],
        given: &[Option<u32>],
        is_merged: impl Fn(&str) -> bool,
    ) -> Self {
        let mut by_text = vec![None; EOG_TEXTS.len()];
        let mut known = Vec::new();
        let mut has_tags = false;
        for (id, text) in (0u32..).zip(tokens) {
            let text = text.as_ref();
            if !matches!(text.as_bytes().first(), Some(b'<' | b'[' | b'_' | 0xE2)) {
                continue;
            }
            // Tokens by which llama.cpp knows these families.
            has_tags |= matches!(text, "<|tool_response>" | "<|plamo:eos|>");
            if EOG_TEXTS.contains(&text) || CONTROL_TEXTS.contains(&text) {
                known.push((id, text));
            }
        }
        // Where ordinary text merges into such a token, it is ordinary. `</s>` is an HTML tag to Qwen, Gemma and PLaMo:
        // some call it text, some a token like other tags beside another end of text.
        let ends_otherwise = |id| matches!(given.first(), Some(Some(end)) if *end != id);
        known.retain(|&(id, text)| match kinds.get(id as usize) {
            Some(Kind::Normal) => !is_merged(text) && (text != "</s>" || !has_tags),
            Some(Kind::UserDefined) => text != "</s>" || !ends_otherwise(id),
            _ => true,
        });
        for (id, text) in known {
            let place = EOG_TEXTS.iter().position(|eog| *eog == text);
            if let Some(slot) = place.and_then(|place| by_text.get_mut(place)) {
                *slot = Some(id);
            }
            if let Some(kind) = kinds.get_mut(id as usize) {
                *kind = Kind::Control;
            }
        }
        let has = |text: &str| {
            let place = EOG_TEXTS.iter().position(|eog| *eog == text)?;
            by_text.get(place).copied().flatten()
        };
        let mut eog: Vec<u32> =
            by_text.iter().copied().flatten().chain(given.iter().copied().flatten()).collect();
        // OpenAI's harmony and Solar end a message, not the answer, with `<|end|>`.
        let calls = has("<|call|>").or(has("<|calls|>")).is_some();
        if calls && (has("<|return|>").is_some() || has("<|flush|>").is_some()) {
            eog.retain(|&id| Some(id) != has("<|end|>"));
        }
        eog.sort_unstable();
        eog.dedup();
        Self { eot: by_text.iter().take(TURN_ENDS).copied().flatten().next(), eog }
    }
}

//! What vocabularies are refused, and how text goes through those that are not.

mod common;

use cera_token::{Detokenizer, Error, Kind, MergeFault, Shown, Special, Tokenizer, VocabSpec};
use common::{bpe, spm, tokenizer};
use proptest::prelude::*;

fn refused(spec: VocabSpec<'_>) -> Error {
    Tokenizer::new(spec).expect_err("must be refused")
}

#[test]
fn lengths_that_differ_are_refused() {
    let mut spec = bpe();
    spec.types.to_mut().pop();
    assert!(matches!(
        refused(spec),
        Error::Length { key: "tokenizer.ggml.token_type", found: 262, tokens: 263 }
    ));
    let mut spec = spm();
    spec.scores.to_mut().push(0.0);
    assert!(matches!(refused(spec), Error::Length { key: "tokenizer.ggml.scores", .. }));
    assert!(matches!(refused(VocabSpec { tokens: vec![].into(), ..bpe() }), Error::Size { tokens: 0 }));
}

#[test]
fn special_ids_past_the_end_are_refused() {
    let key = |spec| match refused(spec) {
        Error::SpecialId { key, id: 263 | u32::MAX, tokens: 263 } => key,
        other => panic!("{other}"),
    };
    assert_eq!(key(VocabSpec { bos: Some(263), ..bpe() }), "tokenizer.ggml.bos_token_id");
    assert_eq!(key(VocabSpec { eos: Some(u32::MAX), ..bpe() }), "tokenizer.ggml.eos_token_id");
    assert_eq!(key(VocabSpec { pad: Some(263), ..bpe() }), "tokenizer.ggml.padding_token_id");
    assert_eq!(key(VocabSpec { eot: Some(263), ..bpe() }), "tokenizer.ggml.eot_token_id");
    assert_eq!(key(VocabSpec { eom: Some(263), ..bpe() }), "tokenizer.ggml.eom_token_id");
    assert_eq!(key(VocabSpec { unk: Some(263), ..bpe() }), "tokenizer.ggml.unknown_token_id");
    assert_eq!(key(VocabSpec { sep: Some(263), ..bpe() }), "tokenizer.ggml.seperator_token_id");
    assert_eq!(key(VocabSpec { mask: Some(263), ..bpe() }), "tokenizer.ggml.mask_token_id");
    assert_eq!(key(VocabSpec { fim_pad: Some(263), ..bpe() }), "tokenizer.ggml.fim_pad_token_id");
    assert_eq!(key(VocabSpec { fim_rep: Some(263), ..bpe() }), "tokenizer.ggml.fim_rep_token_id");
    assert_eq!(key(VocabSpec { fim_sep: Some(263), ..bpe() }), "tokenizer.ggml.fim_sep_token_id");
}

#[test]
fn bad_types_and_scores_are_refused() {
    let mut spec = bpe();
    spec.types.to_mut()[7] = 9;
    assert!(matches!(refused(spec), Error::TokenType { id: 7, found: 9 }));
    let mut spec = spm();
    spec.scores.to_mut()[260] = f32::NAN;
    assert!(matches!(refused(spec), Error::Score { id: 260 }));
    let mut spec = bpe();
    spec.tokens.to_mut()[257] = "he".into();
    assert!(matches!(refused(spec), Error::Duplicate { first: 256, second: 257, .. }));
}

#[test]
fn the_first_bad_merge_is_named() {
    let what = |merge: &str| {
        let merges = vec!["h e".to_string(), merge.into(), "also bad".into()];
        match refused(VocabSpec { merges: merges.into(), ..bpe() }) {
            Error::Merge { index: 1, merge: named, what } if named == merge => what,
            other => panic!("{other}"),
        }
    };
    assert_eq!(what("hell"), MergeFault::NoSpace);
    assert_eq!(what(""), MergeFault::NoSpace);
    assert_eq!(what(" h"), MergeFault::NoSpace);
    assert_eq!(what("hex a"), MergeFault::Left);
    assert_eq!(what("a hex"), MergeFault::Right);
    assert_eq!(what("a "), MergeFault::Right);
    assert_eq!(what("a b"), MergeFault::Joined);
    // A control token is no part of words.
    assert_eq!(what("<|im_end|> a"), MergeFault::Left);
    assert!(matches!(refused(VocabSpec { merges: vec![].into(), ..bpe() }), Error::NoMerges));
}

#[test]
fn names_are_refused_unless_known() {
    assert!(
        matches!(refused(VocabSpec { model: "wordy".into(), ..bpe() }), Error::UnknownModel { model } if model == "wordy")
    );
    assert!(
        matches!(refused(VocabSpec { pre: Some("new".into()), ..bpe() }), Error::UnknownPre { pre } if pre == "new")
    );
    assert!(matches!(refused(VocabSpec { pre: None, ..bpe() }), Error::MissingPre));
    let asked = VocabSpec { bos: None, add_bos: Some(true), ..bpe() };
    assert!(matches!(refused(asked), Error::MissingSpecial { flag: "tokenizer.ggml.add_bos_token", .. }));
}

#[test]
fn metadata_is_read_and_a_pre_tokenizer_can_be_chosen() {
    let mut meta = cera_gguf::Metadata::new();
    meta.insert("tokenizer.ggml.model", cera_gguf::Value::String("gpt2".into()));
    meta.insert("tokenizer.ggml.pre", cera_gguf::Value::String("tomorrow".into()));
    let spec = bpe();
    let strings = |items: &[String]| cera_gguf::Value::Array(cera_gguf::Array::String(items.to_vec()));
    meta.insert("tokenizer.ggml.tokens", strings(&spec.tokens));
    meta.insert("tokenizer.ggml.merges", strings(&spec.merges));
    meta.insert(
        "tokenizer.ggml.token_type",
        cera_gguf::Value::Array(cera_gguf::Array::I32(spec.types.to_vec())),
    );
    meta.insert("tokenizer.ggml.eos_token_id", cera_gguf::Value::U32(261));
    assert!(matches!(Tokenizer::from_gguf(&meta, None), Err(Error::UnknownPre { pre }) if pre == "tomorrow"));
    let tokenizer = Tokenizer::from_gguf(&meta, Some("gpt-2")).unwrap();
    assert_eq!(tokenizer.encode("hello", Special::AsText).unwrap(), [258, byte(b'o')]);
    assert!(matches!(tokenizer.chat_template(), Err(Error::NoTemplate)));
    meta.insert("tokenizer.ggml.model", cera_gguf::Value::String("no_vocab".into()));
    assert!(matches!(Tokenizer::from_gguf(&meta, None), Err(Error::NoVocabulary { .. })));
}

/// In the vocabulary made here a byte's id is the byte.
fn byte(byte: u8) -> u32 {
    byte.into()
}

#[test]
fn special_tokens_are_text_unless_parsed() {
    let tokenizer = tokenizer(bpe());
    let spelled: Vec<u32> = "<|im_end|>".bytes().map(byte).collect();
    assert_eq!(tokenizer.encode("<|im_end|>", Special::AsText).unwrap(), spelled);
    assert_eq!(tokenizer.encode("<|im_end|>", Special::Parse).unwrap(), [261]);
    assert_eq!(tokenizer.encode("a<think>b", Special::AsText).unwrap(), [97, 262, 98]);
    assert_eq!(tokenizer.special_id("<|im_start|>"), Some(260));
    assert_eq!(tokenizer.kind(260), Some(Kind::Control));
}

#[test]
fn all_ends_of_generation_are_known() {
    let tokenizer = tokenizer(VocabSpec { eos: Some(259), ..bpe() });
    assert_eq!(tokenizer.eog(), [259, 261]);
    assert!(tokenizer.is_eog(261) && !tokenizer.is_eog(260) && !tokenizer.is_eog(u32::MAX));
    assert_eq!(tokenizer.special_ids().eot, Some(261));
    // By text, whatever the type says: and then it is a control token.
    let mut spec = bpe();
    spec.types.to_mut()[261] = 4;
    let tokenizer = common::tokenizer(VocabSpec { eos: None, ..spec });
    assert!(tokenizer.is_eog(261));
    assert_eq!(tokenizer.kind(261), Some(Kind::Control));
}

/// What only one of the roles says ends an answer as what all say does.
#[test]
fn each_role_that_ends_an_answer_ends_it() {
    let plain = || {
        let mut spec = bpe();
        for (id, text) in [(259, "<one>"), (260, "<two>"), (261, "<three>")] {
            spec.tokens.to_mut()[id] = text.into();
        }
        VocabSpec { bos: None, eos: None, ..spec }
    };
    assert_eq!(tokenizer(plain()).eog(), [0u32; 0]);
    for spec in [
        VocabSpec { eos: Some(260), ..plain() },
        VocabSpec { eot: Some(260), ..plain() },
        VocabSpec { eom: Some(260), ..plain() },
    ] {
        assert_eq!(tokenizer(spec).eog(), [260]);
    }
    let all = VocabSpec { eos: Some(259), eot: Some(260), eom: Some(261), ..plain() };
    assert_eq!(tokenizer(all).eog(), [259, 260, 261]);
}

#[test]
fn a_text_that_words_merge_into_ends_nothing() {
    let mut spec = bpe();
    spec.tokens.to_mut().extend(["</s".into(), "</".into(), "</s>".into()]);
    spec.types.to_mut().extend([1, 1, 1]);
    let merges = |last: &str| vec!["< /".to_string(), "</ s".into(), last.into()];
    let merged = tokenizer(VocabSpec { merges: merges("</s >").into(), ..spec.clone() });
    assert!(!merged.is_eog(265) && merged.kind(265) == Some(Kind::Normal));
    let added = tokenizer(VocabSpec { merges: merges("h e").into(), ..spec });
    assert!(added.is_eog(265) && added.kind(265) == Some(Kind::Control));
}

#[test]
fn one_bos_and_one_eos() {
    let tokenizer = tokenizer(VocabSpec { add_bos: Some(true), add_eos: Some(true), ..bpe() });
    assert_eq!(tokenizer.encode_whole("a", Special::Parse).unwrap(), [259, 97, 261]);
    assert_eq!(tokenizer.encode_whole("<|endoftext|>a<|im_end|>", Special::Parse).unwrap(), [259, 97, 261]);
    assert_eq!(tokenizer.encode("a", Special::Parse).unwrap(), [97]);
}

#[test]
fn sentencepiece_joins_by_score_and_falls_back_to_bytes() {
    let tokenizer = tokenizer(spm());
    let ids = |text: &str| tokenizer.encode(text, Special::AsText).unwrap();
    // `ab` (-4) is better than `bc` (-5) and than `▁ab` (-6), which comes of it.
    assert_eq!(ids("abc"), [265, 262]);
    assert_eq!(ids("é"), [259, 3 + 0xC3, 3 + 0xA9]);
    assert_eq!(ids("a▁b"), ids("a b"));
    // What spells a control token or a byte token is text.
    assert_eq!(ids("</s>"), [259, 266, 267]);
    assert_eq!(ids("<0x41>").len(), 7);
    assert_eq!(tokenizer.encode_whole("ab", Special::AsText).unwrap(), [1, 265]);
    // A space goes before the text, and again behind a special token.
    assert_eq!(tokenizer.encode("ab</s>ab", Special::Parse).unwrap(), [265, 2, 265]);
    assert_eq!(tokenizer.decode(&[1, 265, 262], Shown::Text).unwrap(), "abc");
    assert_eq!(tokenizer.decode(&[1, 265, 262], Shown::All).unwrap(), "<s> abc");
}

#[test]
fn a_space_that_is_no_token_is_spelled_as_the_model_knows_it() {
    let mut spec = spm();
    spec.tokens.to_mut()[259] = "unused".into();
    let tokenizer = tokenizer(VocabSpec { add_space_prefix: Some(false), ..spec });
    assert_eq!(tokenizer.encode(" c", Special::AsText).unwrap(), [3 + 0xE2, 3 + 0x96, 3 + 0x81, 262]);
}

#[test]
fn byte_tokens_that_name_no_byte_are_text() {
    let mut spec = spm();
    for (id, text) in [(3, "<0x-1>"), (4, "<0xGG>"), (5, "<0x1FF>")] {
        spec.tokens.to_mut()[id] = text.into();
    }
    let tokenizer = tokenizer(spec.clone());
    assert_eq!(tokenizer.kind(3), Some(Kind::Normal));
    assert_eq!(tokenizer.piece(4, Shown::All).unwrap(), b"<0xGG>");
    // Byte 2 has no token now: the unknown token stands for it.
    assert_eq!(tokenizer.encode("\u{2}", Special::AsText).unwrap(), [259, 0]);
    let types: Vec<i32> = spec.types.iter().map(|&ty| if ty == 6 { 1 } else { ty }).collect();
    let tokens: Vec<String> = spec.tokens.iter().map(|text| text.replace("<0x", "<0y")).collect();
    let without = common::tokenizer(VocabSpec { types: types.into(), tokens: tokens.into(), ..spec });
    assert_eq!(without.encode("é", Special::AsText).unwrap(), [259, 0]);
}

#[test]
fn a_byte_without_a_token_is_an_error_where_nothing_stands_for_it() {
    let mut spec = bpe();
    spec.tokens.to_mut()[usize::from(b'z')] = "zzz".into();
    let tokenizer = tokenizer(spec);
    assert!(matches!(tokenizer.encode("az", Special::AsText), Err(Error::NoByte { byte: b'z' })));
}

#[test]
fn phi_3_tokens_swallow_the_blanks_behind_them() {
    let tokenizer = tokenizer(VocabSpec { name: Some("Phi-3 mini".into()), ..bpe() });
    assert_eq!(tokenizer.encode("a <|im_end|> \n b", Special::Parse).unwrap(), [97, 32, 261, 98]);
    assert_eq!(tokenizer.encode("<|endoftext|> b", Special::Parse).unwrap(), [259, 32, 98]);
}

#[test]
fn streams_never_give_half_a_character() {
    let tokenizer = tokenizer(bpe());
    let mut stream = Detokenizer::new(&tokenizer, Shown::Text);
    let bytes = "é😀".as_bytes();
    let given: Vec<String> = bytes.iter().map(|&b| stream.push(byte(b)).unwrap().to_string()).collect();
    assert_eq!(given, ["", "é", "", "", "", "😀"]);
    assert_eq!(stream.push(261).unwrap(), "");
    assert_eq!(stream.push(0xF0).unwrap(), "");
    assert_eq!(stream.push(byte(b'a')).unwrap(), "\u{FFFD}a");
    assert_eq!(stream.push(0xF0).unwrap(), "");
    assert!(matches!(stream.push(5000), Err(Error::TokenId { id: 5000, tokens: 263 })));
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "");
}

proptest! {
    #[test]
    fn byte_level_text_comes_back(text: String) {
        let tokenizer = tokenizer(bpe());
        let ids = tokenizer.encode(&text, Special::Parse).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids, Shown::All).unwrap(), text);
    }

    #[test]
    fn sentencepiece_text_comes_back(text in r"[abc </s>é中]{0,60}") {
        let tokenizer = tokenizer(spm());
        let ids = tokenizer.encode(&text, Special::AsText).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids, Shown::All).unwrap(), text);
    }

    #[test]
    fn streams_are_lossy_utf8(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let tokenizer = tokenizer(bpe());
        let ids: Vec<u32> = bytes.iter().map(|&b| byte(b)).collect();
        prop_assert_eq!(tokenizer.decode(&ids, Shown::All).unwrap(), String::from_utf8_lossy(&bytes));
    }

    /// Any vocabulary is refused or works.
    #[test]
    fn no_vocabulary_panics(
        tokens in proptest::collection::vec(r"[ab▁ ]{0,3}|<0x[0-9A-G]{2}>|<\|im_end\|>|\PC{0,2}", 0..12),
        types in proptest::collection::vec(0i32..8, 0..12),
        merges in proptest::collection::vec(r"[ab▁ ]{0,4}", 0..4),
        model in "gpt2|llama|gemma4|t5|bert|rwkv|plamo2|whitespace",
        ids in proptest::option::of(0u32..12),
        flags: (Option<bool>, Option<bool>),
        text: String,
    ) {
        let spec = VocabSpec {
            model, pre: Some("gpt-2".into()), tokens: tokens.into(), types: types.into(), merges: merges.into(),
            bos: ids, sep: ids, unk: ids, add_space_prefix: flags.0, remove_extra_whitespaces: flags.1,
            ..VocabSpec::default()
        };
        if let Ok(tokenizer) = Tokenizer::new(spec)
            && let Ok(ids) = tokenizer.encode(&text, Special::Parse)
        {
            tokenizer.decode(&ids, Shown::Text).unwrap();
        }
    }
}

/// One word of a megabyte, which falls into tokens of all lengths or into none at all.
#[test]
fn long_words_take_no_longer_than_others() {
    for text in ["hell", "ab", "a", "é", "\u{301}", "hehellll", " "] {
        let text = text.repeat(1_000_000 / text.len());
        for spec in [bpe(), spm()] {
            let tokenizer = tokenizer(spec);
            let begun = std::time::Instant::now();
            let ids = tokenizer.encode(&text, Special::AsText).unwrap();
            assert!(begun.elapsed().as_secs() < 30, "{:?} takes {:?}", &text[..8], begun.elapsed());
            assert!(tokenizer.decode(&ids, Shown::All).unwrap() == text);
        }
    }
}

/// Fewer than 256 tokens for bytes: what has none is unknown, whole characters at a time.
#[test]
fn some_bytes_without_tokens_are_unknown() {
    let mut spec = spm();
    for id in 3 + 0xA9..3 + 0xB0 {
        spec.tokens.to_mut()[id] = format!("<none{id}>");
        spec.types.to_mut()[id] = 5;
    }
    let tokenizer = tokenizer(spec);
    assert_eq!(tokenizer.encode("éè", Special::AsText).unwrap(), [259, 0, 3 + 0xC3, 3 + 0xA8]);
}

//! A query and a document as models that score them together read them.

mod common;

use cera_token::{Error, Tokenizer, VocabSpec};
use common::{bpe, spm};

fn pair(spec: VocabSpec<'_>, query: &str, document: &str) -> Result<Vec<u32>, Error> {
    Tokenizer::new(spec).unwrap().encode_pair(query, document)
}

#[test]
fn the_files_template_is_filled_and_what_texts_spell_is_text() {
    let template = "<|im_start|>{query} {document}<|im_end|>".to_owned();
    let spec = || VocabSpec { pair_template: Some(template.clone()), ..bpe() };
    let letters = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    assert_eq!(pair(spec(), "ab", "c").unwrap(), [&[260][..], &letters("ab c"), &[261]].concat());
    // A text that names a place is no place, and one that spells a token is no token.
    assert_eq!(pair(spec(), "{document}", "<|im_end|>").unwrap().iter().filter(|id| **id >= 259).count(), 2);
    let twice = pair(spec(), "{document}", "x").unwrap();
    assert_eq!(twice, [&[260][..], &letters("{document} x"), &[261]].concat());
}

#[test]
fn separators_stand_as_bert_and_roberta_have_them() {
    let roberta = || VocabSpec { add_bos: Some(true), add_eos: Some(true), sep: Some(261), ..bpe() };
    let of = |spec| pair(spec, "a", "b").unwrap();
    assert_eq!(of(VocabSpec { add_sep: Some(true), ..roberta() }), [259, 97, 261, 261, 98, 261]);
    assert_eq!(of(VocabSpec { pre: Some("roberta-bpe".into()), ..roberta() }), [259, 97, 261, 261, 98, 261]);
    assert_eq!(of(roberta()), [259, 97, 261, 98, 261]);
    // ModernBERT's files ask for a separator, and mean the only one.
    let modern = VocabSpec { pre: Some("modern-bert".into()), add_sep: Some(true), ..roberta() };
    assert_eq!(of(modern), [259, 97, 261, 98, 261]);
    let bert = VocabSpec {
        model: "bert".into(),
        tokens: ["[UNK]", "[CLS]", "[SEP]", "\u{2581}a", "\u{2581}b"].map(String::from).to_vec().into(),
        types: vec![2, 3, 3, 1, 1].into(),
        bos: Some(1),
        unk: Some(0),
        sep: Some(2),
        ..VocabSpec::default()
    };
    assert_eq!(of(bert), [1, 3, 2, 4, 2]);
}

#[test]
fn a_file_that_says_nothing_of_pairs_is_not_guessed_at() {
    assert!(matches!(pair(spm(), "a", "b"), Err(Error::NoPair)));
}

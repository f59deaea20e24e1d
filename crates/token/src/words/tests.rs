use super::*;
use proptest::prelude::*;

fn steps(pre: &str) -> Steps {
    Steps(Pre::find(pre).unwrap().steps().unwrap())
}

fn words(pre: &str, text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut push = |word: &[u8]| {
        out.push(String::from_utf8(word.to_vec()).unwrap());
        Ok(())
    };
    steps(pre).run(text, true, &mut push).unwrap();
    out
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
    // A letter behind the digits: the expression's boundary is not there.
    assert_eq!(words("tiny_aya", "1234567a"), ["123", "456", "7", "a"]);
    assert_eq!(words("afmoe", "a 1234567"), ["a", " ", "1", "234", "567"]);
}

#[test]
fn places_between_threes() {
    let cut = Cut::expression(r"(?=(\d{3})+(?!\d))").unwrap();
    let mut out = Vec::new();
    let text = "ab1234cd567";
    cut.each(text, &mut |range, _| {
        out.push(&text[range]);
        Ok(())
    })
    .unwrap();
    assert_eq!(out, ["ab1", "234cd", "567"]);
}

#[test]
fn case_parts_words() {
    assert_eq!(words("gpt-4o", "helloWorld FOOBar it's"), ["hello", "World", " FOOBar", " it's"]);
    assert_eq!(words("tekken", "helloWorld it's"), ["hello", "World", " it", "'s"]);
    assert_eq!(words("kimi-k2", "漢字Kanji it's"), ["漢字", "Kanji", " it's"]);
}

/// Runs of blanks that Jais 2 keeps, worked out from its expression by hand.
#[test]
fn blanks_by_powers_of_two() {
    let lengths = |text: &str| words("jais-2", text).iter().map(String::len).collect::<Vec<_>>();
    assert_eq!(lengths(&format!("a{}b", " ".repeat(16))), [1, 8, 4, 2, 1, 2]);
    assert_eq!(lengths(&format!("a{}", " ".repeat(16))), [1, 16]);
    assert_eq!(lengths("a  b"), [1, 1, 2]);
    assert_eq!(lengths("a   5"), [1, 2, 1, 1]);
    assert_eq!(lengths("a \n  b"), [1, 2, 1, 2]);
}

#[test]
fn trailing_blanks_are_parted() {
    let cut = Cut::expression(r"\s+$").unwrap();
    let pieces = |text: &str| {
        let mut out = Vec::new();
        cut.each(text, &mut |range, is_match| {
            out.push((range, is_match));
            Ok(())
        })
        .unwrap();
        out
    };
    assert_eq!(pieces(" a \u{3000}"), [(0..2, false), (2..6, true)]);
    assert_eq!(pieces("  "), [(0..2, true)]);
    assert_eq!(pieces("a"), [(0..1, false)]);
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

/// Some text that each expression has to look far ahead in, long enough that reading it again and again shows: that takes
/// minutes, and once takes milliseconds.
#[test]
fn no_text_takes_long() {
    let texts = [
        " ",
        "a",
        "A",
        "aA",
        "中",
        "\u{301}",
        "a\u{301} ",
        "1",
        "'",
        "\n",
        " \n",
        "!",
        "ʰA",
        "中A",
        "\u{3000}a",
    ];
    for pre in Pre::all() {
        let steps = Steps(pre.steps().unwrap());
        for text in texts {
            let text = text.repeat(200_000);
            let begun = std::time::Instant::now();
            steps.run(&text, true, &mut |_| Ok(())).unwrap();
            let taken = begun.elapsed();
            assert!(taken.as_secs() < 20, "{pre:?} takes {taken:?} for {:?}…", &text[..1]);
        }
    }
}

/// An expression that is made to read far ahead in vain.
#[test]
fn hostile_expressions_are_stopped() {
    let pattern = Pattern::new(&Expression::new("a.*b|a").unwrap()).unwrap();
    let text = "a".repeat(100_000);
    assert!(matches!(pattern.each(&text, &mut |_, _| Ok(())), Err(Error::Slow { .. })));
    assert!(pattern.each("aab", &mut |_, _| Ok(())).is_ok());
    assert!(matches!(
        Pattern::new(&Expression::new("a*").unwrap()),
        Err(Error::Expression { what, .. }) if what.contains("between")
    ));
    assert!(matches!(
        Pattern::new(&Expression::new(&r"\p{L}{200}".repeat(30)).unwrap()),
        Err(Error::Expression { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever the text, the words of every pre-tokenizer that takes nothing away are the text.
    #[test]
    fn nothing_is_lost(text in r"[ \n\r\ta-cA-C0-9'.!é中\u{3000}\u{301}٣]{0,40}|\PC{0,20}") {
        for pre in Pre::all().iter().filter(|pre| pre.spelling != crate::vocab::Spelling::Plain) {
            let mut out = Vec::new();
            Steps(pre.steps().unwrap()).run(&text, true, &mut |word| {
                assert!(!word.is_empty());
                out.extend_from_slice(word);
                Ok(())
            }).unwrap();
            prop_assert_eq!(&out, text.as_bytes());
        }
    }
}

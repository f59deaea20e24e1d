//! The byte alphabet of GPT-2: every byte stands as one printable character in the token list.
//!
//! Printable bytes of Latin-1 stand for themselves, the other 68 take U+0100 and up, in order
//! (`bytes_to_unicode` of OpenAI's GPT-2 encoder).

/// Characters from U+0100 on that stand for unprintable bytes.
const SHIFTED: u32 = 256;

const fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Byte of each character below U+0144; `u16::MAX` where the character stands for none.
static BYTE_OF: [u16; 324] = {
    let mut table = [u16::MAX; 324];
    let mut next = SHIFTED as usize;
    let mut byte = 0;
    while byte < 256 {
        if is_printable(byte as u8) {
            table[byte] = byte as u16;
        } else {
            table[next] = byte as u16;
            next += 1;
        }
        byte += 1;
    }
    table
};

/// Character of each byte.
static CHAR_OF: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut code = 0;
    while code < BYTE_OF.len() {
        if BYTE_OF[code] < 256
            && let Some(c) = char::from_u32(code as u32)
        {
            table[BYTE_OF[code] as usize] = c;
        }
        code += 1;
    }
    table
};

/// Appends the bytes that `text` stands for. False, with `out` as it was, where a character stands for none.
pub(crate) fn decode(text: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    for c in text.chars() {
        match BYTE_OF.get(c as usize).and_then(|&byte| u8::try_from(byte).ok()) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

/// Each byte of `text` as its character.
pub(crate) fn encode(text: &str) -> String {
    text.bytes().filter_map(|byte| CHAR_OF.get(usize::from(byte))).collect()
}

/// Bytes of the character that begins with `first`.
pub(crate) fn char_len(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0.. => 4,
    }
}

/// The byte of a SentencePiece byte token: `<0x00>` to `<0xFF>` with two hexadecimal digits, nothing else.
pub(crate) fn byte_token(text: &str) -> Option<u8> {
    hex(text.strip_prefix("<0x")?.strip_suffix('>')?)
}

/// The byte of two hexadecimal digits.
pub(crate) fn hex(digits: &str) -> Option<u8> {
    if digits.len() != 2 || !digits.bytes().all(|d| d.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection() {
        let mut bytes = Vec::new();
        for c in (0..324).filter_map(char::from_u32) {
            decode(&c.to_string(), &mut bytes);
        }
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_characters() {
        let mut bytes = Vec::new();
        assert!(decode("ĠHelloĊÃ©", &mut bytes));
        assert_eq!(bytes, " Hello\né".as_bytes());
        assert!(!decode("a b", &mut bytes) && !decode("\u{2581}", &mut bytes));
        assert_eq!(bytes, " Hello\né".as_bytes());
        assert_eq!(encode(" Hello\né"), "ĠHelloĊÃ©");
    }

    #[test]
    fn characters_have_their_length() {
        for c in ['a', 'é', '中', '😀'] {
            assert_eq!(char_len(c.to_string().as_bytes()[0]), c.len_utf8());
        }
    }

    #[test]
    fn byte_tokens_are_two_hex_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xff>"), Some(255));
        for bad in ["<0x-1>", "<0x+1>", "<0xGG>", "<0x1FF>", "<0x1>", "<0x>", "0x0A", "<0x0A"] {
            assert_eq!(byte_token(bad), None, "{bad}");
        }
    }
}

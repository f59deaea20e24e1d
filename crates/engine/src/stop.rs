//! Stop strings in a stream of text: no part of one ever gets out.

/// Looks for stop strings in text that arrives in pieces, and holds back what may become one.
#[derive(Clone, Debug)]
pub(crate) struct StopStrings {
    stops: Vec<String>,
    /// Text received and neither let out nor ruled out: a proper beginning of some stop string, or empty.
    held: String,
}

impl StopStrings {
    /// Watches for these strings; empty ones, which would match everywhere, must not be among them.
    pub fn new(stops: &[String]) -> Self {
        Self { stops: stops.to_vec(), held: String::new() }
    }

    /// Takes the next piece; gives back the text that may go out, and whether a stop string was found behind it.
    /// The string that is complete first counts, the longest of several; what follows it is dropped. The
    /// text is taken by characters, so how it was cut into pieces cannot show.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        let mut out = String::new();
        for c in piece.chars() {
            self.held.push(c);
            let complete =
                self.stops.iter().filter(|s| self.held.ends_with(s.as_str())).map(String::len).max();
            if let Some(length) = complete {
                self.held.truncate(self.held.len() - length);
                out.push_str(&std::mem::take(&mut self.held));
                return (out, true);
            }
            let keep = self.stops.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
            out.extend(self.held.drain(..self.held.len() - keep));
        }
        (out, false)
    }

    /// The text has ended: what was held back is no stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length in bytes of the longest end of `text` that is a proper beginning of `stop`. Such an end starts at a
/// character boundary of `text`, as `stop` does.
fn overlap(text: &str, stop: &str) -> usize {
    let ends = text.char_indices().map(|(i, _)| text.get(i..).unwrap_or_default());
    ends.filter(|end| end.len() < stop.len() && stop.starts_with(end)).map(str::len).next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of `size` characters; gives what got out and whether a stop was found.
    fn feed(stops: &[&str], text: &str, size: usize) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut watch = StopStrings::new(&stops);
        let chars: Vec<char> = text.chars().collect();
        let mut out = String::new();
        for piece in chars.chunks(size) {
            let (text, found) = watch.push(&piece.iter().collect::<String>());
            out.push_str(&text);
            if found {
                return (out, true);
            }
        }
        out.push_str(&watch.finish());
        (out, false)
    }

    #[test]
    fn cuts_before_the_stop_string_whatever_the_pieces() {
        for size in 1..12 {
            assert_eq!(feed(&["END"], "to the ENENDing", size), ("to the EN".into(), true), "{size}");
            assert_eq!(feed(&["aab"], "aaaab", size), ("aa".into(), true), "{size}");
            assert_eq!(feed(&["é!"], "caféé!x", size), ("café".into(), true), "{size}");
        }
    }

    #[test]
    fn text_without_a_stop_string_gets_out_whole() {
        for size in 1..12 {
            assert_eq!(feed(&["###", "\n\n"], "# a ## b\n", size), ("# a ## b\n".into(), false));
            assert_eq!(feed(&[], "plain", size), ("plain".into(), false));
        }
    }

    #[test]
    fn the_first_to_be_complete_wins_and_the_longest_of_those() {
        for size in 1..12 {
            assert_eq!(feed(&["cd", "bcx"], "abcd", size), ("ab".into(), true), "{size}");
            assert_eq!(feed(&["cd", "bcde"], "abcde", size), ("ab".into(), true), "{size}");
            assert_eq!(feed(&["cd", "bcd"], "abcd", size), ("a".into(), true), "{size}");
        }
    }

    #[test]
    fn holds_back_no_more_than_a_beginning() {
        let mut watch = StopStrings::new(&["\nUser:".into()]);
        assert_eq!(watch.push("hello\nU"), ("hello".into(), false));
        assert_eq!(watch.push("p"), ("\nUp".into(), false));
        assert_eq!(watch.finish(), "");
    }
}

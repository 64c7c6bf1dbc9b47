//! Texts of others on a terminal.

use std::borrow::Cow;

/// The maximum number of characters of a line that are printed.
const LONGEST_LINE: usize = 8192;

/// Returns a text for a terminal. Names in files and messages of servers may contain sequences by which a terminal moves the
/// cursor, hides text or types an answer, or be of any length: control characters except the end of a line and the tab, and
/// characters that change the direction of text, are escaped, and a line is cut after 8,192 characters.
///
/// ```
/// use kiln_comm::printable;
/// assert_eq!(printable("class `a\u{1b}[2J`\nclass `b`"), "class `a\\u{1b}[2J`\nclass `b`");
/// assert!(printable(&"x".repeat(20_000)).ends_with("xxx … (11808 more characters)"));
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_short = text.len() <= LONGEST_LINE || text.lines().all(|line| line.len() <= LONGEST_LINE);
    if is_short && !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(4 * LONGEST_LINE));
    for (number, line) in text.split('\n').enumerate() {
        if number != 0 {
            out.push('\n');
        }
        for char in line.chars().take(LONGEST_LINE) {
            match is_obeyed(char) {
                true => out.extend(char.escape_default()),
                false => out.push(char),
            }
        }
        let n_more = line.chars().skip(LONGEST_LINE).count();
        if n_more != 0 {
            out += &format!(" … ({n_more} more characters)");
        }
    }
    Cow::Owned(out)
}

/// Returns JSON for a terminal: the same value, in which the characters that [`printable`] escapes are escaped as in JSON. It is not
/// cut.
///
/// ```
/// assert_eq!(kiln_comm::printable_json("{\"name\":\"a\u{202e}b\"}"), "{\"name\":\"a\\u202eb\"}");
/// ```
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_obeyed) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 8);
    for char in json.chars() {
        match is_obeyed(char) {
            true => out += &format!("\\u{:04x}", u32::from(char)),
            false => out.push(char),
        }
    }
    Cow::Owned(out)
}

/// Returns true for a character that a terminal obeys instead of printing it.
fn is_obeyed(char: char) -> bool {
    let changes_direction = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    changes_direction || (char.is_control() && !matches!(char, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_terminal_are_escaped_and_bounded_each() {
        for same in ["", "plain\ttext\n", "ünïcode → 30 %", "\n\n"] {
            assert!(matches!(printable(same), Cow::Borrowed(text) if text == same));
        }
        for (text, expected) in [
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("epoch 1\repoch 2", "epoch 1\\repoch 2"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
        ] {
            assert_eq!(printable(text), expected);
        }
        let long = "é".repeat(LONGEST_LINE + 5);
        let lines = format!("{long}\nshort\n{long}");
        let printed = printable(&lines).into_owned();
        let printed: Vec<&str> = printed.split('\n').collect();
        assert_eq!((printed.len(), printed[1]), (3, "short"));
        assert!(printed[0].ends_with("é … (5 more characters)") && printed[0] == printed[2]);
    }
}

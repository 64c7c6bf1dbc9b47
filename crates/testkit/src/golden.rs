use std::env;
use std::fs;
use std::path::Path;

/// The variable that, set to `write`, makes [`check_golden`] write its files.
const VARIABLE: &str = "KILN_GOLDEN";

/// Compares a text with the expected text in a file, such as a help text that must not change unnoticed. If the variable
/// `KILN_GOLDEN` is `write`, it writes the file instead.
///
/// # Panics
/// Panics with the first line that differs, and if the file cannot be read or written.
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
pub fn check_golden(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if env::var_os(VARIABLE).is_some_and(|value| value == "write") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(path);
    let expected = expected.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if let Some(problem) = difference(&expected, text) {
        panic!("{}, {problem}\n{VARIABLE}=write replaces the file by the text:\n{text}", path.display());
    }
}

/// Returns the first difference between two texts.
fn difference(expected: &str, text: &str) -> Option<String> {
    if expected == text {
        return None;
    }
    let mut lines = text.lines();
    for (line_idx, expected) in expected.lines().enumerate() {
        let got = lines.next();
        if got != Some(expected) {
            return Some(format!("line {}: expected {expected:?}, got {got:?}", line_idx + 1));
        }
    }
    Some(format!("after the end: got {:?}", lines.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_reported() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let changed = difference("a\nb\nc\n", "a\nx\ny\n");
        assert_eq!(changed.as_deref(), Some("line 2: expected \"b\", got Some(\"x\")"));
        assert_eq!(difference("a\nb\n", "a\n").as_deref(), Some("line 2: expected \"b\", got None"));
        assert_eq!(difference("a\n", "a\nb\n").as_deref(), Some("after the end: got Some(\"b\")"));
        assert_eq!(difference("a\n", "a").as_deref(), Some("after the end: got None"));
    }
}

//! Licence expressions of manifests: SPDX (version 2.3, annex D), and `/` for `OR` as in old manifests.

/// Returns true if the licences that `is_allowed` accepts satisfy the expression. `is_allowed` receives names such as
/// `MIT` or `Apache-2.0 WITH LLVM-exception`.
///
/// # Errors
/// Returns a message that states what was expected if the text is not a valid expression.
pub(crate) fn is_met(expression: &str, is_allowed: impl Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), n_read: 0 };
    let is_met = any(&mut words, &is_allowed)?;
    match words.next() {
        None => Ok(is_met),
        Some(word) => Err(format!("expected AND, OR or the end, found {word:?}")),
    }
}

struct Words<'a> {
    words: Vec<&'a str>,
    n_read: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.n_read += 1;
        self.words.get(self.n_read - 1).copied()
    }

    /// Returns true if the next word is `word`, and consumes it in this case.
    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.n_read) == Some(&word);
        self.n_read += usize::from(is_next);
        is_next
    }
}

/// Parses `A OR B OR …`, whose operands may contain `AND`, and returns true if one of the operands is met.
fn any(words: &mut Words<'_>, is_allowed: &impl Fn(&str) -> bool) -> Result<bool, String> {
    let mut is_met = all(words, is_allowed)?;
    while words.skip("OR") {
        is_met |= all(words, is_allowed)?;
    }
    Ok(is_met)
}

/// Parses `A AND B AND …`, and returns true if all operands are met.
fn all(words: &mut Words<'_>, is_allowed: &impl Fn(&str) -> bool) -> Result<bool, String> {
    let mut is_met = one(words, is_allowed)?;
    while words.skip("AND") {
        is_met &= one(words, is_allowed)?;
    }
    Ok(is_met)
}

/// Parses a licence, a licence with an exception, or an expression in parentheses, and returns true if it is met.
fn one(words: &mut Words<'_>, is_allowed: &impl Fn(&str) -> bool) -> Result<bool, String> {
    if words.skip("(") {
        let is_met = any(words, is_allowed)?;
        return if words.skip(")") { Ok(is_met) } else { Err("expected `)`".into()) };
    }
    let license = name(words)?;
    if words.skip("WITH") {
        let exception = name(words)?;
        return Ok(is_allowed(&format!("{license} WITH {exception}")));
    }
    Ok(is_allowed(license))
}

fn name<'a>(words: &mut Words<'a>) -> Result<&'a str, String> {
    match words.next() {
        Some(word) if !["AND", "OR", "WITH", "(", ")"].contains(&word) => Ok(word),
        Some(word) => Err(format!("expected the name of a licence, found {word:?}")),
        None => Err("expected the name of a licence, found the end".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_met_by(expression: &str, allowed: &[&str]) -> Result<bool, String> {
        is_met(expression, |license| allowed.contains(&license))
    }

    #[test]
    fn license_needs_one_allowed_side_of_or_and_both_allowed_sides_of_and() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"];
        for (expression, expected) in [
            ("MIT", true),
            ("ISC", false),
            ("MIT OR ISC", true),
            ("ISC/MIT", true),
            ("ISC / Zlib", false),
            ("MIT AND ISC", false),
            // In this expression, AND binds tighter than OR.
            ("MIT OR ISC AND Zlib", true),
            ("(MIT OR ISC) AND Zlib", false),
            ("(MIT OR ISC) AND (Zlib OR MIT)", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("ISC OR Apache-2.0 WITH LLVM-exception", true),
        ] {
            assert_eq!(is_met_by(expression, &allowed), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn rejects_invalid_expressions() {
        for expression in
            ["", "MIT OR", "AND MIT", "MIT ISC", "(MIT", "MIT)", "()", "MIT WITH", "MIT WITH OR ISC"]
        {
            assert!(is_met_by(expression, &["MIT"]).is_err(), "{expression}");
        }
    }
}

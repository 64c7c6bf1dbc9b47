/// Returns words separated by commas, with another word before the last of them, such as `a, b or c`.
///
/// ```
/// assert_eq!(kiln_usage::join_words(["a", "b", "c"], "or"), "a, b or c");
/// ```
pub fn join_words<S: AsRef<str>>(words: impl IntoIterator<Item = S>, last: &str) -> String {
    let words: Vec<S> = words.into_iter().collect();
    let words: Vec<&str> = words.iter().map(S::as_ref).collect();
    match &words[..] {
        [others @ .., word] if !others.is_empty() => format!("{} {last} {word}", others.join(", ")),
        _ => words.concat(),
    }
}

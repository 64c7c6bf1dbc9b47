/// Formats a number of things for a message, such as `1 item` or `3 items`. The plural of the noun ends in s.
///
/// ```
/// assert_eq!(kiln_store::counted(1, "node"), "1 node");
/// assert_eq!(kiln_store::counted(0, "labelled item"), "0 labelled items");
/// ```
pub fn counted(n: u64, noun: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{ending}")
}

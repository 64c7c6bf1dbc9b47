/// Returns true if two values of a setting are equal, as `0.5` and `0.50` are.
///
/// ```
/// use kiln_train::are_equal_settings;
/// assert!(are_equal_settings("0.5", "0.50"));
/// assert!(!are_equal_settings("10,10", "10"));
/// ```
pub fn are_equal_settings(one: &str, other: &str) -> bool {
    let numbers = [one, other].map(str::parse::<f64>);
    one == other || matches!(numbers, [Ok(one), Ok(other)] if one == other)
}

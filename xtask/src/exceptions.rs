//! Lists of today's exceptions to a rule, which may only shrink.

use std::collections::BTreeMap;

/// The messages of what breaks a rule and is no listed exception, and a message for each listed exception that breaks the
/// rule no longer. `list` says where the list is.
pub(crate) fn beyond(found: BTreeMap<String, String>, allowed: &[&str], list: &str) -> Vec<String> {
    let stale = allowed.iter().filter(|name| !found.contains_key(**name));
    let stale: Vec<String> =
        stale.map(|name| format!("{name} keeps the rule now: remove it from {list}")).collect();
    let new = found.into_iter().filter(|(name, _)| !allowed.contains(&name.as_str()));
    new.map(|(_, message)| message).chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn a_new_exception_and_a_stale_one_are_both_found() {
        let found = || [("a", "a is bad"), ("b", "b is bad")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(beyond(found(), &["a", "b"], "the list"), [""; 0]);
        assert_eq!(beyond(found(), &["a"], "the list"), ["b is bad"]);
        let stale = "c keeps the rule now: remove it from the list";
        assert_eq!(beyond(found(), &["a", "b", "c"], "the list"), [stale]);
    }
}

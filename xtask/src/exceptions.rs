//! Lists of exceptions to a rule, which may only shrink.

use std::collections::BTreeMap;

/// Returns the messages of the violations that are not listed exceptions, and a message for each listed exception that
/// is no longer a violation. `list` is the location of the list, for the message.
pub(crate) fn beyond(found: BTreeMap<String, String>, allowed: &[&str], list: &str) -> Vec<String> {
    let stale = allowed.iter().filter(|name| !found.contains_key(**name));
    let stale: Vec<String> =
        stale.map(|name| format!("{name} no longer violates the rule: remove it from {list}")).collect();
    let new = found.into_iter().filter(|(name, _)| !allowed.contains(&name.as_str()));
    new.map(|(_, message)| message).chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn finds_new_and_stale_exceptions() {
        let found = || [("a", "a is bad"), ("b", "b is bad")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(beyond(found(), &["a", "b"], "the list"), [""; 0]);
        assert_eq!(beyond(found(), &["a"], "the list"), ["b is bad"]);
        let stale = "c no longer violates the rule: remove it from the list";
        assert_eq!(beyond(found(), &["a", "b", "c"], "the list"), [stale]);
    }
}

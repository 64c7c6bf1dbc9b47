//! Custom rules of samplers on devices.

use kiln_sample::Rule;

/// Returns true if a rule picks on the host only: a custom rule without a version for devices, or one that always picks self
/// loops, which kernels count and weigh for the built-in rule only.
pub(crate) fn needs_host(rule: &Rule) -> bool {
    let Rule::Custom { rule, .. } = rule else { return false };
    #[cfg(feature = "cube")]
    if !rule.keeps_self_loops() && crate::cube::rule::DeviceRule::of(&**rule).is_some() {
        return false;
    }
    let _ = rule;
    true
}

//! Suggestions for misspelt names: of types and relations, and of everything else that users name (data sets, models, devices,
//! metrics, columns). All messages use these functions.

use strsim::damerau_levenshtein;

/// The least length of a name that is similar to longer names that contain it.
const LEAST_PART: usize = 3;

/// Returns the known name that is most similar to a name that is none of them; `None` if no name is similar. Capitals, and `_`
/// or a space for `-`, do not count. A name is similar if at most a third of its characters differ, or if one of both names is
/// a part of the other. Of names with equally many edits, that with the longest common beginning is returned, or else the first.
///
/// ```
/// use kiln_graph::similar_name;
/// assert_eq!(similar_name("pyg-nyp", ["pyg-npy", "shop"]), Some("pyg-npy"));
/// assert_eq!(similar_name("papers", ["pyg-npy", "shop"]), None);
/// ```
pub fn similar_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar_alias(name, known.into_iter().map(|known| (known, known)))
}

/// Returns the name whose alias is most similar, as [`similar_name`] does. Aliases are names by which other libraries know the
/// same thing, with the name here.
///
/// ```
/// use kiln_graph::similar_alias;
/// assert_eq!(similar_alias("GraphSage", [("gat", "gat"), ("graphsage", "sage")]), Some("sage"));
/// ```
pub fn similar_alias<'a>(
    name: &str,
    aliases: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<&'a str> {
    let name = fold(name);
    let mut best: Option<((usize, usize), &str)> = None;
    for (alias, meant) in aliases {
        let alias = fold(alias);
        let Some(distance) = distance(&name, &alias) else { continue };
        let n_equal = name.chars().zip(alias.chars()).take_while(|(one, other)| one == other).count();
        let rank = (distance, usize::MAX - n_equal);
        if best.is_none_or(|(least, _)| rank < least) {
            best = Some((rank, meant));
        }
    }
    best.map(|(_, meant)| meant)
}

/// Returns the end of a message about an unknown name that suggests a similar name; empty if there is none.
///
/// ```
/// use kiln_graph::{did_you_mean, similar_name};
/// assert_eq!(did_you_mean(similar_name("shpo", ["shop", "papers"])), " (did you mean `shop`?)");
/// assert_eq!(did_you_mean(similar_name("x", ["shop", "papers"])), "");
/// ```
pub fn did_you_mean(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// Returns the number of edits between two folded names; `None` if the names are not similar.
fn distance(name: &str, candidate: &str) -> Option<usize> {
    let n_chars = [name, candidate].map(|text| text.chars().count());
    let longer = n_chars[0].max(n_chars[1]);
    let n_edits = damerau_levenshtein(name, candidate);
    // Two thirds of the characters agree, so names of one or two characters are similar in other capitals only.
    if n_edits <= longer / 3 {
        return Some(n_edits);
    }
    let is_part = candidate.contains(name) || name.contains(candidate);
    // A part ranks below every misspelling.
    (LEAST_PART <= n_chars[0].min(n_chars[1]) && is_part).then_some(longer + n_edits)
}

/// Returns a name without differences that do not count.
fn fold(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', ' '], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_rank_above_parts_and_the_first_of_equals_is_returned() {
        let models = ["sage", "gcn", "gat", "gatv2", "transformer"];
        for (name, expected) in [
            ("gatv3", Some("gatv2")),
            ("GAT_V2", Some("gatv2")),
            ("GCN", Some("gcn")),
            ("saeg", Some("sage")),
            ("trans", Some("transformer")),
            ("graph transformer", Some("transformer")),
            ("graphsage", Some("sage")),
            ("gxx", None),
            ("", None),
            ("mlp", None),
        ] {
            assert_eq!(similar_name(name, models), expected, "{name}");
        }
        assert_eq!(similar_name("abx", ["abc", "abd"]), Some("abc"));
        assert_eq!(similar_name("gin", ["gcn", "gine"]), Some("gine"));
        assert_eq!(similar_name("é", ["ö"]), None);
        assert_eq!(similar_name("größe", ["größen"]), Some("größen"));
    }

    #[test]
    fn an_alias_stands_for_its_name() {
        let aliases = [("cpu", "cpu"), ("cuda", "cuda"), ("gpu", "cuda"), ("metal", "wgpu")];
        assert_eq!(similar_alias("gpu", aliases), Some("cuda"));
        assert_eq!(similar_alias("Metall", aliases), Some("wgpu"));
        assert_eq!(similar_alias("cpuu", aliases), Some("cpu"));
    }
}

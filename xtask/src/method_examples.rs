//! The check of examples: the public methods that programs call have examples in their docs, which doctests compile.

use crate::names::{is_of_a_crate, lines_outside_tests};
use crate::workspace::SourceFile;

/// The types of `kiln::prelude` whose methods have examples, with their crates. Of types with `::`, only the constructors do,
/// which have no `self`. `$config` are the setters that a macro adds to configurations of models.
const TYPES: &[(&str, &[&str])] = &[
    ("comm", &["RankConfig"]),
    ("data", &["Dataset::", "DatasetBuilder", "GraphDataset::"]),
    ("kernels", &["Devices"]),
    ("kiln", &["DataLoader", "FitConfig", "ForData", "GraphLoader", "LinkNeighborLoader", "NeighborLoader"]),
    ("kiln", &["PartitionedGraph", "PredictOn", "RankCount", "RankHandle", "TrainedModel", "Trainer"]),
    ("nn", &["$config", "GatConfig", "GcnConfig", "GinConfig", "GineConfig", "HeteroModelConfig"]),
    (
        "nn",
        &["HgtConfig", "LinkDecoderConfig", "RgcnConfig", "RsageConfig", "SageConfig", "TransformerConfig"],
    ),
    ("train", &["AdamConfig", "LinkPredictor", "LrSchedule", "NodePredictor", "SavedModel", "SgdConfig"]),
    ("train", &["TopKConfig"]),
];

struct Method<'a> {
    of_type: &'a str,
    name: &'a str,
    has_self: bool,
    has_example: bool,
}

/// Returns a message for each method of [`TYPES`] without an example, and for each type without methods.
pub(crate) fn missing(files: &[SourceFile]) -> Vec<String> {
    let rows = TYPES.iter().flat_map(|(folder, types)| types.iter().map(move |row| (*folder, *row)));
    let mut unseen: Vec<(&str, &str)> = rows.clone().collect();
    let mut problems = Vec::new();
    for SourceFile { path, text } in files.iter().filter(|file| is_of_a_crate(&file.path)) {
        let folder = path.split('/').nth(1).unwrap_or_default();
        let rows = rows.clone().filter(|row| row.0 == folder);
        for Method { of_type, name, has_self, has_example } in methods(text) {
            let Some(row) = rows.clone().find(|row| row.1.trim_end_matches(':') == of_type) else { continue };
            unseen.retain(|other| *other != row);
            if !(has_example || has_self && row.1.ends_with("::")) {
                problems.push(format!("{path}: the docs of {of_type}::{name} have no example"));
            }
        }
    }
    for (folder, row) in unseen {
        problems.push(format!("crates/{folder} has no methods of {row}: remove it from TYPES"));
    }
    problems
}

/// Returns the public methods of a file: those of traits, and those that types have without a trait.
fn methods(text: &str) -> Vec<Method<'_>> {
    let lines: Vec<&str> = lines_outside_tests(text).map(|(_, line)| line).collect();
    let mut methods = Vec::new();
    let mut open = None;
    let mut has_example = false;
    for (line_idx, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let start = owner_of_methods(code).map(|(of_type, visibility)| (of_type, visibility, indent));
        open = start.or(open).filter(|open| code != "}" || indent != open.2);
        let method = open.filter(|open| indent == open.2 + 4).and_then(|(of_type, visibility, _)| {
            let code = code.strip_prefix(visibility)?;
            let code = code.strip_prefix("const ").unwrap_or(code).strip_prefix("fn ")?;
            let (name, _) = code.split_once(['(', '<'])?;
            // A long signature has `self` in the second line.
            let has_self = lines[line_idx..].iter().take(2).any(|line| line.contains("self"));
            Some(Method { of_type, name, has_self, has_example })
        });
        methods.extend(method);
        has_example = (has_example || code.starts_with("/// ```")) && code.starts_with(['/', '#']);
    }
    methods
}

/// Returns the type or trait whose methods follow a line, and the start of public ones. An implementation of a trait has the
/// type `""`.
fn owner_of_methods(line: &str) -> Option<(&str, &'static str)> {
    if let Some(name) = line.strip_prefix("pub trait ") {
        return Some((name.split(['<', ' ', ':']).next()?, ""));
    }
    let rest = line.strip_prefix("impl")?;
    let path = rest.strip_prefix('<').map_or(Some(rest), |generics| Some(generics.split_once("> ")?.1))?;
    let name = if line.contains(" for ") { "" } else { path.trim_start() };
    Some((name.split(['<', ' ']).next()?, "pub "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_without_an_example_is_found() {
        let of_type = "impl<'a, C: D<'a>> Trainer<C> {\n    /// Fits.\n    pub fn a<B>() {}\n}\n";
        let of_trait = "pub trait PredictOn: A {\n    fn a() {\n        fn b() {}\n    }\n}\n";
        let constructor =
            "impl Dataset {\n    pub fn a(\n        b: B,\n    ) {}\n    pub fn b(&self) {}\n}\n";
        let private = "impl Trainer {\n    pub(crate) fn a() {}\n}\nimpl A for Trainer {\n    fn b() {}\n}\n";
        let example = "impl Trainer {\n    /// ```\n    /// ```\n    #[b]\n    pub const fn a() {}\n}\n";
        for (folder, text, expected) in [
            ("kiln", of_type, Some("Trainer::a")),
            ("kiln", of_trait, Some("PredictOn::a")),
            ("data", constructor, Some("Dataset::a")),
            ("kiln", private, None),
            ("kiln", example, None),
            ("train", of_type, None),
        ] {
            let path = format!("crates/{folder}/src/a.rs");
            let mut problems = missing(&[SourceFile { path: path.clone(), text: text.into() }]);
            problems.retain(|problem| problem.starts_with(&path));
            let message = expected.map(|name| format!("{path}: the docs of {name} have no example"));
            assert_eq!(problems, Vec::from_iter(message), "{text}");
        }
        assert!(
            missing(&[]).iter().any(|problem| problem.starts_with("crates/kiln has no methods of Trainer"))
        );
    }
}

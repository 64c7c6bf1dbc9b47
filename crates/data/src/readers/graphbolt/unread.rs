//! Notes about keys of `metadata.yaml` that are not read.

use std::path::Path;

use kiln_store::yaml::Yaml;

use crate::Note;
use crate::readers::ignored_files::note_unread;

/// The keys of an entry of a set's `data`; arrays are mapped whatever `in_memory` is.
const OF_DATA: &[&str] = &["name", "format", "in_memory", "path"];

/// The keys of a set of a task.
const OF_SET: &[&str] = &["type", "data"];

/// The keys of the document, and those of the mappings under a key or in the list under it.
const KEYS: [(&str, &[&str]); 10] = [
    ("", &["dataset_name", "graph", "feature_data", "tasks"]),
    ("graph", &["nodes", "edges", "feature_data"]),
    ("nodes", &["type", "num"]),
    ("edges", &["type", "format", "path"]),
    ("feature_data", &["domain", "type", "name", "format", "in_memory", "path"]),
    ("tasks", &["name", "num_classes", "train_set", "validation_set", "test_set"]),
    ("train_set", OF_SET),
    ("validation_set", OF_SET),
    ("test_set", OF_SET),
    ("data", OF_DATA),
];

/// Adds a note about the keys of `metadata.yaml` that the reader does not know.
pub(super) fn note_unread_keys(path: &Path, yaml: &Yaml, notes: &mut Vec<Note>) {
    let mut unread = Vec::new();
    collect(yaml, "", "", &mut unread);
    note_unread(&format!("keys of {}", path.display()), &unread, notes);
}

/// Collects the unknown keys of a value, which is under the key `name`. `place` is its path of keys.
fn collect(value: &Yaml, name: &str, place: &str, unread: &mut Vec<String>) {
    match value {
        Yaml::Map(entries) => {
            let known = KEYS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, known)| known);
            for (key, value) in entries {
                let dot = if place.is_empty() { "" } else { "." };
                let place = format!("{place}{dot}{key}");
                match known.contains(&key.as_str()) {
                    true => collect(value, key, &place, unread),
                    false => unread.push(place),
                }
            }
        }
        Yaml::List(items) => {
            for (position, item) in items.iter().enumerate() {
                collect(item, name, &format!("{place}[{position}]"), unread);
            }
        }
        Yaml::Null | Yaml::Scalar(_) => {}
    }
}

//! Notes about keys and arrays in `metadata.yaml` that are not read.

use std::path::Path;

use kiln_store::yaml::{Yaml, YamlEntry};

use crate::ignored_files::note_unread;
use crate::{Note, Result};

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

/// Adds a note about each task but those that are read.
pub(super) fn note_unread_tasks(
    root: &YamlEntry<'_>,
    is_read: impl Fn(&YamlEntry<'_>) -> bool,
    notes: &mut Vec<Note>,
) -> Result<()> {
    for task in root.list_of("tasks")? {
        if is_read(&task) {
            continue;
        }
        let name = task.get("name")?.map_or(Ok("without a name"), |name| name.text())?;
        notes.push(Note::Other(format!(
            "the task {name:.60} ({} in metadata.yaml) is not read: a set has one task with labels of nodes and one of link \
             prediction, or one with labels of edges, which is read if there is none of these: remove the others to read it",
            task.key()
        )));
    }
    Ok(())
}

/// Adds a note about the arrays in the `data` of a set that are not read: all but the first of each list of names.
pub(super) fn note_unread_data(set: &YamlEntry<'_>, names: &[&[&str]], notes: &mut Vec<Note>) -> Result<()> {
    let mut is_taken = vec![false; names.len()];
    let mut unread = Vec::new();
    for data in set.list_of("data")? {
        let name = data.get("name")?.map_or(Ok("without a name"), |name| name.text())?;
        let position = names.iter().position(|names| names.contains(&name));
        match position.filter(|position| !is_taken[*position]) {
            Some(position) => is_taken[position] = true,
            None => unread.push(format!("{name} ({})", data.key())),
        }
    }
    note_unread(&format!("arrays of {}", set.path().display()), &unread, notes);
    Ok(())
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

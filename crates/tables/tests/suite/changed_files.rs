//! Tables that change while they are imported: the result is that of the tables as they were opened, or an error names the file.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kiln_tables::{Import, ImportOptions};

use crate::helpers::{Tables, files};

const SPEC: &str = "
name: shop
nodes:
  - name: user
    files: [users.csv]
    key: id
    columns: [{column: age, transform: standardize}]
relations:
  - name: follows
    files: [follows.jsonl]
    src: {type: user, column: src}
    dst: {type: user, column: dst}
    weight: weight
";

/// The files whose creation is awaited, in the order of an import.
const EVENTS: [&str; 10] = [
    "set.unfinished-",
    "keys-of-",
    "relation-0-0",
    "relation-0-1",
    "relation-0-column-0",
    "features",
    "names_text",
    "indices",
    "indptr",
    "import.json",
];

/// A change of a table: its file is replaced, appended to, truncated or written in place.
const CHANGES: [fn(&Path); 4] = [
    |path| {
        let text = fs::read_to_string(path).unwrap();
        let other = path.with_extension("other");
        fs::write(&other, text.replace('7', "3")).unwrap();
        fs::rename(other, path).unwrap();
    },
    |path| File::options().append(true).open(path).unwrap().write_all(b"x").unwrap(),
    |path| File::options().write(true).open(path).unwrap().set_len(1000).unwrap(),
    |path| File::options().write(true).open(path).unwrap().write_all(b"{\"").unwrap(),
];

fn tables(folder: &Tables) {
    let n_users = 4_000;
    let users: String = (0..n_users).map(|user| format!("u{user},{}\n", user % 70)).collect();
    let edge = |edge: u32| {
        let [src, dst] = [edge % n_users, edge * 7 % n_users];
        format!("{{\"src\": \"u{src}\", \"dst\": \"u{dst}\", \"weight\": {}}}\n", edge % 9 + 1)
    };
    folder.put("users.csv", &format!("id,age\n{users}"));
    folder.put("follows.jsonl", &(0..20_000).map(edge).collect::<String>());
}

/// Returns true if a folder contains a file whose name begins with `event`, at any depth.
fn has_file(folder: &Path, event: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(event) || has_file(&entry.path(), event))
}

/// Imports tables, and changes a file when an event occurs. Returns the outcome, and true if the file was changed.
fn import_with_change(
    folder: &Tables,
    options: &ImportOptions,
    event: &str,
    change: fn(&Path),
    changed: &Path,
) -> (Result<(), String>, bool) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let changing = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if has_file(&folder.path(""), event) {
                    change(changed);
                    return true;
                }
                thread::yield_now();
            }
            false
        });
        let outcome = folder.import_with(SPEC, "set", options);
        is_done.store(true, Ordering::Relaxed);
        (outcome.map(drop).map_err(|error| error.to_string()), changing.join().unwrap())
    })
}

#[test]
fn a_file_that_changes_during_an_import_is_read_as_it_was_or_named() {
    let good = Tables::new();
    tables(&good);
    good.import(SPEC);
    let expected = files(&good.path("set"));
    let names = ["users.csv", "follows.jsonl", "set.yaml"];
    let mut n_changed = 0;
    for (name, change) in names.into_iter().flat_map(|name| CHANGES.map(|change| (name, change))) {
        for event in EVENTS {
            let folder = Tables::new();
            tables(&folder);
            let options = ImportOptions::default();
            let (outcome, was_changed) =
                import_with_change(&folder, &options, event, change, &folder.path(name));
            n_changed += usize::from(was_changed);
            match outcome {
                Ok(()) => assert!(files(&folder.path("set")) == expected, "{name} at {event}"),
                Err(error) => {
                    assert!(error.contains(name), "{name} at {event}: {error}");
                    assert!(!folder.path("set").exists(), "{name} at {event}");
                }
            }
        }
    }
    assert!(0 < n_changed, "no file was changed during an import");
}

/// The record of the earlier import is read before the tables, and once.
#[test]
fn transforms_that_change_during_an_import_are_those_that_were_opened() {
    let good = Tables::new();
    tables(&good);
    good.import(SPEC);
    let record = good.path("set").join("import.json");
    let original = fs::read(&record).unwrap();
    let options = ImportOptions {
        transforms_of: Some(Arc::new(Import::open(good.path("set")).unwrap())),
        ..ImportOptions::default()
    };
    let folder = Tables::new();
    tables(&folder);
    folder.import_with(SPEC, "set", &options).unwrap();
    let expected = files(&folder.path("set"));
    for change in CHANGES {
        // The last event is the record of this import.
        for event in &EVENTS[..9] {
            let folder = Tables::new();
            tables(&folder);
            import_with_change(&folder, &options, event, change, &record).0.unwrap();
            assert!(files(&folder.path("set")) == expected, "{event}");
            fs::write(&record, &original).unwrap();
        }
    }
}

/// The set to which rows are appended is mapped, so only a change that keeps the length can be read.
#[test]
fn a_set_that_changes_during_an_append_is_named() {
    let good = Tables::new();
    tables(&good);
    good.import_with(SPEC, "base", &ImportOptions::default()).unwrap();
    good.put("users.csv", "id,age\nx,7\n")
        .put("follows.jsonl", "{\"src\": \"x\", \"dst\": \"u7\", \"weight\": 1}\n");
    let append_to = Some(good.path("base"));
    let options = ImportOptions { append_to, ..ImportOptions::default() };
    good.import_with(SPEC, "set", &options).unwrap();
    let expected = files(&good.path("set"));
    let changed = good.path("base/features.0.npy");
    let original = fs::read(&changed).unwrap();
    let replace = |path: &Path| {
        let other = path.with_extension("other");
        fs::write(&other, vec![7; 100]).unwrap();
        fs::rename(other, path).unwrap();
    };
    let write = |path: &Path| File::options().write(true).open(path).unwrap().write_all(b"x").unwrap();
    let changes: [fn(&Path); 2] = [replace, write];
    let mut n_changed = 0;
    for (event, change) in EVENTS[..4].iter().flat_map(|event| changes.map(|change| (event, change))) {
        fs::remove_dir_all(good.path("set")).unwrap_or_default();
        let (outcome, was_changed) = import_with_change(&good, &options, event, change, &changed);
        n_changed += usize::from(was_changed);
        match outcome {
            Ok(()) => assert!(files(&good.path("set")) == expected, "{event}"),
            Err(error) => assert!(error.contains("features.0.npy"), "{event}: {error}"),
        }
        fs::write(&changed, &original).unwrap();
    }
    assert!(0 < n_changed, "no file was changed during an import");
}

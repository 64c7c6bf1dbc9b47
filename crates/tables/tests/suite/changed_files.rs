//! Tables that change while they are imported: the result is that of the tables as they were opened, or an error names the file.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kiln_tables::ImportOptions;

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

/// The temporary files whose creation is awaited, in the order of an import.
const EVENTS: [&str; 5] = ["keys-of-", "relation-0-0", "relation-0-1", "relation-0-column-0", "indptr"];

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

#[test]
fn a_table_that_changes_during_an_import_is_read_as_it_was_or_named() {
    let good = Tables::new();
    tables(&good);
    good.import(SPEC);
    let expected = files(&good.path("set"));
    for (name, change) in
        ["users.csv", "follows.jsonl"].into_iter().flat_map(|name| CHANGES.map(|change| (name, change)))
    {
        for event in EVENTS {
            let folder = Tables::new();
            tables(&folder);
            let is_done = AtomicBool::new(false);
            let outcome = thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        if has_file(&folder.path(""), event) {
                            return change(&folder.path(name));
                        }
                        thread::yield_now();
                    }
                });
                let outcome = folder.import_with(SPEC, "set", &ImportOptions::default());
                is_done.store(true, Ordering::Relaxed);
                outcome
            });
            match outcome {
                Ok(_) => assert!(files(&folder.path("set")) == expected, "{name} at {event}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(name), "{name} at {event}: {error}");
                    assert!(!folder.path("set").exists(), "{name} at {event}");
                }
            }
        }
    }
}

//! Appended rows of nodes that the set has, whose targets and split stay as they are.

use kiln_tables::{Error, ImportOptions, ImportReport};

use crate::helpers::Tables;

/// Returns the spec of a table with a target and a split.
fn spec(target: &str, split: &str) -> String {
    format!(
        "name: t
nodes:
  - name: t
    files: [t.csv]
    key: id
    columns: [{{column: x, transform: numeric}}]
    target: {{{target}}}
    split: {{{split}}}
"
    )
}

fn append(tables: &Tables, spec: &str, out: &str) -> Result<ImportReport, Error> {
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    tables.import_with(spec, out, &options)
}

const SPLIT: &str = "column: {column: part}";

/// Checks that the second row, which has no target in the set, may not get one.
fn check_late_target(target: &str, columns: &str, [first, without, late]: [&str; 3], named: &str) {
    let tables = Tables::new();
    let spec = spec(target, SPLIT);
    let header = format!("id,x,{columns},part\na,1,{first},train\n");
    tables.put("t.csv", &format!("{header}b,2,{without},val\n")).import(&spec);
    tables.put("t.csv", &format!("{header}b,2,{late},val\n"));
    let error = append(&tables, &spec, "late").unwrap_err().to_string();
    for part in [
        "with other values (1) or with a target that it does not have in the set (1)",
        &format!("row 2, column {named:?}: "),
        "expected none, because the node has no target in the set, and nodes of the set keep theirs: leave the value empty",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let dropping = spec.replace("    key: id\n", "    key: id\n    drop: [duplicate]\n");
    let report = append(&tables, &dropping, "dropped").unwrap().to_string();
    assert!(report.contains("or with a target that it does not have in the set (1)"), "{report}");
}

#[test]
fn targets_that_arrive_later_are_rejected() {
    check_late_target("class: {column: y}", "y", ["p", "", "p"], "y");
    check_late_target("regression: {columns: [y, z]}", "y,z", ["1,2", "3,", "3,4"], "z");
    check_late_target("multi_label: {column: y, separator: ';'}", "y", ["p;q", "", "q"], "y");
    // Another target than that of the node is none that arrives later.
    let tables = Tables::new();
    let spec = spec("class: {column: y}", SPLIT);
    tables.put("t.csv", "id,x,y,part\na,1,p,train\nb,2,q,val\n").import(&spec);
    tables.put("t.csv", "id,x,y,part\nb,2,p,val\n");
    let error = append(&tables, &spec, "other").unwrap_err().to_string();
    assert!(error.contains("expected the value of the node of this key in the set"), "{error}");
    assert!(!error.contains("does not have in the set"), "{error}");
}

#[test]
fn another_part_of_the_split_is_counted() {
    let tables = Tables::new();
    let spec = spec("class: {column: y}", SPLIT);
    let rows = "a,1,p,train\nb,2,q,val\nc,3,p,test\nd,4,q,\ne,5,,\nf,6,p,train\n";
    tables.put("t.csv", &format!("id,x,y,part\n{rows}")).import(&spec);
    // Others: a, c without a target, and d. The same: b. Without a part: f. Without a target in the set: e.
    let rows = "a,1,p,val\nb,2,q,val\nc,3,,train\nd,4,q,test\ne,5,,train\nf,6,p,\nnew,7,q,val\n";
    tables.put("t.csv", &format!("id,x,y,part\n{rows}"));
    let report = append(&tables, &spec, "more").unwrap();
    let appended = report.appended.as_ref().unwrap();
    assert_eq!((&appended.known_rows[..], &appended.other_parts[..]), (&[6][..], &[3][..]));
    let note = "6 rows of nodes that the set has, with the same features; another part of the split in 3 rows has no effect";
    assert!(report.to_string().contains(note), "{report}");
    assert!(report.to_string().contains("split of t: 2 train, 2 val, 1 test"), "{report}");
    assert_eq!(report.notes, [""; 0]);
}

#[test]
fn another_split_or_text_of_a_missing_value_is_noted() {
    let tables = Tables::new();
    let of_set = spec("class: {column: y}", "random: {seed: 1, train: 0.5, val: 0.25, test: 0.25}");
    tables.put("t.csv", "id,x,y\na,1,p\nb,2,q\n").import(&of_set);
    tables.put("t.csv", "id,x,y\nc,none,p\n");
    let other =
        of_set.replace("seed: 1", "seed: 2").replace("    key: id\n", "    key: id\n    missing: [none]\n");
    let notes = append(&tables, &other, "more").unwrap().notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(notes[0], "node type `t`: `missing` is [\"none\"], in the set []");
    assert!(notes[1].starts_with("node type `t`: `split` is {\"random\":{\"seed\":2,"), "{notes:?}");
    assert!(notes[1].contains(", in the set {\"random\":{\"seed\":1,"), "{notes:?}");
    // Without a split, the new rows are in no part, as the spec says.
    let without: String =
        of_set.lines().filter(|line| !line.contains("split")).map(|line| line.to_owned() + "\n").collect();
    tables.put("t.csv", "id,x,y\nd,1,p\n");
    assert_eq!(append(&tables, &without, "without").unwrap().notes, [""; 0]);
    tables.put("t.csv", "id,x,y\nd,1000,p\n");
    let report = append(&tables, &of_set, "drift").unwrap().to_string();
    assert!(report.contains("are outside of those of the import of the set, 1 to 2"), "{report}");
    let error = append(&tables, &of_set.replace("numeric", "standardize"), "failed").unwrap_err().to_string();
    assert!(error.ends_with("use the spec of the set, which is in its import.json"), "{error}");
}

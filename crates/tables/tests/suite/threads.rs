//! The written bytes do not depend on the number of threads.

use kiln_tables::ImportOptions;

use crate::helpers::{Tables, files};

const SPEC: &str = "
name: people
nodes:
  - name: person
    files: [people.csv]
    key: id
    columns:
      - {column: age, transform: standardize}
      - {column: age, transform: quantile}
      - {column: town, transform: {one_hot: {max_categories: 10}}}
      - {column: text, transform: {text: {columns: 32, max_n: 2}}}
    target: {class: {column: town}}
    split: {random: {seed: 1, train: 0.6, val: 0.2, test: 0.2}}
    drop: [duplicate, wrong_type]
  - {name: tag, from: relations}
relations:
  - name: tagged
    files: [tags.csv]
    src: {type: tag, column: tag}
    dst: {type: person, column: person}
    weight: w
    reverse: tags
    drop: [dangling]
";

#[test]
fn same_bytes_for_any_number_of_threads() {
    let tables = Tables::new();
    let n = 30_000_usize;
    let person = |row: usize| {
        let age = if row.is_multiple_of(501) {
            "?".to_owned()
        } else {
            format!("{}.{}", row * 7919 % 89, row % 10)
        };
        format!("p{},{age},town {},the {} of {}\n", row - row % 97 / 96, row % 23, row % 7, row % 11)
    };
    let people: String = (0..n).map(person).collect();
    let tags: String =
        (0..3 * n).map(|row| format!("t{},p{},{}\n", row * 31 % 1009, row * 17 % n, row % 5)).collect();
    tables.put("people.csv", &format!("id,age,town,text\n{people}"));
    tables.put("tags.csv", &format!("tag,person,w\n{tags}"));
    for n_threads in [1, 2, 4] {
        let options = ImportOptions { n_threads: Some(n_threads), ..ImportOptions::default() };
        let report = tables.import_with(SPEC, &n_threads.to_string(), &options).unwrap();
        assert_eq!(report.dropped.len(), 3, "{:?}", report.dropped);
    }
    let one = files(&tables.path("1"));
    assert!(one.len() > 10, "a set should have more than 10 files");
    for other in ["2", "4"] {
        let other = files(&tables.path(other));
        let names = |files: &[(String, Vec<u8>)]| files.iter().map(|file| file.0.clone()).collect::<Vec<_>>();
        assert_eq!(names(&one), names(&other));
        for (one, other) in one.iter().zip(&other) {
            assert!(one == other, "{} differs", one.0);
        }
    }
}

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;

use crate::archive::Archive;
use crate::features::Features;
use crate::files::DataSet;
use crate::index::Index;
use crate::packages::{Counts, Packages};
use crate::rules::Rules;
use crate::tags::Tags;
use crate::{control, make, version, write_archive, write_tags};

const SAMPLE: &str = include_str!("sample/Packages");
const SMALL: Rules =
    Rules { min_packages: 2, min_sources: 2, min_documents: 2, n_columns: 3, min_class_sources: 2 };

fn sample(text: &str) -> DataSet {
    make(&Index { origin: "the sample".to_owned(), distribution: "none", text: text.to_owned() }, SMALL)
        .unwrap()
}

/// Returns the arcs of a data set as `source -> destination: type`.
fn arcs(set: &DataSet) -> Vec<String> {
    let name = |node: u32| &set.packages.list[node as usize].name;
    let arcs = set.arcs.srcs.iter().zip(&set.arcs.dsts).zip(&set.arcs.types);
    arcs.map(|((&src, &dst), ty)| format!("{} -> {}: {ty}", name(src), name(dst))).collect()
}

#[test]
fn extracts_the_nodes_and_arcs_of_the_sample() {
    let set = sample(SAMPLE);
    let names: Vec<&str> = set.packages.list.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(names, ["editor", "editor-doc", "libedit", "orphan", "other-editor", "perl", "python3"]);
    let counts = Counts { stanzas: 10, other_architecture: 1, other_component: 1, lower_version: 1 };
    assert_eq!(set.packages.counts, counts);
    // `mail-agent` and `nowhere` have no provider and `four-ways` has four, so these names are not resolved. `one-only`
    // has one provider and `three-ways` has three. `editor` is a package, so its provider is not used. Arcs from
    // `editor` to itself are dropped.
    let expected = [
        "editor -> libedit: 0",
        "editor -> libedit: 1",
        "editor -> libedit: 2",
        "editor -> other-editor: 0",
        "editor -> other-editor: 2",
        "editor -> perl: 0",
        "editor -> python3: 0",
        "editor -> python3: 2",
        "editor-doc -> editor: 3",
        "editor-doc -> editor: 4",
        "editor-doc -> other-editor: 3",
        "python3 -> libedit: 0",
    ];
    assert_eq!(arcs(&set), expected);
    assert_eq!(set.arcs.max_degree(names.len()), 10);
}

#[test]
fn extracts_the_labels_of_the_sample() {
    let set = sample(SAMPLE);
    // The section `doc` has only one package, and `orphan` has no section.
    assert_eq!(set.labels.class_names, ["editors", "libs"]);
    assert_eq!(set.labels.classes, [0, -1, 1, -1, 0, 1, 1]);
    let in_split: Vec<bool> = set.labels.parts.iter().map(|&part| part < 3).collect();
    assert_eq!(in_split, [true, false, true, false, true, true, true]);
    assert_eq!(set.labels.part_counts(), [3, 1, 1]);
}

#[test]
fn extracts_the_tags_of_the_sample_by_node_name() {
    let index = Index { origin: "the sample".to_owned(), distribution: "none", text: SAMPLE.to_owned() };
    // `gone` is not in the index, `python3` has no tags, and `perl` is not a node of this set.
    let nodes = ["editor", "editor-doc", "gone", "libedit", "other-editor", "python3"];
    let tags = Tags::new(&index, &nodes, SMALL).unwrap();
    // `role::documentation` has one package, and `special::` and `TODO` are placeholders.
    assert_eq!(tags.names, ["interface::commandline", "role::program", "use::editing"]);
    assert_eq!(tags.nodes, [0, 1, 3, 4]);
    assert_eq!(tags.indptr, [0, 3, 3, 5, 7]);
    assert_eq!(tags.labels, [0, 1, 2, 0, 1, 1, 2]);
    // Two packages of one source package are too few.
    let of_sources = Rules { min_sources: 3, ..SMALL };
    assert_eq!(Tags::new(&index, &nodes, of_sources).unwrap().names, ["role::program"]);
}

#[test]
fn tags_are_written_for_the_names_of_an_existing_set() {
    let folder = tempfile::tempdir().unwrap();
    let (packages, out) = (folder.path().join("packages"), folder.path().join("tags"));
    sample(SAMPLE).write(&packages).unwrap();
    let index = Index { origin: "the sample".to_owned(), distribution: "none", text: SAMPLE.to_owned() };
    write_tags(&index, &packages, &out).unwrap();
    let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    // No tag of the small sample has 100 packages.
    assert_eq!((&manifest["counts"]["tagged_nodes"], &manifest["counts"]["tags"]), (&4.into(), &0.into()));
    assert_eq!(manifest["counts"]["nodes"], 7);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 4);
    let missing = write_tags(&index, &out, &out).unwrap_err();
    assert!(missing.to_string().contains("names.txt.gz"), "{missing:#}");
}

#[test]
fn extracts_the_sources_and_maintainers_of_the_sample_by_node_name() {
    let index = Index { origin: "the sample".to_owned(), distribution: "none", text: SAMPLE.to_owned() };
    // `gone` is not in the index, and `orphan` is not a node of this set.
    let nodes = "editor\neditor-doc\ngone\nlibedit\nother-editor\nperl\npython3\n";
    let archive = Archive::new(&index, nodes, SMALL).unwrap();
    assert_eq!(archive.source_names, ["editor-suite", "libedit", "other-editor", "perl", "python3"]);
    assert_eq!(archive.sources, [0, 0, u32::MAX, 1, 2, 3, 4]);
    // The addresses are a@person.example, `no address` and team@editors.example, of which the case does not matter.
    assert_eq!(archive.maintainers, [2, 0, 2, 0, 1]);
    // The manual of the editor is in `doc`, which does not count.
    assert_eq!(archive.class_names, ["editors", "libs"]);
    assert_eq!(archive.classes, [0, 1, 0, 1, 1]);
    assert_eq!(archive.part_counts(), [3, 1, 1]);
    let of_three = Rules { min_class_sources: 3, ..SMALL };
    let archive = Archive::new(&index, nodes, of_three).unwrap();
    assert_eq!(
        (&*archive.class_names, &*archive.classes),
        (&["libs".to_owned()][..], &[-1, 0, -1, 0, 0][..])
    );
    let none = Archive::new(&index, "gone\n", SMALL).unwrap_err().to_string();
    assert_eq!(none, "the index has none of the packages of the data set");
    let anonymous = SAMPLE.replace("Maintainer: A. Person <a@person.example>\n", "");
    let anonymous = Archive::new(&Index { text: anonymous, ..index }, nodes, SMALL).unwrap_err().to_string();
    assert_eq!(anonymous, "perl of the source perl has no field Maintainer");
}

#[test]
fn section_of_a_source_is_that_of_most_packages_that_count() {
    let cases = [
        // `libdevel` and `doc` do not count, unless there is nothing else.
        ("s", "a=libdevel b=libdevel c=libs", "libs"),
        ("s", "a=libdevel b=doc c=doc", "doc"),
        ("s", "a=net b=utils c=utils", "utils"),
        // The package with the name of the source decides between equals, and otherwise the order of the names.
        ("b", "a=net b=utils", "utils"),
        ("s", "a=utils b=net", "net"),
        ("a", "a=doc b=utils c=net", "net"),
        ("a", "a=web b=utils c=utils", "utils"),
    ];
    for (source, packages, expected) in cases {
        let stanza = |package: &str| {
            let (name, section) = package.split_once('=').unwrap();
            format!(
                "Package: {name}\nSource: {source}\nVersion: 1\nArchitecture: all\nMaintainer: m\nSection: {section}\n\n"
            )
        };
        let text = packages.split(' ').map(stanza).collect();
        let names = packages.split(' ').map(|package| format!("{}\n", package.split('=').next().unwrap()));
        let index = Index { origin: "a test".to_owned(), distribution: "none", text };
        let rules = Rules { min_class_sources: 1, ..SMALL };
        let archive = Archive::new(&index, &names.collect::<String>(), rules).unwrap();
        assert_eq!(archive.class_names, [expected], "{source}: {packages}");
    }
}

#[test]
fn archive_is_written_for_the_names_of_an_existing_set() {
    let folder = tempfile::tempdir().unwrap();
    let (packages, out) = (folder.path().join("packages"), folder.path().join("archive"));
    sample(SAMPLE).write(&packages).unwrap();
    let index = Index { origin: "the sample".to_owned(), distribution: "none", text: SAMPLE.to_owned() };
    let files = || {
        write_archive(&index, &packages, &out).unwrap();
        let entries = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect::<BTreeMap<_, _>>()
    };
    let first = files();
    assert_eq!(first.len(), 6);
    assert_eq!(first, files());
    let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    // No section of the small sample has 100 sources.
    assert_eq!((&manifest["counts"]["sources"], &manifest["counts"]["classes"]), (&6.into(), &0.into()));
    assert_eq!(manifest["counts"]["maintainers"], 4);
}

#[test]
fn extracts_the_words_of_the_sample() {
    let Features { word_indptr, words, idf, word_vectors, scales, n_columns } = sample(SAMPLE).features;
    // The words are c++, editor, for, libraries, programs, small and text, each in at least two lines.
    let expected: [&[u16]; 7] =
        [&[1, 2, 4, 5, 6], &[1, 5, 6], &[0, 2, 3, 4], &[], &[1, 3, 6], &[], &[0, 2, 3, 4]];
    assert_eq!(words, expected.concat());
    assert_eq!(word_indptr, [0, 5, 8, 12, 12, 15, 15, 19]);
    let weight = |n: f64| ((8.0 / (1.0 + n)).ln() + 1.0) as f32;
    assert_eq!(idf, [2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 3.0].map(weight));
    assert_eq!((n_columns, scales.len(), word_vectors.len()), (3, 7, 21));
    assert!(word_vectors.chunks_exact(3).all(|row| row.iter().any(|value| value.abs() == 127)));
}

/// Returns the vector of a word, multiplied by its scale.
fn vector(features: &Features, word: usize) -> Vec<f64> {
    let row = &features.word_vectors[word * features.n_columns..][..features.n_columns];
    row.iter().map(|&value| f64::from(value) * f64::from(features.scales[word])).collect()
}

#[test]
fn word_vectors_are_orthonormal_and_diagonalise_the_gram_matrix() {
    let features = sample(SAMPLE).features;
    // The error of a value is at most half a scale, and no scale exceeds 1 / 127.
    const ROUNDING: f64 = 0.03;
    let (n_words, dim) = (features.idf.len(), features.n_columns);
    let vectors: Vec<Vec<f64>> = (0..n_words).map(|word| vector(&features, word)).collect();
    let mut energies = vec![0.0; dim];
    for (i, j) in (0..dim).flat_map(|i| (0..dim).map(move |j| (i, j))) {
        let dot: f64 = vectors.iter().map(|vector| vector[i] * vector[j]).sum();
        assert!((dot - f64::from(i == j)).abs() < ROUNDING, "columns {i} and {j} have the product {dot}");
        let mut product = 0.0;
        for range in features.word_indptr.windows(2) {
            let words = &features.words[range[0] as usize..range[1] as usize];
            let norm: f64 = words.iter().map(|&word| f64::from(features.idf[word as usize]).powi(2)).sum();
            let value = |column: usize| -> f64 {
                words
                    .iter()
                    .map(|&word| f64::from(features.idf[word as usize]) * vectors[word as usize][column])
                    .sum()
            };
            product += if norm > 0.0 { value(i) * value(j) / norm } else { 0.0 };
        }
        match i == j {
            true => energies[i] = product,
            false => assert!(
                product.abs() < ROUNDING * 5.0,
                "columns {i} and {j} of the features have the product {product}"
            ),
        }
    }
    assert!(
        energies.windows(2).all(|pair| pair[1] < pair[0]),
        "the columns should have descending squared norms: {energies:?}"
    );
}

#[test]
fn output_does_not_depend_on_line_ends_or_stanza_order() {
    let expected = sample(SAMPLE).contents();
    assert_eq!(sample(&SAMPLE.replace('\n', "\r\n")).contents(), expected);
    let mut stanzas: Vec<&str> = SAMPLE.trim_end().split("\n\n").collect();
    stanzas.reverse();
    assert_eq!(sample(&stanzas.join("\n\n")).contents(), expected);
}

#[test]
fn generating_twice_gives_identical_files() {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let files = folders.each_ref().map(|folder| {
        sample(SAMPLE).write(folder.path()).unwrap();
        let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap()))
            .collect::<BTreeMap<_, _>>()
    });
    assert_eq!(files[0].len(), 12);
    assert_eq!(files[0], files[1]);
}

#[test]
fn reads_a_gzipped_index() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Packages.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(SAMPLE.as_bytes()).unwrap();
    fs::write(&path, encoder.finish().unwrap()).unwrap();
    let index = Index::from_file(&path).unwrap();
    assert_eq!(index.text, SAMPLE);
    assert_eq!(index.origin, "the file Packages.gz");
}

#[test]
fn no_source_package_spans_two_parts_of_the_split() {
    // The squares modulo 60 assign the 300 packages to 12 sources with 10 to 40 packages each.
    let mut text = String::new();
    for package in 0..300 {
        let source = (package * package) % 60;
        let section = if package % 2 == 0 { "even" } else { "odd" };
        text += &format!("Package: p{package}\nSource: s{source} (1)\nVersion: 1\nArchitecture: all\n");
        text += &format!("Section: {section}\nDescription: some words here\n\n");
    }
    let set = sample(&text);
    let mut part_of = BTreeMap::new();
    for (package, part) in set.packages.list.iter().zip(&set.labels.parts) {
        assert_eq!(
            part_of.entry(package.source.as_str()).or_insert(part),
            &part,
            "source {}",
            package.source
        );
    }
    let counts = set.labels.part_counts();
    assert_eq!(counts.iter().sum::<usize>(), 300);
    assert!(counts.iter().all(|&n| n >= 30), "{counts:?}");
}

#[test]
fn rejects_broken_indices() {
    let cases = [
        ("Package: a\nVersion: 1\n", "the stanza at line 1 has no field Architecture"),
        ("\n\nPackage: a\nArchitecture: all\n", "the stanza at line 3 has no field Version"),
        ("Version: 1\nArchitecture: all\n", "the stanza at line 1 has no field Package"),
        ("Package: a\nno field\n", "line 2 has no colon: \"no field\""),
        (" continued\n", "line 1 continues a field, but there is no field above it"),
        ("Package: a\npackage: b\n", "line 2: duplicate field package in its stanza"),
        ("", "none of the 0 stanzas has the architecture amd64 or all and the component main"),
    ];
    for (text, expected) in cases {
        assert_eq!(Packages::parse(text).unwrap_err().to_string(), expected, "for {text:?}");
    }
}

#[test]
fn relation_names_omit_versions_and_qualifiers() {
    let value = "a (>= 1) | b:any, c [amd64] <!nocheck>,\n d(<<2),, e";
    assert_eq!(control::relation_names(value).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
}

#[test]
fn maintainers_differ_by_their_addresses() {
    let cases = [("A B <c@D>", "c@d"), ("c@d", "c@d"), ("\"A <B>\" <c@d> (x)", "c@d"), ("A <b", "a <b")];
    for (value, expected) in cases {
        assert_eq!(control::address(value), expected, "{value}");
    }
}

#[test]
fn versions_sort_as_in_debian() {
    let ascending = [
        "0~1",
        "0",
        "0.1",
        "1.0~~",
        "1.0~~a",
        "1.0~",
        "1.0",
        "1.0-0.1",
        "1.0-1~bpo1",
        "1.0-1",
        "1.0-1+b1",
        "1.0-2",
        "1.0a",
        "1.0+dfsg",
        "1.2",
        "1.10",
        "1:0.1",
        "2:0",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(version::compare(a, b), i.cmp(&j), "{a} and {b}");
        }
    }
    assert_eq!(version::compare("1.01", "1.1"), Ordering::Equal);
    assert_eq!(version::compare("0:1", "1"), Ordering::Equal);
}

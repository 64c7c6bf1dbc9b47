//! Links and fixed negatives in the kiln format.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, LinkSplit, format, open};
use kiln_graph::{LinkId, LinkNegatives};

use crate::common::{contents, put};
use crate::link_formats::npy_folder;
use crate::link_graphbolt::graphbolt_folder;

#[test]
fn kiln_format_keeps_links_and_negatives() {
    let root = tempfile::tempdir().unwrap();
    let out = |name: &str| root.path().join(name);
    for (name, folder) in [("npy", npy_folder()), ("graphbolt", graphbolt_folder())] {
        let (at, written) = (folder.path(), out(&format!("{name}-written")));
        let data = open(at).unwrap();
        let mut unnamed = data.clone();
        unnamed.targets.as_mut().unwrap().class_names = Vec::new();
        format::write(&unnamed, &written).unwrap();
        let again = format::open(&written).unwrap();
        assert_eq!(again.links, data.links);
        assert_eq!(again.hash().unwrap(), data.hash().unwrap());
        assert_eq!(format::verify(&written).unwrap().notes, []);
        // The conversion writes the same bytes, except for the name in the manifest.
        let converted = out(&format!("{name}-converted"));
        convert(at, &converted, &ConvertOptions::default()).unwrap();
        assert_eq!(contents(&converted), contents(&written));
        let copied = out(&format!("{name}-copied"));
        convert(&written, &copied, &ConvertOptions::default()).unwrap();
        assert_eq!(contents(&copied), contents(&written));
        // The folder opens without its manifest, too.
        fs::remove_file(copied.join("kiln.json")).unwrap();
        assert_eq!(open(&copied).unwrap().links, data.links);
    }
}

#[test]
fn rejects_damaged_links_in_the_kiln_format() {
    let root = tempfile::tempdir().unwrap();
    let source = npy_folder();
    let set = root.path().join("set");
    convert(source.path(), &set, &ConvertOptions::default()).unwrap();
    let manifest = fs::read_to_string(set.join("kiln.json")).unwrap();
    let check = |from: &str, to: &str, expected: &str| {
        assert!(manifest.contains(from), "{manifest}");
        fs::write(set.join("kiln.json"), manifest.replace(from, to)).unwrap();
        let error = format::open(&set).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("\"link_dsts.npy\"", "\"labels2.npy\"", "labels2.npy");
    check("\"test_negatives.npy\"", "\"test_negative_srcs.npy\"", "test_negatives.npy");
    fs::write(set.join("kiln.json"), &manifest).unwrap();
    // Another link of the same length: opening does not read the values, but verifying and using them does.
    let path = set.join("val_links.npy");
    let valid = fs::read(&path).unwrap();
    let mut bytes = valid.clone();
    *bytes.last_mut().unwrap() = 1;
    fs::write(&path, &bytes).unwrap();
    assert!(format::verify(&set).unwrap_err().to_string().contains("SHA-256"));
    let data = format::open(&set).unwrap();
    let error = LinkSplit::of_dataset(&data, &Default::default(), 0).unwrap_err().to_string();
    assert!(
        error.contains("the val split contains link 16777221 at position 2, expected a link id below 8"),
        "{error}"
    );
    assert_eq!(data.validate().unwrap_err().to_string(), error);
    fs::remove_file(set.join("kiln.json")).unwrap();
    for edited in [vec![3_u32, 4, 2], vec![3, 4, 4], vec![3, 4, 8]] {
        put(&set, "val_links.npy", &edited, &[3]);
        let error = open(&set).unwrap_err().to_string();
        assert!(error.contains("val_links.npy: entry 2 is "), "{error}");
    }
    fs::write(set.join("kiln.json"), &manifest).unwrap();
    fs::write(&path, valid).unwrap();
    // Negatives of other links cannot be written.
    let negatives = LinkNegatives::of_dsts((0..8).map(LinkId).collect::<Vec<_>>(), 1, vec![0_u32; 8]);
    let data = format::open(&set).unwrap();
    let targets = (*data.links.as_ref().unwrap().targets)
        .clone()
        .with_negatives(Some(negatives.unwrap()), None)
        .unwrap();
    let data = Dataset { links: Some(Arc::new(targets).into()), ..data };
    let error = format::write(&data, root.path().join("other")).unwrap_err().to_string();
    assert!(
        error.contains("the links of the fixed negatives is others, expected those of their part"),
        "{error}"
    );
}

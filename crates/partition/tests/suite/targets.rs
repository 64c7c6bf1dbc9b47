//! Partitions of sets with several labels per node or with regression targets, with one node type and with several.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{Dataset, DatasetTargets};
use kiln_feature::{Labels, TargetKind, TargetValues, Targets};
use kiln_graph::NodeId;
use kiln_partition::{Part, part_dir};
use kiln_store::npy;
use serde_json::Value;

use crate::common::{VALUES, contents, parts_with_values, set_with_values, write_typed};
use crate::damage::{check_edited_in, check_forged_in};

/// Returns the bytes of target values.
fn bytes(targets: &Targets) -> Vec<u8> {
    let Targets::Values(values) = targets else { panic!("{targets:?}") };
    match values.as_labels() {
        Some(labels) => labels.to_vec(),
        None => values.as_numbers().unwrap().iter().flat_map(|number| number.to_le_bytes()).collect(),
    }
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("part.json")).unwrap()).unwrap()
}

/// Except for the targets and the manifest, the files are those of a set with classes.
#[test]
fn partitions_contain_target_values() {
    for (layout, kind) in VALUES {
        let mut data = set_with_values(layout, kind);
        let names = ["first".to_owned(), "second".to_owned()];
        data.targets.as_mut().unwrap().class_names = names.to_vec();
        let expected = data.targets.clone().unwrap();
        let n_nodes = expected.values.len();
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("parts");
        write_typed(&data, 2, |node| node as usize % 2, None, &out);
        let classes = Targets::from(Labels::new(vec![0; n_nodes], 2));
        let classes = DatasetTargets::new(expected.node_type, classes, expected.split.clone());
        let class_parts = root.path().join("classes");
        let class_data = Dataset { targets: Some(classes), ..data.clone() };
        write_typed(&class_data, 2, |node| node as usize % 2, None, &class_parts);
        for index in 0..2 {
            let folder = part_dir(&out, index);
            let part = Part::open(&folder).unwrap();
            assert_eq!(Part::verify(&folder).unwrap().notes, [], "{layout:?} {kind}");
            let found = part.targets.unwrap();
            assert_eq!((found.values.kind(), bytes(&found.values)), (kind, bytes(&expected.values)));
            assert_eq!((found.values.n_outputs(), found.node_type), (2, expected.node_type));
            assert_eq!((found.split, &found.class_names[..]), (expected.split.clone(), &names[..]));
            assert_eq!(manifest(&folder)["format"], 3);
            assert_eq!(
                manifest(&part_dir(&class_parts, index))["format"],
                if data.is_heterogeneous() { 1 } else { 2 }
            );
            let mut files = contents(&folder);
            let mut others = contents(&part_dir(&class_parts, index));
            assert!(files.remove("targets.npy").is_some() && others.remove("labels.npy").is_some());
            files.remove("part.json");
            others.remove("part.json");
            assert!(files == others, "{layout:?} {kind}");
        }
    }
}

#[test]
fn verify_reports_file_and_position_of_invalid_target_values() {
    for (layout, kind) in VALUES {
        let data = set_with_values(layout, kind);
        let targets = data.targets.as_ref().unwrap();
        let shape = [targets.values.len(), 2];
        let first = data.target_nodes().start;
        let train = targets.split.train.clone();
        let row = (train[1].0 - first) as usize;
        let missing =
            format!("train.npy: train split entry 1 is node {}, expected a node that has a", train[1].0);
        let Targets::Values(values) = &targets.values else { panic!("{kind}") };
        let (_root, folder) = parts_with_values(layout, kind);
        let (_other, other) = parts_with_values(layout, kind);
        match kind {
            TargetKind::MultiLabel => {
                let mut labels = values.as_labels().unwrap().to_vec();
                labels[2 * row..][..2].fill(TargetValues::<NodeId>::MISSING);
                check_forged_in(&other, "targets.npy", &labels, &shape, &missing);
                labels[5] = 2;
                let expected =
                    "targets.npy: a target of node 2 is 2 in column 1, expected 0, 1 or 255 (missing)";
                check_forged_in(&folder, "targets.npy", &labels, &shape, expected);
            }
            _ => {
                let mut numbers = values.as_numbers().unwrap().to_vec();
                numbers[2 * row..][..2].fill(f32::NAN);
                check_forged_in(&other, "targets.npy", &numbers, &shape, &missing);
                numbers[5] = f32::INFINITY;
                let expected =
                    "targets.npy: a target of node 2 is inf in column 1, expected a finite number or NaN";
                check_forged_in(&folder, "targets.npy", &numbers, &shape, expected);
            }
        }
    }
}

#[test]
fn open_rejects_inconsistent_manifests_of_target_values() {
    for (layout, kind) in VALUES {
        let n_nodes = set_with_values(layout, kind).targets.unwrap().values.len();
        let shape = format!("files.targets.npy.shape is [{n_nodes}, 2], expected [{n_nodes}, 3]");
        let labels = npy::write(&vec![0_i32; n_nodes], &[n_nodes]);
        let entry = format!(
            "\"labels.npy\": {{\"dtype\": \"i32\", \"shape\": [{n_nodes}], \"sha256\": \"{}\"}},",
            kiln_store::sha256(&labels)
        );
        for (from, to, expected) in [
            ("\"format\": 3", "\"format\": 4", "the set has format 4, expected 3"),
            ("\"n_classes\": 2", "\"n_classes\": 3", &*shape),
            (
                "\"n_classes\": 2",
                "\"n_classes\": 0",
                "n_classes is 0, expected at least 1, the number of columns of targets.npy",
            ),
            (
                "\"targets.npy\"",
                &*format!("{entry} \"targets.npy\""),
                "files is both, expected labels.npy or targets.npy",
            ),
            ("\"targets.npy\"", "\"labels.npy\"", "files.labels.npy"),
        ] {
            let (_root, folder) = parts_with_values(layout, kind);
            fs::write(folder.join("labels.npy"), &labels).unwrap();
            check_edited_in(&folder, from, to, expected);
        }
    }
}

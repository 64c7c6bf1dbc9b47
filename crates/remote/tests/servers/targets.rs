//! Targets of all kinds: a client has those of the whole set, from servers and from a local partition.

use kiln_data::{Dataset, DatasetTargets};
use kiln_feature::{TargetValues, Targets};

use crate::cluster::{Cluster, hubs, parts, wild};
use crate::heterogeneous::shop;

/// The number of columns, with which the numbers of a set do not fit in one message.
const N_COLUMNS: usize = 300;

/// Returns the targets of a set, and several labels and numbers in their place, of which every fifth value is missing.
fn all_kinds(targets: &DatasetTargets) -> [DatasetTargets; 3] {
    let values = 0..(targets.values.len() * N_COLUMNS) as u64;
    let labels = values
        .clone()
        .map(|value| if wild(value).is_multiple_of(5) { u8::MAX } else { (wild(value) % 2) as u8 });
    let numbers =
        values.map(|value| if wild(value).is_multiple_of(5) { f32::NAN } else { wild(value) as f32 });
    let labels = TargetValues::multi_label(labels.collect::<Vec<u8>>(), N_COLUMNS).unwrap();
    let numbers = TargetValues::regression(numbers.collect::<Vec<f32>>(), N_COLUMNS).unwrap();
    [targets.values.clone(), labels.into(), numbers.into()].map(|values| {
        let class_names = (0..values.n_outputs()).map(|column| format!("column {column}")).collect();
        DatasetTargets { values, class_names, ..targets.clone() }
    })
}

/// Returns the bits of all targets.
fn bits(targets: &Targets) -> Vec<u32> {
    match targets {
        Targets::Classes(labels) => labels.as_slice().iter().map(|&class| class as u32).collect(),
        Targets::Values(values) => match values.as_labels() {
            Some(labels) => labels.iter().map(|&label| label.into()).collect(),
            None => values.as_numbers().unwrap().iter().map(|number| number.to_bits()).collect(),
        },
    }
}

#[test]
fn clients_have_the_targets_of_the_whole_set() {
    for data in [hubs(), shop()] {
        for targets in all_kinds(data.targets.as_ref().unwrap()) {
            let data = Dataset { targets: Some(targets.clone()), ..data.clone() };
            let parts = parts(&data, 2, |node| node as usize % 2, None);
            for own in [None, Some(1)] {
                let cluster = Cluster::of(&parts, own, Default::default());
                let found = cluster.graph.targets().unwrap();
                assert_eq!(found.values.kind(), targets.values.kind(), "{}, local {own:?}", data.name);
                assert!(bits(&found.values) == bits(&targets.values), "{}, local {own:?}", data.name);
                assert_eq!(found.values.n_outputs(), targets.values.n_outputs());
                assert_eq!((found.node_type, &found.split), (targets.node_type, &targets.split));
                assert_eq!(found.class_names, targets.class_names);
            }
        }
    }
}

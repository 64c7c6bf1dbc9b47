//! The keys of the names of nodes, which partitions of heterogeneous graphs have.

use kiln_data::NodeNames;

use crate::cluster::{Cluster, parts, wild};
use crate::heterogeneous::{N_SHOPS, N_USERS, shop, ways};

/// Without a local partition, servers have all keys; with one, they have the others.
#[test]
fn keys_of_nodes_are_those_of_their_names() {
    let mut data = shop();
    let without = Cluster::of(&parts(&data, 2, |node| node as usize % 2, None), None, Default::default());
    assert_eq!(without.graph.node_keys(0).unwrap(), None);
    let names: Vec<String> = (0..N_USERS).map(|user| format!("user {}", wild(u64::from(user)))).collect();
    data.names[0] = NodeNames::new(names.iter().map(String::as_str)).into();
    // Shops do not begin at node 0.
    data.features[2] = None;
    let shops: Vec<String> = (0..N_SHOPS).map(|shop| format!("shop {}", wild(u64::from(shop)))).collect();
    data.names[2] = NodeNames::new(shops.iter().map(String::as_str)).into();
    // The rows of a single partition are in the order of the ids.
    let only = parts(&data, 1, |_| 0, None);
    let expected = [0, 2]
        .map(|node_type: usize| only[0].types[node_type].keys.as_deref().unwrap().as_chunks().0.to_vec());
    assert_eq!(expected.each_ref().map(Vec::len), [N_USERS as usize, N_SHOPS as usize]);
    for (n_parts, owner) in ways() {
        let parts = parts(&data, n_parts, owner, None);
        for own in std::iter::once(None).chain((0..n_parts).map(Some)) {
            let cluster = Cluster::of(&parts, own, Default::default());
            let found = [0, 2].map(|node_type| cluster.graph.node_keys(node_type).unwrap().unwrap());
            assert_eq!(found, expected, "{n_parts} {own:?}");
            assert_eq!(cluster.graph.node_keys(1).unwrap(), None);
            assert_eq!(cluster.graph.node_keys(7).unwrap(), None);
        }
    }
}

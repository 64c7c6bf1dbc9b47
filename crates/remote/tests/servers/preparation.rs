//! The preparation of the data, which servers send to clients.

use std::sync::Arc;

use kiln_partition::Part;
use kiln_remote::DistGraph;

use crate::cluster::{addresses, config, hubs, parts, serve};

#[test]
fn clients_receive_the_preparation_of_the_data() {
    for data in [hubs(), hubs().standardize().unwrap()] {
        let parts = parts(&data, 1, |_| 0, None);
        let mut unknown = Part::clone(&parts[0]);
        unknown.preparation = None;
        for (part, expected) in [(&parts[0], Some(&data.preparation)), (&Arc::new(unknown), None)] {
            let servers = [serve(part)];
            let graph = DistGraph::connect(config(addresses(&servers))).unwrap();
            assert_eq!(graph.preparation(), expected);
        }
    }
}

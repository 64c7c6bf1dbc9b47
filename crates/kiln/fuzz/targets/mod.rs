//! The body of the fuzz target: opens a run folder and predicts with its model. The fuzzer and `tests/suite/corpus.rs` run it.
//!
//! An input is `model.json`, and after the line `==> best.safetensors <==` the weights. The invariants: nothing panics, every error
//! has a message of a sensible length, and a model that opens predicts a row per node or says why it does not.
#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

use std::error::Error;
use std::fs;

use kiln::comm::error_text;
use kiln::data::Dataset;
use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;

/// The line between the description and the weights.
const WEIGHTS: &[u8] = b"\n==> best.safetensors <==\n";

/// The maximum length of a message of an error, in bytes.
const MAX_MESSAGE: usize = 20_000;

/// The largest number of feature columns for which data is made.
const MAX_FEATURES: usize = 64;

const N_NODES: u32 = 12;

/// Opens a model, and returns true if it is valid.
pub(crate) fn model(input: &[u8]) -> bool {
    let root = tempfile::tempdir().unwrap();
    let at = input.windows(WEIGHTS.len()).position(|bytes| bytes == WEIGHTS);
    let (info, weights) = match at {
        Some(at) => (&input[..at], &input[at + WEIGHTS.len()..]),
        None => (input, &[][..]),
    };
    fs::write(root.path().join("model.json"), info).unwrap();
    fs::write(root.path().join("best.safetensors"), weights).unwrap();
    let model = match SavedModel::open(root.path()) {
        Ok(model) => model,
        Err(error) => {
            check_message(&error);
            return false;
        }
    };
    let inputs = &model.info().inputs;
    if MAX_FEATURES < inputs.n_features {
        return true;
    }
    let data = if inputs.graph.is_some() { typed() } else { plain(inputs.n_features) };
    match model.on_nodes(&data) {
        Err(error) => check_message(&error),
        Ok(predictor) => match predictor.predict(&[NodeId(0), NodeId(5)], &PredictMode::default()) {
            Err(error) => check_message(&error),
            Ok(rows) => assert_eq!(rows.classes().len(), 2, "a row per node"),
        },
    }
    true
}

/// Nodes in a ring.
fn plain(n_features: usize) -> Dataset {
    let nodes: Vec<u32> = (0..N_NODES).collect();
    let next: Vec<u32> = nodes.iter().map(|node| (node + 1) % N_NODES).collect();
    let builder = Dataset::builder(N_NODES as usize).edges(&nodes, &next);
    let builder = match n_features {
        0 => builder,
        dim => builder.features(vec![0.5; N_NODES as usize * dim], dim),
    };
    builder.build().unwrap()
}

/// The graph of the heterogeneous models of the corpus: users with an age, who buy items.
fn typed() -> Dataset {
    let users: Vec<u32> = (0..N_NODES).collect();
    let items: Vec<u32> = users.iter().map(|user| user % 4).collect();
    let types = NodeTypes::new([("user", N_NODES as usize), ("item", 4)]).unwrap();
    Dataset::builder_with_types(types)
        .relation(RelationEdges::new("buys", "user", "item", &users, &items))
        .relation(RelationEdges::new("bought", "item", "user", &items, &users))
        .nodes("user")
        .features(vec![0.5; N_NODES as usize], 1)
        .build()
        .unwrap()
}

fn check_message(error: &(dyn Error + 'static)) {
    let message = error_text(error);
    assert!(!message.is_empty() && message.len() < MAX_MESSAGE, "a message of {} bytes", message.len());
}

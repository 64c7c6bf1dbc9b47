//! Tests of the table of models of nodes: a model of each name trains on nodes and on links, and its run is opened as a saved
//! model.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::path::Path;

use kiln::DataDims;
use kiln::graph::{EdgeColumn, NodeTypes};
use kiln::nn::{BlockModel, GraphMetadata, GraphRequirements};
use kiln::prelude::*;
use kiln::train::{ConfigVisitor, ModelRegistry, NamedModel, NodeModelEntry, node_models};

use crate::relation::relation;

/// The width of the rows that an encoder of links computes.
const WIDTH: usize = 4;

/// The kinds of saved models that no name selects: models of graphs, and a model of nodes that the command line replaces.
const WITHOUT_NAME: [&str; 3] = ["gin", "link-typed-sage", "typed-sage"];

/// Returns a graph of 40 nodes in two classes, whose edges have one of two types and two features.
fn plain() -> Dataset {
    let srcs: Vec<u32> = (0..160).map(|edge| (7 * edge + 3) % 40).collect();
    let dsts: Vec<u32> = (0..160).map(|edge| edge % 40).collect();
    let types: Vec<u8> = (0..160).map(|edge| (edge % 2) as u8).collect();
    let ids = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<_>>();
    Dataset::builder(40)
        .edges(&srcs, &dsts)
        .edge_types(&types)
        .edge_features(vec![0.5; 320], 2)
        .features(vec![0.25; 120], 3)
        .labels((0..40).map(|node| node % 2).collect::<Vec<i32>>(), 2)
        .split(ids(0..20), ids(20..30), ids(30..40))
        .build()
        .unwrap()
}

/// Returns users without features who buy items of two classes.
fn shop() -> Dataset {
    let users: Vec<u32> = (0..120).map(|edge| edge % 20).collect();
    let items: Vec<u32> = (0..120).map(|edge| (7 * edge + edge / 40) % 40).collect();
    let ids = |range: std::ops::Range<u32>| range.collect::<Vec<u32>>();
    Dataset::builder_with_types(NodeTypes::new([("user", 20), ("item", 40)]).unwrap())
        .relation(relation("buys", ["user", "item"], &users, &items))
        .relation(relation("bought by", ["item", "user"], &items, &users))
        .nodes("item")
        .features(vec![0.5; 80], 2)
        .nodes("item")
        .labels((0..40).map(|item| item % 2).collect::<Vec<i32>>(), 2)
        .split(ids(0..20).clone(), ids(20..30).clone(), ids(30..40).clone())
        .build()
        .unwrap()
}

/// Returns a model of two layers.
fn model(name: &str, d_in: usize, d_out: usize, graph: &GraphMetadata) -> NamedModel {
    NamedModel::new(name, d_in, d_out).graph(graph.clone()).option("n_layers", 2).option("hidden", 8)
}

/// Trains for an epoch and opens the run. Returns the kind of the saved model.
fn train<C: ModelConfig, L: DataLoader<C::Model>>(config: C, loader: &L, out: &Path) -> String {
    let fit = FitConfig::epochs(1).out(out).quiet();
    let trained = Trainer::new(config, AdamConfig::new(1e-2)).fit(loader, fit).unwrap();
    assert_eq!(trained.report.n_epochs, 1);
    SavedModel::open(out).unwrap().info().kind.clone()
}

/// The training of a model on nodes.
struct OnNodes<'a>(&'a NeighborLoader, &'a Path);

impl ConfigVisitor for OnNodes<'_> {
    type Output = String;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> String {
        train(config, self.0, self.1)
    }
}

/// The training of an encoder on links.
struct OnLinks<'a>(&'a LinkNeighborLoader, &'a Path);

impl ConfigVisitor for OnLinks<'_> {
    type Output = String;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, encoder: C) -> String {
        train(LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }, self.0, self.1)
    }
}

/// Returns a loader of the blocks that a model requires.
fn suited(loader: NeighborLoader, requirements: &GraphRequirements) -> NeighborLoader {
    let loader = match requirements {
        requirements if requirements.gcn_norm => loader.gcn_norm().unwrap(),
        requirements if requirements.self_loops => loader.add_self_loops().unwrap(),
        _ => loader,
    };
    let loader = if requirements.n_relations.is_some() { loader.edge_types() } else { loader };
    if requirements.d_edge.is_some() { loader.edge_features() } else { loader }
}

/// Trains a model on a graph with one type of nodes, whose edges have types or features. Returns the kinds of the saved models.
fn on_one_type(entry: &NodeModelEntry, graph: &GraphMetadata, folder: &Path) -> [String; 2] {
    let data = if graph.d_edge.is_some() { plain() } else { plain().without_edge_rows().unwrap() };
    let model = |d_out: usize| {
        let model = model(entry.name, 3, d_out, graph);
        match entry.can_read_edge_features(false) && graph.d_edge.is_some() {
            true => model.edge_features(),
            false => model,
        }
    };
    let requirements = model(2).requirements().unwrap();
    assert_eq!(requirements.d_edge, graph.d_edge);
    let nodes = NeighborLoader::new(&data, [3, 3]).batch_size(8).workers(0);
    let nodes = suited(nodes, &requirements);
    let split = LinkSplit::of_dataset(&data, &LinkSplitConfig::default(), 3).unwrap();
    let links = LinkNeighborLoader::new(nodes.clone(), &split).unwrap();
    let of_nodes = model(2).configure(OnNodes(&nodes, &folder.join("nodes")));
    let of_links = model(WIDTH).configure(OnLinks(&links, &folder.join("links")));
    [of_nodes.unwrap(), of_links.unwrap()]
}

/// Trains a model on a heterogeneous graph, with the features of its edges or without. Returns the kinds of the saved models.
fn on_several_types(entry: &NodeModelEntry, reads_features: bool, folder: &Path) -> [String; 2] {
    let data = shop();
    let rows = EdgeColumn::new(vec![0.5_f32; 360], 3).unwrap();
    let data = if reads_features { data.with_edge_column(1, "features", rows).unwrap() } else { data };
    let metagraph = data.graph.metagraph();
    let graph = GraphMetadata {
        n_relations: Some(metagraph.n_relations()),
        metagraph: Some(metagraph),
        widths: Some(data.dims()),
        edge_widths: data.edge_widths(),
        ..GraphMetadata::default()
    };
    let model = |d_out: usize| {
        let model = model(entry.name, 8, d_out, &graph);
        if reads_features { model.edge_features() } else { model }
    };
    let loader = || {
        let loader = NeighborLoader::new(&data, [3, 3]).batch_size(8).workers(0);
        if reads_features { loader.edge_features_by_relation() } else { loader }
    };
    let nodes = loader();
    let config = LinkSplitConfig::default();
    let split = LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &config, 3).unwrap();
    let links = LinkNeighborLoader::new(loader(), &split).unwrap();
    let of_nodes = model(2).configure(OnNodes(&nodes, &folder.join("nodes")));
    let of_links = model(WIDTH).configure(OnLinks(&links, &folder.join("links")));
    [of_nodes.unwrap(), of_links.unwrap()]
}

#[test]
fn each_name_trains_on_nodes_and_links_and_its_model_is_opened() {
    let mut kinds = BTreeSet::new();
    for entry in node_models() {
        let folder = tempfile::tempdir().unwrap();
        assert!(entry.one_type || entry.several_types, "{}", entry.name);
        if entry.one_type {
            let types = GraphMetadata { n_relations: Some(2), ..GraphMetadata::default() };
            let [of_nodes, of_links] = on_one_type(&entry, &types, &folder.path().join("types"));
            // A model that reads ages has an encoder; the tests of times train it.
            kinds.extend([format!("typed-{of_nodes}"), format!("link-typed-{of_nodes}"), of_nodes, of_links]);
        }
        if entry.can_read_edge_features(false) {
            let features =
                GraphMetadata { d_edge: Some(2), n_relations: Some(2), ..GraphMetadata::default() };
            kinds.extend(on_one_type(&entry, &features, &folder.path().join("features")));
        }
        if entry.several_types {
            kinds.extend(on_several_types(&entry, false, &folder.path().join("typed")));
        }
        if entry.can_read_edge_features(true) {
            kinds.extend(on_several_types(&entry, true, &folder.path().join("typed-features")));
        }
    }
    kinds.extend(WITHOUT_NAME.map(str::to_owned));
    let registered: BTreeSet<String> = ModelRegistry::default().kinds().map(str::to_owned).collect();
    assert_eq!(kinds, registered);
}

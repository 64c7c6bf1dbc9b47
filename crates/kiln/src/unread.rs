//! Notes on parts of the data that no batch carries to the model.

use std::collections::BTreeMap;

use kiln_data::{GraphDataset, NodeFeatures};
use kiln_graph::EdgeColumns;
use kiln_train::{NodeModelEntry, node_models};

use crate::source::Source;

/// What is known of the models of graphs: none of them reads anything of an edge but its ends.
const NO_MODEL: &str = "none of kiln's models of such graphs does";

/// Returns a note for each column of the edges of the data that the batches do not carry.
pub(crate) fn notes_on_columns(data: &dyn Source, carries: impl Fn(&str) -> bool) -> Vec<String> {
    let has_several_types = data.is_heterogeneous();
    let mut unread: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (relation, columns) in data.schema().relations().iter().zip(data.edge_columns()) {
        for column in columns.into_iter().filter(|column| !carries(column)) {
            unread.entry(column).or_default().push(&relation.name);
        }
    }
    let mut notes = Vec::with_capacity(unread.len());
    for (column, relations) in unread {
        let of_relations = match has_several_types {
            true => format!(" of `{}`", relations.join("`, `")),
            false => String::new(),
        };
        let readers = readers_of(&column, has_several_types);
        notes.push(format!("the model does not read the edge column `{column}`{of_relations}: {readers}"));
    }
    notes
}

/// Returns which models of nodes and links read an edge column.
fn readers_of(column: &str, has_several_types: bool) -> String {
    let [always, with_option] = match column {
        EdgeColumns::WEIGHTS => [
            models(has_several_types, |model| model.requirements.edge_weights),
            models(has_several_types, |model| model.options.contains_key("edge_weighting")),
        ],
        EdgeColumns::TYPES => {
            [models(has_several_types, |model| model.requirements.n_relations.is_some()), String::new()]
        }
        EdgeColumns::FEATURES => [models(has_several_types, |model| model.edge_features), String::new()],
        _ => Default::default(),
    };
    match (always.is_empty(), with_option.is_empty()) {
        (true, true) => NO_MODEL.to_owned(),
        (false, true) => format!("{always} can"),
        (true, false) => format!("{with_option} can, with edge weighting"),
        (false, false) => format!("{always} does, and {with_option} with edge weighting"),
    }
}

fn models(has_several_types: bool, reads: impl Fn(&NodeModelEntry) -> bool) -> String {
    let mut names = Vec::new();
    for model in node_models() {
        let is_of_graph = if has_several_types { model.several_types } else { model.one_type };
        if is_of_graph && reads(&model) {
            names.push(model.name);
        }
    }
    names.join(", ")
}

/// Returns a note for each part of the graphs of a set that a model with node features of this kind does not read. If the kind is
/// unknown, nodes have no note.
pub(crate) fn notes_on_graphs(graphs: &GraphDataset, kind: Option<NodeFeatures>) -> Vec<String> {
    let mut notes = Vec::new();
    for column in graphs.graph().columns().names() {
        notes.push(format!("the model does not read the edge column `{column}`: {NO_MODEL}"));
    }
    let Some(kind) = kind else { return notes };
    let has_labels = graphs.node_labels().is_some_and(|labels| 0 < labels.n_classes());
    let parts = [
        ("labels", has_labels, NodeFeatures::Labels),
        ("features", graphs.features().is_some(), NodeFeatures::Stored),
    ];
    for (part, is_there, reader) in parts {
        if is_there && graphs.node_features_kind(kind) != reader {
            notes.push(format!(
                "the model does not read the {part} of the nodes: node features of the kind `{}` are these",
                reader.name()
            ));
        }
    }
    notes
}

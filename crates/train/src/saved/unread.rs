//! Notes on columns of edges that no batch carries to the model.

use std::collections::BTreeMap;

use kiln_graph::{EdgeColumns, GraphSchema};

use crate::saved::models::{NodeModelEntry, node_models};

/// Returns a note for each column of the edges of a graph that batches do not carry, with the models that read it. `columns` are
/// the names of the columns of each relation, `has_several_types` is true for a heterogeneous graph, and `carries` returns true for
/// the name of a column that batches carry.
pub fn notes_on_edge_columns(
    schema: &GraphSchema,
    columns: &[Vec<String>],
    has_several_types: bool,
    carries: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut unread: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (relation, columns) in schema.relations().iter().zip(columns) {
        for column in columns.iter().filter(|column| !carries(column)) {
            unread.entry(column).or_default().push(&relation.name);
        }
    }
    let mut notes = Vec::with_capacity(unread.len());
    for (column, relations) in unread {
        let of_relations = match has_several_types {
            true => format!(" of `{}`", relations.join("`, `")),
            false => String::new(),
        };
        let readers = readers_of(column, has_several_types);
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
        EdgeColumns::FEATURES => return readers_of_features(has_several_types),
        _ => Default::default(),
    };
    match (always.is_empty(), with_option.is_empty()) {
        (true, true) => "none of kiln's models of such graphs does".to_owned(),
        (false, true) => format!("{always} can"),
        (true, false) => format!("{with_option} can, with edge weighting"),
        (false, false) => format!("{always} does, and {with_option} with edge weighting"),
    }
}

/// Returns which models read edge features, and which do if they are asked to.
fn readers_of_features(has_several_types: bool) -> String {
    let always = models(has_several_types, |model| model.edge_features);
    let with_option = models(has_several_types, |model| {
        !model.edge_features && model.can_read_edge_features(has_several_types)
    });
    match always.is_empty() {
        true => format!("{with_option} can, with edge features as input"),
        false => format!("{always} does, and {with_option} with edge features as input"),
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

use crate::{did_you_mean, similar_name};

/// An error in the node types and relations of a graph, or in a request for one of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A graph was described without any type of nodes.
    #[error("a graph needs at least one type of nodes")]
    NoTypes,
    /// A name is empty or not unique.
    #[error("invalid {what} `{name}`: {reason}")]
    BadName {
        /// The noun for what has the name, for the message.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason why it is invalid, for the message.
        reason: &'static str,
    },
    /// A relation refers to a type of nodes that does not exist.
    #[error("there is no node type `{name}`, expected one of {}{}", known.join(", "), suggestion(name, known))]
    NoSuchType {
        /// The name of the type, or its number.
        name: String,
        /// The names of all types.
        known: Vec<String>,
    },
    /// A graph has no relation of this name.
    #[error("the data has no relation `{name}`, expected one of: {}{}", known.join(", "), suggestion(name, known))]
    NoSuchRelation {
        /// The unknown name.
        name: String,
        /// The names of the relations.
        known: Vec<String>,
    },
    /// A relation of a metagraph is between types that do not exist.
    #[error(
        "relation {relation} refers to node type {node_type}, but there are {n_types} types, numbered from 0"
    )]
    TypeOutOfRange {
        /// The position of the relation.
        relation: usize,
        /// The type that does not exist.
        node_type: usize,
        /// The number of types.
        n_types: usize,
    },
    /// A node is in no range of the node types.
    #[error("node {node} has no type: the types have {n_nodes} nodes, numbered from 0")]
    NodeWithoutType {
        /// The node id.
        node: u32,
        /// The number of nodes of all types.
        n_nodes: usize,
    },
}

/// Returns the end of a message about an unknown name.
fn suggestion(name: &str, known: &[String]) -> String {
    did_you_mean(similar_name(name, known.iter().map(String::as_str)))
}

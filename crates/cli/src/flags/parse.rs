//! Parsers of flag values. Each returns the value, or a message with the expected values.

use clap::builder::TypedValueParser;
use kiln::Messages;
use kiln::comm::MasterAddress;
use kiln::data::NodeFeatures;
use kiln::graph::{ByRelation, ByRelationError};
pub(crate) use kiln_usage::{
    choice, describe_range, host, join_words, learning_rate, name_of, non_negative, positive, rate, share,
    size, whole,
};

/// Returns the parser of `--messages`.
pub(crate) fn messages() -> impl TypedValueParser<Value = Messages> {
    choice(Messages::NAMED)
}

/// Returns the parser of `--node-features`.
pub(crate) fn node_features() -> impl TypedValueParser<Value = NodeFeatures> {
    choice(NodeFeatures::ALL.map(|kind| (kind.name(), kind.meaning(), kind)))
}

/// Parses a text for all relations, and others for some by name.
pub(crate) fn texts_by_relation(text: &str) -> Result<ByRelation<String>, ByRelationError> {
    ByRelation::parse(text, |value| Ok(value.to_owned()))
}

/// Parses the address of a server.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let parsed = text.parse::<MasterAddress>().map(|_| text.to_owned());
    parsed.map_err(|_| "expected HOST:PORT, such as node1:7400 or [::1]:7400".into())
}

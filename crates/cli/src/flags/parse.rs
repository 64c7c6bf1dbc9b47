//! Parsers of flag values. Each returns the value, or a message with the expected values.

use clap::builder::TypedValueParser;
use kiln::comm::MasterAddress;
use kiln::data::NodeFeatures;
use kiln::train::TrainingLength;
pub(crate) use kiln_usage::{
    choice, describe_range, host, join_words, learning_rate, name_of, non_negative, positive, rate, share,
    size, whole,
};

/// Returns the parser of `--node-features`.
pub(crate) fn node_features() -> impl TypedValueParser<Value = NodeFeatures> {
    choice(NodeFeatures::ALL.map(|kind| {
        let help = match kind {
            NodeFeatures::Auto => "The stored features, else the node labels, else a constant",
            NodeFeatures::Stored => "The stored features",
            NodeFeatures::Labels => "One-hot node labels",
            NodeFeatures::Degrees => "One-hot node degrees",
            NodeFeatures::Constant => "The number 1",
        };
        (kind.name(), help, kind)
    }))
}

/// Parses the address of a server.
pub(crate) fn address(text: &str) -> Result<String, String> {
    match text.parse::<MasterAddress>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected HOST:PORT, such as node1:7400 or [::1]:7400".into()),
    }
}

/// Parses a length of training: a number of steps, or of epochs with the suffix `epochs`.
pub(crate) fn length(text: &str) -> Result<TrainingLength, String> {
    let length = match text.strip_suffix("epochs") {
        Some(n_epochs) => size(n_epochs).map(TrainingLength::Epochs),
        None => size(text).map(TrainingLength::Steps),
    };
    length.map_err(|_| "expected a number of steps of at least 1, or of epochs, such as `2epochs`".into())
}

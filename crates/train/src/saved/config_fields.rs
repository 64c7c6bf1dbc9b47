use kiln_nn::ModelConfig;
use serde_json::{Map, Value};

/// Returns the fields of a configuration, with their values in JSON.
pub(crate) fn config_fields<C: ModelConfig>(config: &C) -> serde_json::Result<Map<String, Value>> {
    serde_json::from_value(serde_json::to_value(config)?)
}

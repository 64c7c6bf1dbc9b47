//! Tests of the program `kiln` as its users run it.

mod attention_and_relations;
mod bf16;
mod book;
mod cora;
mod data;
mod description;
mod distributed_sage;
#[cfg(feature = "tables")]
mod edges;
mod empty_splits;
mod fanouts;
#[cfg(feature = "tables")]
mod fraud;
mod full_disk;
mod graph_classification;
mod inputs;
mod killed;
mod library;
mod links;
mod lost_files;
mod meaning;
#[cfg(feature = "tables")]
mod mistakes;
mod misuse;
mod names;
mod node_classification;
#[cfg(feature = "tables")]
mod one_node_type;
#[path = "../partitioned/mod.rs"]
mod partitioned;
mod predict;
mod predict_answers;
#[cfg(feature = "tables")]
mod predict_appended;
mod predict_links;
mod predict_non_finite;
mod predict_ranks;
mod predict_requests;
#[cfg(feature = "tables")]
mod predict_typed;
#[cfg(feature = "tables")]
mod predict_typed_links;
mod predict_typed_parts;
mod resume;
mod runs;
mod sampling;
#[cfg(feature = "tables")]
mod shop;
mod sweep;
mod targets;
mod times;
mod training_options;
mod typed;
mod typed_link_parts;
mod weights;

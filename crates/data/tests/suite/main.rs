//! Tests of reading, converting, building and validating data sets of every format, including invalid ones.

mod builder;
#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod convert;
mod convert_folders;
mod dataset_format;
mod debian;
mod debian_tags;
mod edge_feature_files;
mod edge_features;
mod edge_lists;
mod format;
mod format_damage;
mod gin;
mod graph_dataset;
mod graphbolt;
mod hash;
mod link_formats;
mod link_graphbolt;
mod link_kiln_format;
mod link_pairs;
mod link_split;
mod mutag;
mod node_features;
mod npy_folder;
mod ogb;
mod synthetic;
mod targets;
mod tu;
mod typed;
mod typed_damage;
mod typed_format;
mod typed_graphbolt;
mod typed_hash;
mod unreachable;

//! Tests of the import of tables.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod append;
mod append_known;
mod append_rejected;
mod bad_rows;
mod changed_files;
mod codecs;
mod csv_fields;
mod csv_forms;
mod drift;
mod edge_columns;
mod edge_features;
mod edge_targets;
mod formats;
mod helpers;
mod keys;
mod layouts;
mod matches;
mod missing;
mod plan;
mod programs;
mod proposal;
mod proposal_events;
mod record;
mod row_writer;
mod rows;
mod schema;
mod spec;
mod streams;
mod summaries;
mod targets;
mod threads;
mod times;
mod transforms;
mod undirected;
mod values;

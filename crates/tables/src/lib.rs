//! Heterogeneous data sets from tables: Parquet, Arrow, CSV and JSON lines.
//!
//! - [`import()`] reads a spec ([`ImportSpec`], YAML) and the tables that it names, and writes a heterogeneous set in the kiln
//!   format: keys become node ids, columns become features, targets and a split, and tables of keys become relations.
//! - [`propose_spec`] writes a first spec of tables, with a comment on each choice.
//! - [`plan()`] and [`plan_append`] report what an import would do, without reading rows.
//! - [`Import`] is the record of an import in its set: [`Import::transform`] transforms new rows with the stored statistics,
//!   and [`ImportOptions::transforms_of`] imports new tables with them.
//! - [`ImportOptions::append_to`] appends the rows of new tables to a set, so that its nodes keep their edges.
//! - [`RowWriter`] writes predictions to a Parquet file.
//!
//! The crate knows no tensors, no samplers and no training. Parquet's codecs besides zstd are
//! features: `snappy`, `gzip` and `lz4` are defaults, and `brotli` is not. All are written in Rust. Only programs depend on the crate, behind a
//! feature, because Parquet's readers would triple the dependencies of `kiln-data`.
//!
//! ```
//! use kiln_data::Dataset;
//! use kiln_tables::{ImportOptions, import};
//! let root = tempfile::tempdir()?;
//! let put = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
//! put("users.csv", "id,age\nanna,30\nben,\n")?;
//! put("buys.csv", "user,item\nben,book\nanna,book\nanna,pen\n")?;
//! put(
//!     "spec.yaml",
//!     "name: shop
//! nodes:
//!   - name: user
//!     files: [users.csv]
//!     key: id
//!     columns: [{column: age, transform: standardize}]
//!   - {name: item, from: relations}
//! relations:
//!   - name: buys
//!     files: [buys.csv]
//!     src: {type: user, column: user}
//!     dst: {type: item, column: item}
//!     reverse: bought by
//! ",
//! )?;
//! let set = root.path().join("set");
//! import(root.path().join("spec.yaml"), &set, &ImportOptions::default())?;
//! let data = Dataset::open(&set)?;
//! // The second column of the users is 1 where the age is missing.
//! assert_eq!(data.dims(), [Some(2), None]);
//! assert_eq!(data.names[1].get(kiln_graph::NodeId(0)), Some("book"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory
//! The heap usage of an import is at most [`ImportOptions::memory_bytes`]:
//!
//! | data | bytes |
//! |---|---|
//! | the ids of a table's rows, if any row is dropped | up to 5/16 per row |
//! | the keys of a node type, or of one of at most 250 partitions | 20 per key, and its text |
//! | later, the offsets of a relation's edges | 8 per node of the destinations' type |
//! | one bucket of edges | the remainder, as in [`kiln_data::convert`] |
//! | batches of rows, pages and buffers | 16 MiB |
//! | the longest row of a text file, if the limit is at least 64 MiB | up to a quarter of the limit |
//! | the largest page and the dictionary of each column of a Parquet file, beyond 8 MiB | as the headers of the pages state |
//! | the wanted columns of the largest record batch of an Arrow file and their dictionaries, beyond 8 MiB | as the metadata states, twice for texts and lists |
//! | three times the window of a frame of zstd, and 1 MiB | as its header states |
//! | before the keys, the different values of categories, classes and `quantile` | up to half of the limit |
//!
//! A batch ends after about 1 MiB of its columns in memory, and has at least one row. Rows of text files have at most 1 MiB, or
//! from a limit of 64 MiB on 1/32 of it, up to 16 MiB; a field counts 16 bytes more in CSV, and 64 in JSON. The sizes of pages
//! are checked before the Parquet library reads them: pages that it decompresses to their end (gzip, brotli) are decompressed
//! twice for it. A batch of texts has at most 4 MiB by the longest text of a dictionary and the sizes of pages, so that a column with
//! the encoding `DELTA_BYTE_ARRAY` is read in small batches. What a limit cannot hold is [`Error::Memory`] with the file, the
//! row and a limit that is sufficient.
//!
//! Rows of lists in a Parquet file are bounded by their average length in a row group only. On disk, temporary files
//! beside the output take the keys of all node types, 8 bytes per row of a relation, and 4 more per column of its edges, with their feature columns; and, if keys
//! are partitioned, the keys of all relations of the type.
//!
//! # Determinism
//! The written bytes depend on the spec and the tables only, not on the number of threads or the memory limit.

mod appended_spec;
mod bad_rows;
mod drift;
mod earlier;
mod edge_features;
mod edge_items;
mod edges;
mod error;
mod feature_columns;
mod fitted_node_type;
mod fitted_relation;
mod hash;
mod held_out_edges;
mod import;
mod imported_split;
mod join;
mod key;
mod key_file;
mod key_index;
mod known_edges;
mod known_nodes;
mod known_rows;
mod known_set;
mod node_table;
mod node_writer;
mod options;
mod plan;
mod proposal;
mod record;
mod record_summary;
mod row_ids;
mod row_writer;
mod spec;
mod spec_tables;
mod spill;
mod spilled_features;
mod split;
mod table;
mod target;
mod task_rows;
mod times;
mod transform;

pub use bad_rows::{BadRow, BadRowKind, BadRows};
pub use drift::{ColumnDrift, DriftKind};
pub use error::{EarlierImportError, Error, Result, SpecError, TableFileError};
pub use fitted_node_type::FittedNodeType;
pub use fitted_relation::FittedRelation;
pub use hash::hash_bytes;
pub use import::import;
pub use imported_split::ImportedSplit;
pub use options::{AppendedCounts, ImportOptions, ImportReport};
pub use plan::{ImportPlan, PlannedColumn, PlannedNodeType, PlannedRelation, PlannedTask, plan, plan_append};
pub use proposal::{Proposal, ProposalOptions, propose_spec};
pub use record::{AppendedTables, DroppedCount, Import, TransformedRows};
pub use row_writer::{OutputColumn, RowWriter};
pub use spec::{
    ColumnSpec, ColumnTransform, CsvSpec, EdgeColumnSpec, EndSpec, ImportSpec, KeyType, NgramUnit,
    NodeOrigin, NodeTypeSpec, RelationSpec, SplitSpec, TargetSpec, TaskSpec, TimeBorder, TimePart,
    TimeQuantiles, TimeSpec, TimeSplitSpec, TimeUnit,
};
pub use target::FittedTarget;
pub use task_rows::FittedTask;
pub use transform::{FittedColumn, FittedTransform, NumberStats, TimeStats};

/// The README, so that the doc tests run its example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

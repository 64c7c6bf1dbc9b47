use std::fmt;
use std::path::{Path, PathBuf};

use kiln_comm::{EXIT_FAILED, EXIT_RETRY, RankError, TransientError};

use crate::{ItemTimesError, LinkLoaderError, PartitionsError};

/// The errors of this crate: inconsistent settings, interruptions and the errors of the crates that it combines.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The numbers of fanouts and layers differ.
    #[error(
        "the loader has {n_fanouts} fanouts, but the model has {n_layers} layers: pass one fanout per layer, or call \
         .layers({n_fanouts}) on the model's config"
    )]
    FanoutsMismatch {
        /// The number of fanouts of the loader.
        n_fanouts: usize,
        /// The number of layers of the model.
        n_layers: usize,
    },
    /// A heterogeneous dataset has no targets.
    #[error(
        "the data `{name}` has no targets: add labels or other targets of one type of nodes, and a split"
    )]
    NoTargets {
        /// The name of the dataset.
        name: String,
    },
    /// A heterogeneous dataset was partitioned for its links, without targets of nodes.
    #[error(
        "the partitions of `{name}` have no targets: train on links (--task link), or \
         partition a dataset that has targets"
    )]
    NoLabelsInPartitions {
        /// The name of the dataset.
        name: String,
    },
    /// The model was created for other types of nodes or relations than those of the data.
    #[error(
        "the model was created for another metagraph than that of the data: call .metagraph(&data.graph.metagraph()) on its config"
    )]
    OtherMetagraph,
    /// The model reads the types or the relations of a heterogeneous graph, but the loader's graph has one type of nodes.
    #[error(
        "the model is for heterogeneous graphs, but the loader's graph has one type of nodes: use a model without \
         HeteroModelConfig and relations, or a heterogeneous dataset"
    )]
    HeterogeneousModel,
    /// The loader's graph has several types of nodes or relations with names, which the model does not read.
    #[error(
        "the loader's graph is heterogeneous, but the model reads one type of nodes: wrap its config, as in \
         HeteroModelConfig::new(data.dims(), config), or load data.to_homogeneous()? if there is one type"
    )]
    HomogeneousModel,
    /// The operation is not possible on a heterogeneous graph.
    #[error(
        "{what} needs a graph with one type of nodes, because {reason}: do not use {what} on a heterogeneous graph, or \
         convert data with one type of nodes (`kiln data convert --homogeneous`)"
    )]
    NeedsOneType {
        /// The name of the operation, for the message.
        what: &'static str,
        /// The reason, as a clause.
        reason: &'static str,
    },
    /// The number of fanouts of a relation differs from the loader's number of layers.
    #[error("the relation `{name}` has {got} fanouts, expected {expected}, one per layer")]
    FanoutsOfRelation {
        /// The name of the relation.
        name: String,
        /// The number of layers.
        expected: usize,
        /// The number of fanouts.
        got: usize,
    },
    /// The model reads edge weights that the loader's blocks do not have.
    #[error(
        "the model reads edge weights, but the loader has none: call .gcn_norm()? or .edge_weights() on it"
    )]
    NoEdgeWeights,
    /// The model reads edge types that the loader's blocks do not have.
    #[error("the model reads edge types, but the loader's blocks have none: call .edge_types() on it")]
    NoEdgeTypes,
    /// The graph has edge types that the model does not have.
    #[error(
        "the graph has {n_edge_types} edge types, but the model has {n_relations} relations: create its config with at \
         least {n_edge_types}"
    )]
    TooManyEdgeTypes {
        /// The number of edge types: one more than the largest.
        n_edge_types: usize,
        /// The number of relations of the model.
        n_relations: usize,
    },
    /// The model reads edge features that the loader's blocks do not have.
    #[error("the model reads edge features, but the loader's blocks have none: call .edge_features() on it")]
    NoEdgeFeatures,
    /// The loader is to gather edge features that its data does not have.
    #[error(
        "the loader's graph has no edge features: set them with Dataset::builder(..).edge_features(), or use a model of edge \
         types; for links, create the split by LinkSplit::of_dataset"
    )]
    DataWithoutEdgeFeatures,
    /// The edge features belong to another graph, for example because self loops were added to theirs.
    #[error(
        "the data has edge features for {n_rows} edges, but the loader's graph has {n_edges}: add self loops or reverse \
         edges, with features, before the dataset is built"
    )]
    EdgeFeatureRows {
        /// The number of feature rows.
        n_rows: u64,
        /// The number of edges of the loader's graph.
        n_edges: u64,
    },
    /// The edge features have other numbers of columns than the model reads, or those of relations are not padded.
    #[error(
        "the edge features have {} columns, but the model reads {}: create its configuration for the columns of the data; of a \
         heterogeneous graph, let the loader gather edge features by relation",
        list_widths(got),
        list_widths(expected)
    )]
    EdgeFeatureWidths {
        /// The number of columns that the model reads, or that of each relation; `None` for a relation without features.
        expected: Vec<Option<usize>>,
        /// The number of columns of the features of each relation.
        got: Vec<Option<usize>>,
    },
    /// The model needs a self loop on each node, and the loader does not add or keep them.
    #[error(
        "the model needs a self loop on each node, but the loader does not add and keep them: call .add_self_loops()? \
         on it"
    )]
    NoSelfLoops,
    /// The links were split from another graph than that of the loader.
    #[error(
        "the split of links has a graph of {n_nodes} nodes, expected the {expected} nodes of the loader's data: create \
         the loader from the data that was split"
    )]
    OtherGraph {
        /// The number of nodes of the split's graph.
        n_nodes: usize,
        /// The number of nodes of the loader's data.
        expected: usize,
    },
    /// The links were split from another heterogeneous graph than that of the loader.
    #[error(
        "the split of links has other types of nodes or relations than the data `{name}`: create the loader from the data \
         that was split"
    )]
    OtherRelations {
        /// The name of the loader's data.
        name: String,
    },
    /// The operation is not possible on a partitioned graph.
    #[error("{what} needs the whole graph: open the dataset instead of its partitions, or do not use {what}")]
    NeedsWholeGraph {
        /// The name of the operation, for the message.
        what: &'static str,
    },
    /// Links without a message graph were given to a loader of a whole graph.
    #[error(
        "links without a message graph need a loader of a partitioned graph, got one of a whole graph: pass their split, a \
         LinkSplit"
    )]
    NeedsPartitionedGraph,
    /// The settings or the data of a loader of links do not suit each other.
    #[error(transparent)]
    Links(#[from] LinkLoaderError),
    /// Partitions lack what an operation needs.
    #[error(transparent)]
    Partitions(#[from] PartitionsError),
    /// Items cannot be sampled at their own times.
    #[error(transparent)]
    ItemTimes(#[from] ItemTimesError),
    /// Ranks on other machines cannot reach servers of this process.
    #[error("{reason}")]
    NoAddress {
        /// The reason.
        reason: String,
    },
    /// A feature cache was configured for sampling on the host, where the device gathers no features.
    #[error("a feature cache needs a device that samples: use --graph-mode device or zero-copy")]
    CacheNeedsDevice,
    /// The settings of a rank differ from those of rank 0.
    #[error(
        "the settings of rank {rank} differ from those of rank 0: expected {expected}, got {got}: start all ranks with \
         the same settings"
    )]
    SettingsDiffer {
        /// The lowest rank whose settings differ from those of rank 0.
        rank: usize,
        /// The settings of rank 0.
        expected: String,
        /// The settings of `rank`.
        got: String,
    },
    /// The text is not a number of ranks.
    #[error("expected a whole number from 1 to {most}, or `auto`, got `{text}`")]
    InvalidRankCount {
        /// The text.
        text: String,
        /// The largest valid number.
        most: usize,
    },
    /// A collective was called after the body of [`launch`](crate::launch) had returned.
    #[error(
        "the ranks have exited: call collectives, including the methods of a trained model, in the body of `launch`"
    )]
    RanksEnded,
    /// The run was stopped, and has written a checkpoint.
    #[error("the run was stopped after {n_epochs} epochs and {n_steps} steps: {}", how_to_resume(folder.as_deref()))]
    Interrupted {
        /// The number of complete epochs.
        n_epochs: usize,
        /// The number of completed steps of the interrupted epoch.
        n_steps: usize,
        /// The run's folder; `None` on ranks other than 0 if the folder was numbered automatically.
        folder: Option<PathBuf>,
    },
    /// A dataset could not be opened or built.
    #[error(transparent)]
    Data(#[from] kiln_data::Error),
    /// A graph is not valid.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// The sampler's settings do not fit the graph.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// The device does not exist or is not supported by this build.
    #[error(transparent)]
    Device(#[from] kiln_kernels::DeviceError),
    /// The graph or the features do not fit the device.
    #[error(transparent)]
    Upload(#[from] kiln_kernels::UploadError),
    /// Training or evaluation failed, or its settings are out of range.
    #[error(transparent)]
    Train(#[from] kiln_train::Error),
    /// A partitioned graph could not be used.
    #[cfg(feature = "grpc")]
    #[error(transparent)]
    Remote(#[from] kiln_remote::Error),
    /// A partition could not be used.
    #[error(transparent)]
    Partition(#[from] kiln_partition::Error),
    /// A file of predictions could not be written.
    #[error(transparent)]
    Predictions(#[from] kiln_predictions::Error),
    /// Tables could not be imported.
    #[cfg(feature = "tables")]
    #[error(transparent)]
    Tables(#[from] kiln_tables::Error),
    /// A collective failed.
    #[error(transparent)]
    Comm(#[from] kiln_comm::Error),
    /// A rank failed, or the ranks could not be joined.
    #[error(transparent)]
    Rank(#[from] kiln_comm::RankError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An error of the calling program.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

fn how_to_resume(folder: Option<&Path>) -> String {
    match folder {
        Some(folder) => format!("continue it with .resume({folder:?})"),
        None => "continue it with .resume() of its folder, the newest in `runs`".to_owned(),
    }
}

/// The error of a batch in a loop of one's own.
impl From<kiln_loader::Error> for Error {
    fn from(error: kiln_loader::Error) -> Self {
        Self::Train(error.into())
    }
}

impl Error {
    /// Returns true if a retry may succeed without changes to the program, its settings or its data. An error of the program's own
    /// is one if it is a [`TransientError`].
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Interrupted { .. } => true,
            Self::Train(error) => error.is_transient(),
            Self::Predictions(error) => error.is_transient(),
            Self::Other(error) => error.is::<TransientError>(),
            _ => false,
        }
    }
}

impl Error {
    /// Returns the exit status for a process that fails with this error: [`EXIT_RETRY`] if a retry may succeed, the
    /// status of the join error if the ranks could not be joined, and otherwise 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Rank(error) => match error.exit_status() {
                // Ranks that are threads fail with status 1, as a program without ranks does.
                EXIT_FAILED if !matches!(error, RankError::Join(_)) => 1,
                status => status,
            },
            _ if self.is_transient() => EXIT_RETRY,
            _ => 1,
        }
    }
}

/// Formats the message and its causes, because a `main` that returns an error prints it with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&kiln_comm::error_text(self))
    }
}

/// Lists numbers of columns, such as `3, no, 1`.
fn list_widths(widths: &[Option<usize>]) -> String {
    let mut texts = Vec::with_capacity(widths.len());
    for width in widths {
        texts.push(width.map_or_else(|| "no".to_owned(), |width| width.to_string()));
    }
    texts.join(", ")
}

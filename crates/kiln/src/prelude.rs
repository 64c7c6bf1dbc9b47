//! The items that most training programs need: `use kiln::prelude::*`.

pub use kiln_data::{Dataset, GraphDataset, NodeFeatures, Split};
pub use kiln_graph::{GraphId, NodeId};
pub use kiln_loader::Phase;
pub use kiln_nn::{
    Aggregate, GcnConfig, GinConfig, JumpingKnowledge, ModelConfig, Normalization, SageConfig,
};
pub use kiln_sample::{EdgeWeights, Fanout, Rule};
pub use kiln_train::{AdamConfig, LrSchedule, Metric, PredictMode, SavedModel, SgdConfig, TrainingLength};

#[cfg(feature = "grpc")]
pub use crate::PartitionedGraph;
pub use crate::{
    DataLoader, Error, EvalMode, FitConfig, ForData, GraphLoader, GraphMode, NeighborLoader,
    PredictOnDataset, RankConfig, RankHandle, Result, TrainedModel, Trainer, launch,
};

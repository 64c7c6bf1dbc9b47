//! The items that most training programs need: `use kiln::prelude::*`.

pub use kiln_data::{
    Dataset, GraphDataset, LinkDirection, LinkSplit, LinkSplitConfig, NodeFeatures, Split, TypedDataset,
    TypedLinkSplit,
};
pub use kiln_graph::{GraphId, NodeId};
pub use kiln_kernels::Devices;
pub use kiln_loader::{LinkExclusion, Phase};
pub use kiln_nn::{
    Aggregate, AttentionKind, EdgeInput, GatConfig, GcnConfig, GinConfig, GineConfig, HgtConfig,
    JumpingKnowledge, LinkDecoderConfig, LinkLoss, LinkModelConfig, ModelConfig, Normalization, RgcnConfig,
    RsageConfig, SageConfig, TypedModelConfig, WeightInit,
};
pub use kiln_sample::{EdgeWeights, Fanout, Negatives, RelationFanouts, Rule, UniformNegatives};
pub use kiln_train::{
    AdamConfig, LrSchedule, Metric, PredictMode, SavedModel, SgdConfig, TopKConfig, TrainingLength,
};

#[cfg(feature = "grpc")]
pub use crate::PartitionedGraph;
pub use crate::{
    DataLoader, Error, EvalMode, FitConfig, ForData, GraphLoader, GraphMode, LinkNeighborLoader,
    NeighborLoader, PredictOnDataset, RankConfig, RankCount, RankHandle, Result, TrainedModel, Trainer,
    TypedLinkNeighborLoader, TypedNeighborLoader, device_count, launch,
};

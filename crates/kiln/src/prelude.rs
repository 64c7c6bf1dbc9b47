//! What a program that trains needs: `use kiln::prelude::*`.

pub use kiln_data::{Dataset, Split};
pub use kiln_graph::NodeId;
pub use kiln_loader::Phase;
pub use kiln_nn::{Aggregate, GcnConfig, ModelConfig, SageConfig};
pub use kiln_sample::{EdgeWeights, Fanout, Rule};
pub use kiln_train::AdamConfig;

pub use crate::{
    Error, FitConfig, ForData, GraphMode, NeighborLoader, RankConfig, RankHandle, Result, TrainedModel,
    Trainer, launch,
};

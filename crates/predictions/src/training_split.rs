use kiln_data::{GraphDataset, HashedPart, Split};
use kiln_feature::FeatureStore;
use kiln_graph::GraphId;
use kiln_train::SavedModel;

use crate::Result;

/// Returns the split by which `kiln train` divided a set of graphs without a split of its own, by the seed of the run; no graphs for
/// a set that is not that of the training. `features` are the node features that the model reads.
///
/// # Errors
/// Returns [`crate::Error::Data`] if the set cannot be read.
pub fn split_of_training(
    model: &SavedModel,
    data: &GraphDataset,
    features: &dyn FeatureStore,
) -> Result<Split<GraphId>> {
    let split = Split::random(data.n_graphs(), [0.8, 0.1], model.info().evaluation.seed)?;
    let hash = data.hash_of(Some((features, &split)), HashedPart::All(&mut || Ok(())))?;
    Ok(if model.is_of_data(&hash) { split } else { Split::default() })
}

use std::sync::Arc;

use kiln_data::{Dataset, GraphDataset};
use kiln_feature::FeatureStore;
use kiln_graph::GraphId;
use kiln_train::{ModelError, NodePredictor, OutputRows, SavedModel};

use crate::Result;

/// Predictions of a [`SavedModel`] on datasets.
///
/// ```no_run
/// use kiln::prelude::*;
/// let model = SavedModel::open("runs/train-001")?;
/// let predictor = model.on_dataset(&Dataset::open("debian-packages")?)?;
/// let scores = predictor.predict(&[NodeId(7), NodeId(9)], &PredictMode::default())?;
/// println!("{:?} {:?}", scores.classes(), scores.confidences());
/// # Ok::<(), Error>(())
/// ```
pub trait PredictOnDataset {
    /// Prepares a dataset for predictions. The steps of the model's preparation that the dataset already went through
    /// ([`Dataset::preparation`]) are not repeated. Labels and split are not read, and the dataset may contain nodes
    /// that training did not have.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::on_prepared`], and an error if the preparation of the training data is
    /// unknown and the dataset went through no step.
    fn on_dataset(&self, data: &Dataset) -> Result<NodePredictor>;

    /// Returns the scores of graphs of a set, one row per graph and one column per class. `features` must have the
    /// columns of the training data, in the same order.
    ///
    /// # Errors
    /// Returns the errors of [`SavedModel::predict_graphs`].
    fn predict_dataset(
        &self,
        data: &GraphDataset,
        features: &Arc<dyn FeatureStore>,
        graphs: &[GraphId],
    ) -> Result<OutputRows>;
}

impl PredictOnDataset for SavedModel {
    fn on_dataset(&self, data: &Dataset) -> Result<NodePredictor> {
        let (graph, features) = (data.graph.clone(), data.features.clone());
        // Data without a step may be as it was loaded, or need none.
        if self.info().inputs.preparation.is_none() && data.preparation.steps.is_empty() {
            return Err(kiln_train::Error::from(ModelError::UnknownPreparation).into());
        }
        Ok(NodePredictor::on_prepared(self, graph, features, &data.preparation)?)
    }

    fn predict_dataset(
        &self,
        data: &GraphDataset,
        features: &Arc<dyn FeatureStore>,
        graphs: &[GraphId],
    ) -> Result<OutputRows> {
        Ok(self.predict_graphs(data.graph(), data.node_offsets(), features, graphs)?)
    }
}

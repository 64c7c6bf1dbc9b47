use kiln_data::Dataset;
use kiln_nn::ModelConfig;

/// Model configurations with defaults for a dataset.
pub trait ForData: ModelConfig {
    /// Returns the default configuration for the number of features and classes of a dataset.
    fn for_data(data: &impl DataDims) -> Self {
        let (d_in, n_classes) = data.dims();
        Self::for_dims(d_in, n_classes)
    }
}

impl<C: ModelConfig> ForData for C {}

/// Data with known numbers of feature columns and classes.
pub trait DataDims {
    /// Returns the number of feature columns, and the number of classes or target columns.
    fn dims(&self) -> (usize, usize);
}

impl DataDims for Dataset {
    fn dims(&self) -> (usize, usize) {
        (self.features.dim(), self.targets().n_outputs())
    }
}

#[cfg(feature = "grpc")]
impl DataDims for crate::PartitionedGraph {
    fn dims(&self) -> (usize, usize) {
        (self.info().dim, self.info().n_classes)
    }
}

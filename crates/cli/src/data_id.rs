//! The hashes by which runs and ranks recognize their data.

use std::sync::Arc;

use kiln::data::{Dataset, GraphDataset, HashedPart, Split};
use kiln::feature::FeatureStore;
use kiln::graph::GraphId;
use kiln::train::DataHash;

/// The hash of the data of a run, and that of a sample of it.
pub(crate) struct DataId {
    pub(crate) hash: DataHash,
    sample: Box<dyn Fn() -> kiln::data::Result<String> + Sync>,
}

impl DataId {
    /// Returns the identity of a graph, whose hash is computed while the run trains.
    pub(crate) fn of_graph(data: &Dataset) -> Self {
        let data = data.clone();
        Self::of(move |part| data.hash_of(part))
    }

    /// Returns the identity of a heterogeneous dataset, whose hash is computed while the run trains.
    pub(crate) fn of_typed(data: &Dataset) -> Self {
        let data = data.clone();
        Self::of(move |part| data.hash_of(part))
    }

    /// Returns the identity of graphs with features of their nodes, and with their own split if they have one.
    pub(crate) fn of_graphs(
        graphs: &GraphDataset,
        features: &Arc<dyn FeatureStore>,
        split: Option<&Split<GraphId>>,
    ) -> Self {
        let (graphs, features, split) = (graphs.clone(), features.clone(), split.cloned());
        Self::of(move |part| graphs.hash_of(split.as_ref().map(|split| (&*features, split)), part))
    }

    /// Returns the identity of data whose hash is recorded with it.
    pub(crate) fn recorded(hash: String) -> Self {
        Self { hash: hash.into(), sample: Box::new(|| Ok(String::new())) }
    }

    fn of(
        hash: impl Fn(HashedPart<'_>) -> kiln::data::Result<String> + Clone + Send + Sync + 'static,
    ) -> Self {
        let all = hash.clone();
        let sample = Box::new(move || hash(HashedPart::Sample));
        Self { hash: kiln::hash_in_background(move |check| all(HashedPart::All(check))), sample }
    }

    /// Returns the name and the value of the hash that processes compare when they join: of all data if it is known,
    /// and otherwise of its sizes and a sample. They compare the hashes of all data before the first checkpoint.
    pub(crate) fn at_join(&self) -> anyhow::Result<(&'static str, String)> {
        Ok(match self.hash.known() {
            Some(hash) => ("the hash of the data", hash.to_owned()),
            None => ("the hash of the sizes and of sampled values of the data", (self.sample)()?),
        })
    }
}

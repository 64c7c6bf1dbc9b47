use kiln_nn::EdgeDims;

/// An error in the settings or the data of a task of edges with targets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EdgeTaskError {
    /// The links have no targets.
    #[error(
        "the links of `{name}` have no targets, expected a class, labels or numbers for each edge: state the `target` of a \
         relation in the spec of an import, set LinkTargets::with_values, or train on links (--task link)"
    )]
    NoTargets {
        /// The name of the dataset.
        name: String,
    },
    /// A call does not apply to the task of the loader.
    #[error(
        "{call} of the LinkNeighborLoader is for {}: remove the call, or create the loader with {}",
        if *is_of_edges { "links with negatives, but the loader is one of edges with targets" }
        else { "edges with targets, but the loader is one of links with negatives" },
        if *is_of_edges { "LinkNeighborLoader::new" } else { "LinkNeighborLoader::with_targets" }
    )]
    NotApplicable {
        /// The call.
        call: &'static str,
        /// True for a loader of edges with targets.
        is_of_edges: bool,
    },
    /// A model that scores links was to learn the targets of edges.
    #[error(
        "the decoder of the model scores pairs, but the edges have targets: use LinkDecoderConfig::Edge \
         (LinkDecoderConfig::of_edges)"
    )]
    DecoderOfScores,
    /// A model of edges was to learn scores of links.
    #[error(
        "the decoder of the model is one of edges with targets, but the loader has links with negatives: use another decoder, \
         or LinkNeighborLoader::with_targets"
    )]
    DecoderOfEdges,
    /// The decoder of a model is for edges with other features or targets.
    #[error(
        "the decoder of the model is for edges with {} feature columns and {} outputs, but those of the data have {} and {}: \
         configure it with LinkNeighborLoader::edge_dims",
        got.d_edge, got.n_outputs, expected.d_edge, expected.n_outputs
    )]
    DecoderDims {
        /// The sizes of the edges of the data.
        expected: EdgeDims,
        /// The sizes for which the decoder was configured.
        got: EdgeDims,
    },
}

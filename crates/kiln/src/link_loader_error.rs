use kiln_nn::EdgeDims;

/// An error in the settings or the data of a loader of links, or of edges with targets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkLoaderError {
    /// A loader of nodes has an objective, but it is part of a loader of links, which has its own loss.
    #[error(
        "the loader of the links' nodes has an objective or a scale of targets, which link prediction does not use: \
         call .loss() (or .objective() for edges) on the loader of links instead"
    )]
    ObjectiveOfNodes,
    /// A loader of the rows of a task table is part of a loader of links, which are no rows.
    #[error(
        "the loader of the links' nodes has a task table, whose rows are no links: create it without one"
    )]
    TaskTableOfNodes,
    /// The links have no targets.
    #[error(
        "the links of `{name}` have no targets, expected a class, labels or numbers for each edge: state the `target` of a \
         relation in the spec of an import, or train on links (--task link)"
    )]
    NoTargets {
        /// The name of the dataset.
        name: String,
    },
    /// A call does not apply to the task of the loader.
    #[error(
        "{call} of the loader is for {}: remove the call, or train on {} (--task {})",
        if *is_of_edges { "links with negatives, but the loader has edges with targets" }
        else { "edges with targets, but the loader has links with negatives" },
        if *is_of_edges { "links" } else { "edges" },
        if *is_of_edges { "link" } else { "edge" }
    )]
    NotApplicable {
        /// The call.
        call: &'static str,
        /// True for a loader of edges with targets.
        is_of_edges: bool,
    },
    /// A model that scores links was to learn the targets of edges.
    #[error("the decoder of the model scores pairs, but the edges have targets: use a decoder of edges")]
    DecoderOfScores,
    /// A model of edges was to learn scores of links.
    #[error(
        "the decoder of the model is one of edges with targets, but the loader has links with negatives: use another decoder \
         (--decoder), or train on edges (--task edge)"
    )]
    DecoderOfEdges,
    /// The decoder of a model is for edges with other features or targets.
    #[error(
        "the decoder of the model is for edges with {} feature columns and {} outputs, but those of the data have {} and {}: \
         configure the decoder for these sizes",
        got.d_edge, got.n_outputs, expected.d_edge, expected.n_outputs
    )]
    DecoderDims {
        /// The sizes of the edges of the data.
        expected: EdgeDims,
        /// The sizes for which the decoder was configured.
        got: EdgeDims,
    },
}

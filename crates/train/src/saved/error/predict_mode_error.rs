/// An error in the mode, the fanouts or the sampling rule of a prediction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictModeError {
    /// The graph is partitioned, and the model or the mode needs all of it.
    #[error(
        "{what} needs the whole graph: predict on the dataset instead of its partitions, or use another mode"
    )]
    NeedsWholeGraph {
        /// The step that is not possible, as text for the message.
        what: &'static str,
    },
    /// Each rank was to get its own outputs in exact mode, which rank 0 computes alone.
    #[error("rank 0 computes exact predictions alone: request one output for all ranks, or use another mode")]
    ExactOnRankZero,
    /// Items have several times of their own, at which exact mode cannot compute the rows of all nodes.
    #[error(
        "the model was trained on neighbours that were known at the time of each item, and exact mode has one graph for all: \
         predict at one time (--at), or with sampled neighbours (--mode sampled)"
    )]
    ExactItemTimes,
    /// The model reads the ages of nodes and edges, which exact mode does not compute.
    #[error(
        "the model reads the ages of nodes and edges, which exact mode does not compute: use --mode sampled"
    )]
    ExactAges,
    /// The model needs the time of each item, and the data has none.
    #[error(
        "the model was trained on neighbours that were known at the time of each item, and these items have no times: use \
         items with times, or predict at one time (--at)"
    )]
    NoItemTimes,
    /// The model reads ages of nodes or edges that have no times in the data.
    #[error("the model reads the age of {what}, which have no times in this data: use data with their times")]
    NoAges {
        /// The nodes or edges, as a phrase.
        what: String,
    },
    /// The model was trained on the rows of a task table, and nodes were predicted at no time.
    #[error(
        "the model was trained on the task table `{table}`, whose rows have times, and nodes alone have none: predict them at one \
         time (--at)"
    )]
    NoTimeOfRows {
        /// The name of the table.
        table: String,
    },
    /// The model reads edge features and self loops, whose features would be those of later edges.
    #[error(
        "the model was trained on neighbours that were known at the time of each item, and the features of its self loops are the \
         mean of all edges, also of later ones: train a model without self loops, such as gine"
    )]
    LoopsOfLaterEdges,
    /// The preparation of the model adds edges, which have no times.
    #[error(
        "the preparation of the model adds reverse edges, whose times would be lost: prepare the data first, with \
         `kiln data convert --symmetrize`"
    )]
    LosesTimes,
    /// The number of fanouts differs from the number of layers.
    #[error("got {n_fanouts} fanouts for a model of {n_layers} layers: give one fanout per layer")]
    FanoutsMismatch {
        /// The number of fanouts.
        n_fanouts: usize,
        /// The number of layers of the model.
        n_layers: usize,
    },
    /// Fanouts name a relation, but the model is not for a heterogeneous graph.
    #[error(
        "the fanouts name the relation `{name}`, but the data of the model has no named relations: give one list of fanouts"
    )]
    NoNamedRelations {
        /// The name of the first relation with fanouts.
        name: String,
    },
    /// The model was trained with a sampling rule of a program's own, which a file cannot contain.
    #[error(
        "the model was trained with the custom sampling rule {rule:?}: predict with the program that has the rule, or with all neighbours (--mode exact)"
    )]
    CustomRule {
        /// The name of the rule; empty for a rule without a name.
        rule: String,
    },
    /// The model was evaluated with a sampler of a program's own, which a file cannot contain.
    #[error(
        "the model was evaluated with the sampler `{sampler}` of another program: predict with the program that has the \
         sampler, or with all neighbours (--mode exact)"
    )]
    CustomSampler {
        /// The name and the settings of the sampler.
        sampler: String,
    },
    /// The program has set another sampler than that of the model.
    #[error(
        "the model was evaluated with the sampler `{expected}`, got `{got}`: set a sampler of the same name and settings"
    )]
    OtherSampler {
        /// The name and the settings of the model's sampler.
        expected: String,
        /// Those of the program's.
        got: String,
    },
}

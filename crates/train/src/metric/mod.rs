//! Metrics: what each is computed from, how ranks combine it, and which values are better.
//!
//! Metrics are computed from counts and sums, which add up, so they are exact over batches and ranks. Only the area under
//! the ROC curve, the average precision and metrics of one's own need every score, which rank 0 gathers. The rank of a link is a multiple of 1/2,
//! and MRR and Hits@k are computed from the number of links of each rank, so they are bit-identical for any number of ranks
//! of a job. Undefined values are those of scikit-learn, except that the mean area leaves out classes and labels without
//! positives or negatives.

pub(crate) mod confusion;
pub(crate) mod custom;
pub(crate) mod kind;
pub(crate) mod link_ranks;
pub(crate) mod multi_label;
pub(crate) mod ranking;
pub(crate) mod regression;
pub(crate) mod selection_error;
pub(crate) mod split_targets;
pub(crate) mod stats;

//! Links and their scores in an evaluation, for metrics, files and reports.

use kiln_graph::{LinkId, NodeId};
use kiln_store::csv::finite;

use crate::evaluate::evaluation::Evaluation;
use crate::metric::link_ranks::LinkRanks;
use crate::run::item_columns::ItemColumns;
use crate::step::task::StepOutput;

/// A model's score of one link, and the link's rank among its negatives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkPrediction {
    /// The link.
    pub link: LinkId,
    /// Its source.
    pub src: NodeId,
    /// Its destination.
    pub dst: NodeId,
    /// The score, a logit.
    pub score: f32,
    /// The rank as in [`LinkRanks`]; `None` if a score is NaN.
    pub rank: Option<f64>,
}

/// The scores of links and of their negatives, each in the order of the links.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkScores {
    /// The score of each link.
    pub links: Vec<f32>,
    /// The scores of the negatives of all links.
    pub negatives: Vec<f32>,
}

impl Evaluation {
    /// Appends a batch of links, their sources and destinations, and the scores of each link and its negatives, as
    /// passed to the `visit` of [`TaskTrainer::evaluate`](crate::TaskTrainer::evaluate).
    ///
    /// # Panics
    /// Panics if the numbers of links, nodes and rows differ, or if the number of negatives differs from that of
    /// earlier batches.
    pub fn add_links(&mut self, links: &[LinkId], srcs: &[NodeId], dsts: &[NodeId], forward: &StepOutput) {
        let n_links = links.len();
        assert!(
            srcs.len() == n_links && dsts.len() == n_links,
            "got {} sources and {} destinations of {n_links} links, expected one per link",
            srcs.len(),
            dsts.len()
        );
        self.add_batch(links, &[], &[], forward);
        self.nodes.extend(srcs.iter().zip(dsts).map(|(src, dst)| [src.0, dst.0]));
    }

    /// Returns the score and the rank of each link, sorted by the link's id, as in `test_predictions.csv`. Empty for
    /// other targets.
    pub fn link_predictions(&self) -> Vec<LinkPrediction> {
        let links = self.items.iter().zip(&self.nodes).zip(self.rows());
        let mut predictions: Vec<LinkPrediction> = links
            .map(|((&link, &[src, dst]), scores)| LinkPrediction {
                link: LinkId(link),
                src: NodeId(src),
                dst: NodeId(dst),
                score: scores[0],
                rank: LinkRanks::rank(scores),
            })
            .collect();
        predictions.sort_by_key(|prediction| prediction.link);
        predictions
    }

    /// Returns the scores of the links and of their negatives, without links of which a score is not finite; empty for other
    /// targets.
    pub fn link_scores(&self) -> LinkScores {
        let rows = || self.rows().take(self.nodes.len()).filter(|scores| self.has_prediction(scores));
        LinkScores {
            links: rows().map(|scores| scores[0]).collect(),
            negatives: rows().flat_map(|scores| &scores[1..]).copied().collect(),
        }
    }

    /// Returns the content of `test_predictions.csv`, with `columns` instead of the nodes. The rank is empty if a score is NaN,
    /// and a score is empty if it is not finite.
    pub(crate) fn links_to_csv(&self, columns: Option<&ItemColumns>) -> String {
        let mut csv = "link".to_owned();
        match columns {
            Some(columns) => columns.push_header(&mut csv),
            None => csv.push_str(",source,destination"),
        }
        csv.push_str(",score,rank\n");
        for LinkPrediction { link, src, dst, score, rank } in self.link_predictions() {
            csv.push_str(&link.0.to_string());
            match columns {
                Some(columns) => columns.push_fields(&mut csv, link.0),
                None => csv.push_str(&format!(",{},{}", src.0, dst.0)),
            }
            let rank = rank.map_or_else(String::new, |rank| rank.to_string());
            csv.push_str(&format!(",{},{rank}\n", finite(Some(score))));
        }
        csv
    }
}

use std::ops::Range;
use std::path::Path;

use kiln_data::{DatasetLinks, Note, read_pairs};
use kiln_graph::{GraphSchema, Links, NodeId};
use kiln_store::progress::{Progress, ProgressUnit};
use kiln_store::whole_file::read_text;
use kiln_store::{io_error, sha256};
use kiln_train::{LinkScorer, ScoredLink, TopKConfig};

use crate::selection::{id_bytes, nodes_of_names};
use crate::{Error, ItemSelectionError, LinkNodes, LinkPredictionFiles, Result};

/// The number of pairs that are scored and written at once.
const LINES: usize = 1 << 16;

/// The links to score, with node ids of the graph.
#[derive(Debug, Clone)]
pub enum LinkRequest {
    /// Pairs of a source and a destination.
    Pairs(Links),
    /// The destinations with the largest scores of each source.
    TopK {
        /// The sources, in the order of the result.
        srcs: Vec<NodeId>,
        /// The destinations, and their number per source.
        config: TopKConfig,
    },
}

impl LinkRequest {
    /// Returns the nodes whose rows are read, ascending and distinct. `dsts` are the ids of all destinations.
    ///
    /// ```
    /// use kiln_graph::{Links, NodeId};
    /// use kiln_predictions::LinkRequest;
    /// let request = LinkRequest::Pairs(Links::new(vec![4, 0], vec![7, 4])?);
    /// assert_eq!(request.nodes(&(5..8)), [NodeId(0), NodeId(4), NodeId(7)]);
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    pub fn nodes(&self, dsts: &Range<u32>) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = match self {
            Self::Pairs(links) => links.srcs().iter().chain(links.dsts().iter()).copied().collect(),
            Self::TopK { srcs, .. } => srcs.iter().copied().chain(dsts.clone().map(NodeId)).collect(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns the hash of the nodes of the request, which must be the same for all processes.
    pub fn hash(&self) -> String {
        let bytes = match self {
            Self::Pairs(links) => [id_bytes(links.srcs()), id_bytes(links.dsts())].concat(),
            Self::TopK { srcs, .. } => id_bytes(srcs),
        };
        sha256(&bytes)
    }

    /// Scores the links and writes them. Returns the number of destinations that no source has, because their scores are not
    /// finite.
    ///
    /// # Errors
    /// Returns an error if a node has no row in the scorer, or if a file cannot be written.
    pub fn write(&self, scorer: &LinkScorer, files: &mut LinkPredictionFiles) -> Result<usize> {
        match self {
            Self::Pairs(links) => {
                let progress = Progress::start("scoring links", ProgressUnit::Links, links.len() as u64);
                for (srcs, dsts) in links.srcs().chunks(LINES).zip(links.dsts().chunks(LINES)) {
                    let pairs = Links::new(srcs.to_vec(), dsts.to_vec()).map_err(kiln_data::Error::from)?;
                    let scores = scorer.score(&pairs)?;
                    let pairs = srcs.iter().zip(dsts).zip(scores);
                    let links = pairs.map(|((&src, &dst), score)| ScoredLink { src, dst, score });
                    files.write(&links.collect::<Vec<_>>())?;
                    progress.advance(srcs.len() as u64);
                }
                Ok(0)
            }
            Self::TopK { srcs, config } => {
                scorer.for_each_top_k(srcs, config, |links| -> Result<()> { files.write(links) })?;
                let left_out = scorer.non_finite();
                for &src in srcs.iter().filter(|src| left_out.binary_search(src).is_ok()) {
                    files.add_source_without_links(src);
                }
                let dsts = files.nodes().ids[1].clone();
                Ok(left_out.iter().filter(|node| dsts.contains(&node.0)).count())
            }
        }
    }
}

impl LinkNodes {
    /// Returns the ids in the graph of nodes that are numbered within their type, of sources (`end` 0) or destinations (`end` 1).
    ///
    /// ```
    /// use kiln_graph::NodeId;
    /// use kiln_predictions::LinkNodes;
    /// let nodes = LinkNodes { ids: [0..3, 3..5], names: [None, None] };
    /// assert_eq!(nodes.graph_ids(1, &[NodeId(0), NodeId(1)]), [NodeId(3), NodeId(4)]);
    /// ```
    pub fn graph_ids(&self, end: usize, nodes: &[NodeId]) -> Vec<NodeId> {
        let start = self.ids[end].start;
        nodes.iter().map(|node| NodeId(start + node.0)).collect()
    }

    /// Reads pairs of ids within the types of sources and destinations, and returns them with ids of the graph. Notes on the file are
    /// added to `notes`.
    ///
    /// # Errors
    /// Returns [`ItemSelectionError::InvalidEnd`] for an id that no node has, and [`Error::Data`] if the file cannot be read.
    pub fn read_pairs(&self, path: &Path, notes: &mut Vec<Note>) -> Result<Links> {
        let [n_srcs, n_dsts] = self.ids.each_ref().map(|ids| ids.len());
        let links = read_pairs(path, n_srcs.max(n_dsts), notes)?;
        for (end, ids, n_nodes) in [("source", links.srcs(), n_srcs), ("destination", links.dsts(), n_dsts)] {
            if let Some(pair) = ids.iter().position(|node| n_nodes <= node.index()) {
                let path = path.to_owned();
                let id = ids[pair].0;
                return Err(ItemSelectionError::InvalidEnd { path, end, pair, id, n_nodes }.into());
            }
        }
        self.links([links.srcs(), links.dsts()])
    }

    /// Reads pairs of names, a source and a destination per line, separated by a tab, and returns them with ids of the graph.
    ///
    /// # Errors
    /// Returns [`ItemSelectionError::NotNames`] for a line without a tab, [`ItemSelectionError::NoNames`] for nodes without names and
    /// [`ItemSelectionError::UnknownName`] for the name of no node; also an error if the file cannot be read.
    pub fn read_named_pairs(&self, path: &Path) -> Result<Links> {
        let text = read_text(path).map_err(io_error(path))?;
        let mut pairs = Vec::new();
        for (line, text) in text.lines().enumerate() {
            let Some(pair) = text.split_once('\t') else {
                return Err(ItemSelectionError::NotNames { path: path.to_owned(), line: line + 1 }.into());
            };
            pairs.push(pair);
        }
        let of_end = |end: usize| {
            let names: Vec<&str> = pairs.iter().map(|(src, dst)| [*src, *dst][end]).collect();
            nodes_of_names(path, "--pair-keys", &names, self.ids[end].len(), self.names[end].as_deref())
        };
        self.links([&of_end(0)?, &of_end(1)?])
    }

    /// Returns the sources of the test links, ascending and distinct within their type; none if the links are those of another
    /// relation.
    ///
    /// # Errors
    /// Returns [`Error::Data`] if the links are damaged.
    pub fn test_sources(&self, links: &DatasetLinks, schema: &GraphSchema) -> Result<Vec<NodeId>> {
        links.check(schema)?;
        let mut srcs = Vec::new();
        for &link in links.targets.split().test.iter() {
            let (src, _) = links.targets.links().pair(link);
            srcs.push(NodeId(self.number(0, src)));
        }
        srcs.sort_unstable();
        srcs.dedup();
        Ok(srcs)
    }

    /// Returns links between nodes that are numbered within their types, with ids of the graph.
    fn links(&self, [srcs, dsts]: [&[NodeId]; 2]) -> Result<Links> {
        let links = Links::new(self.graph_ids(0, srcs), self.graph_ids(1, dsts));
        links.map_err(|error| Error::Data(error.into()))
    }
}

#[cfg(test)]
#[path = "../tests/files/link_request.rs"]
mod tests;

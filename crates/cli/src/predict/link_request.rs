//! The links that the flags of `kiln predict` request.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use kiln::LinkNodes;
use kiln::data::read_pairs;
use kiln::graph::{Csc, Links, NodeId};
use kiln::store::whole_file::read_text;
use kiln::store::{io_error, sha256};
use kiln::train::TopKConfig;
use kiln_usage::ensure;

use super::args::PredictArgs;
use super::request::{SelectableItems, id_bytes, nodes_of_keys, requested};
use crate::output::print_notes;

/// The links to score, with node ids of the graph.
pub(super) enum LinkRequest {
    Pairs(Links),
    TopK { srcs: Vec<NodeId>, config: TopKConfig },
}

impl LinkRequest {
    /// Returns the request of the flags, which number nodes within their types. `test_srcs` are the sources of the test links
    /// within their type, `new_srcs` those that were appended to the data, and `excluded` has the edges that are left out.
    pub(super) fn new(
        args: &PredictArgs,
        test_srcs: &[NodeId],
        new_srcs: Option<Range<u32>>,
        nodes: &LinkNodes,
        excluded: Option<Arc<Csc>>,
    ) -> anyhow::Result<Self> {
        if let Some(links) = read_links(args, nodes)? {
            return Ok(Self::Pairs(links));
        }
        let has_sources = args.keys.is_some() || args.nodes.as_os_str() != "test" || !test_srcs.is_empty();
        ensure!(
            has_sources || !args.parts.is_given(),
            "partitions have no test links, whose sources --nodes test selects: give --nodes all or a file of ids"
        );
        ensure!(
            has_sources,
            "the data has no test links, whose sources --nodes test selects: give --nodes all, a file of ids, or --keys"
        );
        let config = TopKConfig::new(args.links.top_k.unwrap_or(1)).among(nodes.ids[1].clone());
        let config = match excluded {
            Some(graph) => config.excluding(graph)?,
            None => config,
        };
        let selectable =
            SelectableItems { n_items: nodes.ids[0].len(), test: test_srcs, new: new_srcs, targets: None };
        let srcs = requested(args, selectable, nodes.names[0].as_deref())?;
        Ok(Self::TopK { srcs: srcs.iter().map(graph_ids(nodes, 0)).collect(), config })
    }

    /// Returns the nodes whose rows are read, ascending and distinct. `dsts` are the ids of all destinations.
    pub(super) fn nodes(&self, dsts: &Range<u32>) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = match self {
            Self::Pairs(links) => links.srcs().iter().chain(links.dsts().iter()).copied().collect(),
            Self::TopK { srcs, .. } => srcs.iter().copied().chain(dsts.clone().map(NodeId)).collect(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns the hash of the nodes of the request, which must be the same for all processes.
    pub(super) fn hash(&self) -> String {
        let bytes = match self {
            Self::Pairs(links) => [id_bytes(links.srcs()), id_bytes(links.dsts())].concat(),
            Self::TopK { srcs, .. } => id_bytes(srcs),
        };
        sha256(&bytes)
    }
}

/// Returns a function from the number of a source (`end` 0) or of a destination within its type to its id in the graph.
fn graph_ids(nodes: &LinkNodes, end: usize) -> impl Fn(&NodeId) -> NodeId {
    let start = nodes.ids[end].start;
    move |node| NodeId(start + node.0)
}

/// Returns the pairs of `--pairs` or `--pair-keys` with node ids of the graph; `None` without these flags.
pub(super) fn read_links(args: &PredictArgs, nodes: &LinkNodes) -> anyhow::Result<Option<Links>> {
    let links = match (&args.links.pairs, &args.links.pair_keys) {
        (Some(path), _) => pairs_of_ids(path, nodes)?,
        (None, Some(path)) => pairs_of_keys(path, nodes)?,
        (None, None) => return Ok(None),
    };
    let srcs: Vec<NodeId> = links.srcs().iter().map(graph_ids(nodes, 0)).collect();
    let dsts: Vec<NodeId> = links.dsts().iter().map(graph_ids(nodes, 1)).collect();
    Ok(Some(Links::new(srcs, dsts)?))
}

/// Reads pairs of ids within the types of sources and destinations.
fn pairs_of_ids(path: &Path, nodes: &LinkNodes) -> anyhow::Result<Links> {
    let [n_srcs, n_dsts] = nodes.ids.each_ref().map(|ids| ids.len());
    let mut notes = Vec::new();
    let links = read_pairs(path, n_srcs.max(n_dsts), &mut notes)?;
    print_notes(&notes);
    for (end, ids, n_nodes) in [("source", links.srcs(), n_srcs), ("destination", links.dsts(), n_dsts)] {
        if let Some(pair) = ids.iter().position(|node| n_nodes <= node.index()) {
            let (path, id) = (path.display(), ids[pair].0);
            anyhow::bail!(
                "{path}: the {end} of pair {pair}, counted from 0, is {id}: expected an id below {n_nodes}"
            );
        }
    }
    Ok(links)
}

/// Reads pairs of names, a source and a destination per line, separated by a tab.
fn pairs_of_keys(path: &Path, nodes: &LinkNodes) -> anyhow::Result<Links> {
    let text = read_text(path).map_err(io_error(path))?;
    let mut pairs = Vec::new();
    for (line, text) in text.lines().enumerate() {
        pairs.push(text.split_once('\t').with_context(|| {
            format!("{}, line {}: expected two names and a tab between them", path.display(), line + 1)
        })?);
    }
    let of_end = |end: usize| {
        let keys: Vec<&str> = pairs.iter().map(|(src, dst)| [*src, *dst][end]).collect();
        nodes_of_keys(path, "--pair-keys", &keys, nodes.ids[end].len(), nodes.names[end].as_deref())
    };
    Ok(Links::new(of_end(0)?, of_end(1)?)?)
}

use std::collections::HashMap;
use std::ops::Range;

use kiln_data::{DatasetLinks, Split};
use kiln_feature::{EdgeFeatures, FeatureBuffer, Labels, Targets};
use kiln_graph::{
    ColumnValues, EdgeColumn, EdgeColumns, EdgeId, LinkId, Links, NodeId, Relations, SharedArray,
};
use kiln_train::{LinkScorer, PredictedRows, TimedLinks};

use crate::{EdgeRequestError, Result};

/// The number of edges that are predicted and written at once.
const EDGES: usize = 1 << 16;

/// The edges of a dataset whose classes, labels or numbers a model of edges predicts: the links of the relation with their features
/// and targets, or, of data without links, all edges of the relation with the features and the times of the graph. An edge is known by its
/// position in this list. Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct PredictedEdges {
    links: Links,
    features: Option<EdgeFeatures>,
    targets: Targets<LinkId>,
    class_names: Vec<String>,
    split: Split<LinkId>,
    /// The time of each edge; `None` if they have none.
    times: Option<SharedArray<i64>>,
}

impl PredictedEdges {
    /// Returns the edges of the relation at a position. `links` are those of the data; of another relation, they are ignored.
    ///
    /// ```
    /// use kiln_data::synthetic;
    /// use kiln_graph::{LinkId, Links, NodeId};
    /// use kiln_predictions::PredictedEdges;
    /// let ring = synthetic::ring(4)?;
    /// // New data without targets: all edges of the graph.
    /// let edges = PredictedEdges::new(&ring.graph, None, 0)?;
    /// assert_eq!(edges.links().len(), 8);
    /// let found = edges.find(&Links::new(vec![1], vec![0])?)?;
    /// assert_eq!(edges.links().pair(found[0]), (NodeId(1), NodeId(0)));
    /// assert_eq!(found, [LinkId(0)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`crate::Error::Data`] if the links or the relation are damaged.
    pub fn new(graph: &Relations, links: Option<&DatasetLinks>, relation: usize) -> Result<Self> {
        let no_targets = || Labels::new(Vec::<i32>::new(), 0).into();
        if let Some(links) = links.filter(|links| links.relation == relation) {
            links.check(graph.schema())?;
            let targets = &links.targets;
            return Ok(Self {
                links: targets.links().clone(),
                features: targets.features().cloned(),
                targets: targets.values().cloned().unwrap_or_else(no_targets),
                class_names: targets.class_names().to_vec(),
                split: targets.split().clone(),
                times: targets.times().cloned(),
            });
        }
        let edges = graph.whole_graph(relation).map_err(kiln_data::Error::from)?;
        let column = edges.columns().get(EdgeColumns::FEATURES);
        let times = match edges.columns().get(EdgeColumns::TIMES).map(EdgeColumn::values) {
            Some(ColumnValues::I64(times)) => Some(times.clone()),
            _ => None,
        };
        Ok(Self {
            links: Links::new(edges.indices().to_vec(), edges.dsts()).map_err(kiln_data::Error::from)?,
            features: column.map(EdgeFeatures::try_from).transpose().map_err(kiln_data::Error::from)?,
            targets: no_targets(),
            class_names: Vec::new(),
            split: Split::default(),
            times,
        })
    }

    /// Returns the edges between these pairs of nodes, without features and targets, for a model that reads no features of edges.
    pub fn from_pairs(pairs: Links) -> Self {
        let targets = Labels::new(Vec::<i32>::new(), 0).into();
        let split = Split::default();
        Self { links: pairs, features: None, targets, class_names: Vec::new(), split, times: None }
    }

    /// Returns the ends of the edges, with node ids of the graph.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the targets of the edges with the names of their classes or columns; of edges without targets, classes of no item.
    pub fn targets(&self) -> (&Targets<LinkId>, &[String]) {
        (&self.targets, &self.class_names)
    }

    /// Returns the split of the edges; empty without targets.
    pub fn split(&self) -> &Split<LinkId> {
        &self.split
    }

    /// Finds the edge of each pair of nodes, whose features the model reads.
    ///
    /// # Errors
    /// Returns [`EdgeRequestError::NoEdge`] for a pair without an edge, and [`EdgeRequestError::Ambiguous`] for one with several.
    pub fn find(&self, pairs: &Links) -> Result<Vec<LinkId>> {
        let mut found: HashMap<(NodeId, NodeId), Vec<LinkId>> = HashMap::new();
        for pair in pairs.srcs().iter().copied().zip(pairs.dsts().iter().copied()) {
            found.entry(pair).or_default();
        }
        for (edge, pair) in
            self.links.srcs().iter().copied().zip(self.links.dsts().iter().copied()).enumerate()
        {
            if let Some(edges) = found.get_mut(&pair) {
                edges.push(LinkId(edge as u32));
            }
        }
        let mut edges = Vec::with_capacity(pairs.len());
        for (position, pair) in pairs.srcs().iter().copied().zip(pairs.dsts().iter().copied()).enumerate() {
            match &found[&pair][..] {
                [edge] => edges.push(*edge),
                [] => return Err(EdgeRequestError::NoEdge { position }.into()),
                several => {
                    let n_edges = several.len();
                    let [first, second] = [several[0], several[1]].map(|edge| edge.0);
                    return Err(EdgeRequestError::Ambiguous { position, n_edges, first, second }.into());
                }
            }
        }
        Ok(edges)
    }

    /// Returns the ends of some edges.
    pub fn ends(&self, edges: &[LinkId]) -> Links {
        let (srcs, dsts): (Vec<NodeId>, Vec<NodeId>) =
            edges.iter().map(|edge| self.links.pair(*edge)).unzip();
        Links::new(srcs, dsts).expect("there should be as many sources as destinations")
    }

    /// Returns the ends of some edges, at the time of each if edges have times.
    ///
    /// # Errors
    /// Returns no error: there are as many times as edges.
    pub fn timed_ends(&self, edges: &[LinkId]) -> Result<TimedLinks> {
        let ends = self.ends(edges);
        match &self.times {
            Some(times) => {
                let of_edges: Vec<i64> = edges.iter().map(|edge| times[edge.index()]).collect();
                Ok(TimedLinks::at(&ends, of_edges)?)
            }
            None => Ok(TimedLinks::from(&ends)),
        }
    }

    /// Returns the edges without their times, which are then predicted at one time.
    #[must_use]
    pub fn without_times(self) -> Self {
        Self { times: None, ..self }
    }

    /// Returns the ranges of positions of a list of edges, whose outputs are computed and written at once.
    pub fn parts(n_edges: usize) -> impl Iterator<Item = Range<usize>> {
        (0..n_edges).step_by(EDGES).map(move |start| start..n_edges.min(start + EDGES))
    }

    /// Computes the outputs of the edges at a range of positions of a list.
    ///
    /// # Errors
    /// Returns an error if an edge does not exist, or if a node has no row in the scorer.
    pub fn outputs(
        &self,
        scorer: &LinkScorer,
        edges: &[LinkId],
        positions: Range<usize>,
    ) -> Result<PredictedRows> {
        let part = &edges[positions.clone()];
        let features = self.features(part)?;
        let outputs = scorer.edge_outputs(self.timed_ends(part)?, features.as_ref())?;
        Ok(PredictedRows { positions, scores: Some(outputs), embeddings: None })
    }

    /// Returns the feature rows of some edges; `None` if they have none.
    ///
    /// # Errors
    /// Returns [`crate::Error::Data`] if an edge does not exist.
    pub fn features(&self, edges: &[LinkId]) -> Result<Option<EdgeFeatures>> {
        let Some(features) = &self.features else { return Ok(None) };
        let ids: Vec<EdgeId> = edges.iter().map(|edge| EdgeId(u64::from(edge.0))).collect();
        let mut rows = FeatureBuffer::empty(features.dtype());
        features.gather(&ids, &mut rows).map_err(kiln_data::Error::from)?;
        let rows = EdgeFeatures::new(rows.into_f32(), features.dim());
        Ok(Some(rows.map_err(kiln_data::Error::from)?))
    }
}

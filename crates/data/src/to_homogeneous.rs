//! The homogeneous set of a set with one node type.

use std::sync::Arc;

use kiln_feature::Labels;
use kiln_graph::{Csc, CscBuilder, EdgeColumn, EdgeColumns, NodeId, Relation, Relations};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::layout::Layout;
use crate::times::times_of;
use crate::{Dataset, DatasetLinks, DatasetTargets, DatasetTimes, NotHomogeneousError, Note, Result, Split};

impl Dataset {
    /// Returns a set with one node type as a homogeneous set, as `to_homogeneous` of DGL and PyG does, so that models of graphs of
    /// one type read it. A homogeneous set is returned as it is. [`Relations::to_homogeneous`] joins the relations of any number
    /// of node types, without the columns of their edges.
    ///
    /// The graph of one relation is shared. The edges of several relations become one graph in memory, whose edge types are the
    /// positions of the relations and have their names; the neighbours of a node ascend. Edges of relations without weights have
    /// the weight 1 if others have weights, those of relations without times were always known if others have times, and a column of the edges is kept if all relations have it with the same width and
    /// element type; [`Dataset::notes`] has both. Ids, features, targets, split, links and names of the nodes stay. The types are
    /// called `node` and `edge`.
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// use kiln_graph::{NodeId, NodeTypes, RelationEdges};
    /// let items = Dataset::builder_with_types(NodeTypes::new([("item", 3)])?)
    ///     .relation(RelationEdges::new("same brand", "item", "item", &[0, 2], &[1, 0]))
    ///     .relation(RelationEdges::new("bought with", "item", "item", &[0], &[1]))
    ///     .nodes("item")
    ///     .features(vec![0.5, 1.0, 1.5], 1)
    ///     .build()?;
    /// let items = items.to_homogeneous()?;
    /// assert_eq!(items.csc()?.in_neighbors(NodeId(1)), [NodeId(0), NodeId(0)]);
    /// assert_eq!(items.csc()?.edge_types(), Some(&[0, 0, 1][..]));
    /// assert_eq!(items.edge_type_names, ["same brand", "bought with"]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`NotHomogeneousError::SeveralNodeTypes`] unless there is one node type,
    /// [`NotHomogeneousError::NoFeatures`] if it has no features, [`Error::Graph`](crate::Error::Graph) if one of several
    /// relations is damaged, and [`kiln_store::Error::OutOfMemory`] if their edges do not fit in memory.
    pub fn to_homogeneous(self) -> Result<Self> {
        if self.layout == Layout::Plain {
            return Ok(self);
        }
        self.require_one_node_type()?;
        let n_nodes = self.graph.n_nodes();
        let mut notes = self.notes;
        let (graph, edge_type_names) = match self.graph.n_relations() {
            0 => (Arc::new(CscBuilder::new(n_nodes).build(&[], &[])?), Vec::new()),
            1 => (Arc::clone(&self.graph.relation(0).graph), Vec::new()),
            _ => {
                let names = self.graph.iter().map(|relation| relation.name.clone()).collect();
                (Arc::new(JoinedEdges::new(&self.graph, &mut notes)?.build(n_nodes)?), names)
            }
        };
        let targets = match self.targets {
            Some(targets) => targets,
            // A homogeneous set without targets has 0 classes.
            None => DatasetTargets::new(0, Labels::new(vec![-1; n_nodes], 0).into(), Split::default()),
        };
        let links = self.links.map(|links: DatasetLinks| links.targets.into());
        Ok(Self {
            graph: Arc::new(Relations::of_graph(graph)),
            edge_type_names,
            targets: Some(targets),
            links,
            notes,
            layout: Layout::Plain,
            ..self
        })
    }

    /// Checks that there is one node type, and that it has features.
    pub(crate) fn require_one_node_type(&self) -> Result<()> {
        let names = self.graph.types().names();
        let [node_type] = names else {
            let error =
                NotHomogeneousError::SeveralNodeTypes { name: self.name.clone(), types: names.join(", ") };
            return Err(error.into());
        };
        if !matches!(self.features[..], [Some(_)]) {
            let error =
                NotHomogeneousError::NoFeatures { name: self.name.clone(), node_type: node_type.clone() };
            return Err(error.into());
        }
        Ok(())
    }
}

/// The edges of several relations between nodes of one type, as a list: relation by relation, in the order of their ids.
struct JoinedEdges {
    srcs: Vec<NodeId>,
    dsts: Vec<NodeId>,
    /// The position of the relation of each edge.
    types: Vec<u8>,
    columns: EdgeColumns,
}

impl JoinedEdges {
    /// Adds notes about the weights and the columns that some of the relations lack.
    fn new(graph: &Relations, notes: &mut Vec<Note>) -> Result<Self> {
        graph.validate()?;
        let n_edges = graph.n_edges() as usize;
        let progress = Progress::start("joining relations", ProgressUnit::Edges, graph.n_edges());
        let mut joined = Self {
            srcs: Vec::new(),
            dsts: Vec::new(),
            types: Vec::new(),
            columns: columns_of(graph, notes)?,
        };
        let has_memory = joined.srcs.try_reserve_exact(n_edges).is_ok()
            && joined.dsts.try_reserve_exact(n_edges).is_ok()
            && joined.types.try_reserve_exact(n_edges).is_ok();
        if !has_memory {
            let what = format!("the {n_edges} edges of {} relations as one graph", graph.n_relations());
            return Err(kiln_store::Error::OutOfMemory { what }.into());
        }
        for (position, relation) in graph.iter().enumerate() {
            joined.srcs.extend_from_slice(relation.graph.indices());
            joined.dsts.extend(relation.graph.dsts());
            joined.types.resize(joined.srcs.len(), position as u8);
            progress.advance(relation.graph.n_edges());
        }
        Ok(joined)
    }

    fn build(self, n_nodes: usize) -> Result<Csc> {
        let builder = CscBuilder::new(n_nodes).edge_types(&self.types).columns(self.columns);
        Ok(builder.build(bytemuck::cast_slice(&self.srcs), bytemuck::cast_slice(&self.dsts))?)
    }
}

/// Returns the weights and the other columns of the edges of all relations.
fn columns_of(graph: &Relations, notes: &mut Vec<Note>) -> Result<EdgeColumns> {
    let mut columns = EdgeColumns::default();
    if graph.iter().any(|relation| relation.graph.weights().is_some()) {
        let weights = EdgeColumn::new(weights_of(graph, notes), 1)?;
        columns = columns.with(EdgeColumns::WEIGHTS, weights)?;
    }
    if graph.iter().any(|relation| times_of(relation.graph.columns()).is_some()) {
        columns = columns.with(EdgeColumns::TIMES, EdgeColumn::new(times_of_all(graph, notes), 1)?)?;
    }
    let all: Vec<EdgeColumns> = graph.iter().map(|relation| relation.graph.columns().rows()).collect();
    let mut left_out: Vec<&str> = Vec::new();
    for name in all.iter().flat_map(EdgeColumns::names) {
        if columns.get(name).is_some() || left_out.contains(&name) {
            continue;
        }
        let of_relations: Option<Vec<&EdgeColumn>> = all.iter().map(|columns| columns.get(name)).collect();
        match of_relations.and_then(|of_relations| EdgeColumn::concat(&of_relations)) {
            Some(column) => columns = columns.with(name, column)?,
            None => left_out.push(name),
        }
    }
    if !left_out.is_empty() {
        notes.push(Note::Other(format!(
            "the edge columns {} are left out of the graph of all relations, because not each relation has them with the \
             same width and element type",
            left_out.join(", ")
        )));
    }
    Ok(columns)
}

/// Returns the times of the edges of all relations; those of a relation without times were always known.
fn times_of_all(graph: &Relations, notes: &mut Vec<Note>) -> Vec<i64> {
    let mut times = Vec::with_capacity(graph.n_edges() as usize);
    let mut without: Vec<&str> = Vec::new();
    for Relation { name, graph, .. } in graph.iter() {
        match times_of(graph.columns()) {
            Some(of_relation) => times.extend_from_slice(of_relation),
            None => {
                times.resize(times.len() + graph.n_edges() as usize, DatasetTimes::ALWAYS);
                without.push(name);
            }
        }
    }
    if !without.is_empty() {
        notes.push(Note::Other(format!(
            "the edges of {} have no times, so they count as always known beside the times of the other relations",
            without.join(", ")
        )));
    }
    times
}

/// Returns the weights of the edges of all relations, 1 for those of a relation without weights.
fn weights_of(graph: &Relations, notes: &mut Vec<Note>) -> Vec<f32> {
    let mut weights = Vec::with_capacity(graph.n_edges() as usize);
    let mut without: Vec<&str> = Vec::new();
    for Relation { name, graph, .. } in graph.iter() {
        match graph.weights() {
            Some(of_relation) => weights.extend_from_slice(of_relation),
            None => {
                weights.resize(weights.len() + graph.n_edges() as usize, 1.0);
                without.push(name);
            }
        }
    }
    if !without.is_empty() {
        notes.push(Note::Other(format!(
            "the edges of {} have no weights, so they have the weight 1 beside the weights of the other relations",
            without.join(", ")
        )));
    }
    weights
}

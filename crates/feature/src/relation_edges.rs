use std::sync::Arc;

use kiln_graph::{Block, EdgeColumns, EdgeId, GraphSchema, Relations};

use crate::{EdgeColumnError, EdgeFeatureStore, EdgeFeatures, Error, FeatureBuffer, FeatureDType, Result};

/// Columns of the edges of a graph, by name, in the order in which they were set.
#[derive(Debug, Clone, Default)]
pub struct EdgeColumnStores {
    stores: Vec<(Arc<str>, Arc<dyn EdgeFeatureStore>)>,
}

impl EdgeColumnStores {
    /// Sets a column. It replaces the one of this name, if there is one.
    pub fn set(&mut self, name: impl Into<Arc<str>>, rows: impl Into<Arc<dyn EdgeFeatureStore>>) {
        let name = name.into();
        self.stores.retain(|(other, _)| *other != name);
        self.stores.push((name, rows.into()));
    }

    /// Returns the column of a name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn EdgeFeatureStore>> {
        self.stores.iter().find(|(other, _)| &**other == name).map(|(_, rows)| rows)
    }

    /// Returns the names and columns.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<dyn EdgeFeatureStore>)> {
        self.stores.iter().map(|(name, rows)| (name, rows))
    }
}

/// The rows of one column of the edges of several relations, by edge ids of the whole graph. An edge of a relation
/// without the column has NaN, so that a model that reads it by mistake returns no number.
#[derive(Debug, Clone)]
pub struct RelationEdgeFeatures {
    /// The rows of each relation, `[n_relations]`; `None` for a relation without the column.
    relations: Vec<Option<EdgeFeatures>>,
    /// The ids of the edges of each relation.
    schema: GraphSchema,
    dim: usize,
    dtype: FeatureDType,
}

/// Returns the store of a column of all edges of a graph.
///
/// ```
/// use kiln_feature::edge_column_of;
/// use kiln_graph::{CscBuilder, EdgeColumn, Relations};
/// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?;
/// let graph = graph.with_column("amount", EdgeColumn::new(vec![7.5_f32, 0.5], 1)?)?;
/// assert_eq!(edge_column_of(&Relations::of_graph(graph), "amount")?.n_edges(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`EdgeColumnError::Missing`] if no relation has the column, [`EdgeColumnError::Differ`] if its element type or width
/// is not the same in all relations that have it, and the errors of the conversion of a column to [`EdgeFeatures`].
pub fn edge_column_of(graph: &Relations, name: &str) -> Result<Arc<dyn EdgeFeatureStore>> {
    check_column_name(name)?;
    let mut relations = Vec::with_capacity(graph.n_relations());
    for relation in graph.iter() {
        let column = relation.graph.columns().get(name);
        relations.push(column.map(EdgeFeatures::try_from).transpose()?);
    }
    let Some(first) = relations.iter().flatten().next() else {
        let known = known_columns(graph.iter().map(|relation| relation.graph.columns()));
        return Err(EdgeColumnError::Missing { name: name.to_owned(), known }.into());
    };
    let format = (first.dim(), first.dtype());
    for other in relations.iter().flatten() {
        check_equal_formats(name, format, (other.dim(), other.dtype()))?;
    }
    if let [Some(features)] = &relations[..] {
        return Ok(features.clone().into());
    }
    let (dim, dtype) = format;
    Ok(Arc::new(RelationEdgeFeatures { relations, schema: graph.schema().clone(), dim, dtype }))
}

/// Returns an error for the columns that samplers read, which are no rows of batches.
///
/// # Errors
/// Returns [`EdgeColumnError::OfSamplers`] for weights and types.
pub fn check_column_name(name: &str) -> Result<()> {
    match name {
        EdgeColumns::WEIGHTS | EdgeColumns::TYPES => {
            Err(EdgeColumnError::OfSamplers { name: name.to_owned() }.into())
        }
        _ => Ok(()),
    }
}

/// Returns an error if the column of a name has another width or element type in a further relation.
///
/// # Errors
/// Returns [`EdgeColumnError::Differ`].
pub(crate) fn check_equal_formats(
    name: &str,
    first: (usize, FeatureDType),
    second: (usize, FeatureDType),
) -> Result<()> {
    if first == second {
        return Ok(());
    }
    Err(EdgeColumnError::Differ {
        name: name.to_owned(),
        first: format!("{} columns of {}", first.0, first.1),
        second: format!("{} columns of {}", second.0, second.1),
    }
    .into())
}

/// Returns the names of all columns, each once, for a message.
fn known_columns<'a>(columns: impl Iterator<Item = &'a EdgeColumns>) -> String {
    let mut names: Vec<&str> = columns.flat_map(EdgeColumns::names).collect();
    names.sort_unstable();
    names.dedup();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

impl RelationEdgeFeatures {
    /// Writes the rows of edges of one relation, if it has the column. `edges` are ids of the whole graph.
    fn gather_run(&self, relation: usize, edges: &[EdgeId], out: &mut [u8]) -> Result<()> {
        let Some(features) = &self.relations[relation] else { return Ok(()) };
        let first = self.schema.first_edge(relation);
        let rows: Vec<EdgeId> = edges.iter().map(|edge| EdgeId(edge.0 - first.0)).collect();
        features.gather_bytes(&rows, out)
    }
}

impl EdgeFeatureStore for RelationEdgeFeatures {
    fn dim(&self) -> usize {
        self.dim
    }

    fn n_edges(&self) -> u64 {
        self.schema.n_edges()
    }

    fn dtype(&self) -> FeatureDType {
        self.dtype
    }

    fn gather_block(&self, block: &Block, out: &mut FeatureBuffer) -> Result<()> {
        let edges = block.edge_ids();
        out.resize(self.dtype, edges.len() * self.dim);
        if self.relations.iter().any(Option::is_none) {
            out.fill_nan();
        }
        let row_bytes = self.dim * self.dtype.bytes();
        let mut out = out.as_bytes_mut();
        let n_rows = self.n_edges();
        // The edges of a destination are grouped by relation.
        for run in edges.chunk_by(|a, b| self.schema.relation_of(*a) == self.schema.relation_of(*b)) {
            if let Some(&edge) = run.iter().find(|edge| n_rows <= edge.0) {
                return Err(Error::EdgeOutOfRange { edge, n_rows });
            }
            let (rows, rest) = out.split_at_mut(run.len() * row_bytes);
            self.gather_run(self.schema.relation_of(run[0]), run, rows)?;
            out = rest;
        }
        Ok(())
    }
}

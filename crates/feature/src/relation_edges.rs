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

/// The rows of a column in batches of edges of several relations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RelationRows {
    /// The relations with the column have it with one width and element type. An edge of another relation has NaN, so that a
    /// model that reads it by mistake returns no number.
    #[default]
    Equal,
    /// The relations may have different widths. Rows have the largest one and end in zeros, and an edge of a relation without
    /// the column has zeros only, for a model that knows the width of each relation.
    Padded,
}

/// The rows of one column of the edges of several relations, by edge ids of the whole graph, in the form of a
/// [`RelationRows`].
#[derive(Debug, Clone)]
pub struct RelationEdgeFeatures {
    /// The rows of each relation, `[n_relations]`; `None` for a relation without the column.
    relations: Vec<Option<EdgeFeatures>>,
    /// The ids of the edges of each relation.
    schema: GraphSchema,
    dim: usize,
    dtype: FeatureDType,
    rows: RelationRows,
}

impl RelationRows {
    /// Fills rows of which some are not written, or not as a whole: with NaN, or with zeros. The others need no value.
    pub fn fill(self, has_gaps: bool, out: &mut FeatureBuffer) {
        match (has_gaps, self) {
            (false, _) => {}
            (true, Self::Equal) => out.fill_nan(),
            // The bytes of 0 in each element type.
            (true, Self::Padded) => out.as_bytes_mut().fill(0),
        }
    }
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
    edge_rows_of(graph, name, RelationRows::Equal)
}

/// Same as [`edge_column_of`], but with rows of this form. With [`RelationRows::Padded`], rows of several element types are f32.
///
/// ```
/// use kiln_feature::{RelationRows, edge_rows_of};
/// use kiln_graph::{CscBuilder, EdgeColumn, Relations};
/// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?;
/// let graph = graph.with_column("amount", EdgeColumn::new(vec![7.5_f32, 0.5], 1)?)?;
/// let rows = edge_rows_of(&Relations::of_graph(graph), "amount", RelationRows::Padded)?;
/// assert_eq!(rows.relation_widths(), [Some(1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns the errors of [`edge_column_of`], without [`EdgeColumnError::Differ`] for padded rows.
pub fn edge_rows_of(graph: &Relations, name: &str, rows: RelationRows) -> Result<Arc<dyn EdgeFeatureStore>> {
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
    let first = (first.dim(), first.dtype());
    let formats = relations.iter().flatten().map(|features| (features.dim(), features.dtype()));
    let (dim, dtype) = match rows {
        RelationRows::Padded => padded_format(first, formats),
        RelationRows::Equal => {
            for other in formats {
                check_equal_formats(name, first, other)?;
            }
            first
        }
    };
    if let [Some(features)] = &relations[..] {
        return Ok(features.clone().into());
    }
    Ok(Arc::new(RelationEdgeFeatures { relations, schema: graph.schema().clone(), dim, dtype, rows }))
}

/// Returns the width and the element type of rows that have room for those of all formats.
pub fn padded_format(
    first: (usize, FeatureDType),
    formats: impl Iterator<Item = (usize, FeatureDType)>,
) -> (usize, FeatureDType) {
    formats.fold(first, |(dim, dtype), (other, of_other)| {
        (dim.max(other), if dtype == of_other { dtype } else { FeatureDType::F32 })
    })
}

/// Copies rows to the beginning of wider ones, whose element type is that of the rows, or f32. `positions` are the places of the
/// rows among `out`.
///
/// # Panics
/// Panics if a position is not below the number of rows of `out`, or if the element types differ otherwise.
pub fn copy_padded(
    rows: FeatureBuffer,
    dim: usize,
    positions: impl Iterator<Item = usize>,
    out: &mut FeatureBuffer,
    out_dim: usize,
) {
    let dtype = out.dtype();
    let rows = match rows.dtype() == dtype {
        true => rows,
        false => FeatureBuffer::F32(rows.into_f32()),
    };
    assert_eq!(rows.dtype(), dtype, "the rows should have the element type of the padded rows");
    let row_bytes = dim * dtype.bytes();
    let out_row_bytes = out_dim * dtype.bytes();
    let out = out.as_bytes_mut();
    for (row, position) in rows.as_bytes().chunks_exact(row_bytes).zip(positions) {
        out[position * out_row_bytes..][..row_bytes].copy_from_slice(row);
    }
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
    /// Writes the rows of edges of one relation, if it has the column, from the row `start` of `out` on. `edges` are ids of the
    /// whole graph.
    fn gather_run(
        &self,
        relation: usize,
        edges: &[EdgeId],
        start: usize,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        let Some(features) = &self.relations[relation] else { return Ok(()) };
        let first = self.schema.first_edge(relation);
        let rows: Vec<EdgeId> = edges.iter().map(|edge| EdgeId(edge.0 - first.0)).collect();
        let dim = features.dim();
        if (dim, features.dtype()) == (self.dim, self.dtype) {
            let row_bytes = dim * self.dtype.bytes();
            return features
                .gather_bytes(&rows, &mut out.as_bytes_mut()[start * row_bytes..][..rows.len() * row_bytes]);
        }
        let mut narrow = FeatureBuffer::empty(features.dtype());
        features.gather(&rows, &mut narrow)?;
        copy_padded(narrow, dim, start.., out, self.dim);
        Ok(())
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

    fn relation_widths(&self) -> Vec<Option<usize>> {
        self.relations.iter().map(|features| features.as_ref().map(EdgeFeatures::dim)).collect()
    }

    fn gather_block(&self, block: &Block, out: &mut FeatureBuffer) -> Result<()> {
        let edges = block.edge_ids();
        out.resize(self.dtype, edges.len() * self.dim);
        self.rows.fill(self.relation_widths().iter().any(|width| *width != Some(self.dim)), out);
        let mut start = 0;
        let n_rows = self.n_edges();
        // The edges of a destination are grouped by relation.
        for run in edges.chunk_by(|a, b| self.schema.relation_of(*a) == self.schema.relation_of(*b)) {
            if let Some(&edge) = run.iter().find(|edge| n_rows <= edge.0) {
                return Err(Error::EdgeOutOfRange { edge, n_rows });
            }
            self.gather_run(self.schema.relation_of(run[0]), run, start, out)?;
            start += run.len();
        }
        Ok(())
    }
}

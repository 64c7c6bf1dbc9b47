/// An error in a column of edges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EdgeColumnError {
    /// A column of edges has whole numbers, which are not feature rows.
    #[error("an edge column of {element_type} has no feature rows, expected f32, f16 or bf16")]
    NotFloats {
        /// The element type's name.
        element_type: &'static str,
    },
    /// No relation of a graph has a column of this name.
    #[error("the edges have no column `{name}`; their columns are: {known}")]
    Missing {
        /// The name of the column.
        name: String,
        /// The names of the columns that they have.
        known: String,
    },
    /// The columns of two relations have the same name and other element types or widths.
    #[error(
        "the edge column `{name}` has {first} in one relation and {second} in another: use one element type and width, or \
         two names"
    )]
    Differ {
        /// The name of the column.
        name: String,
        /// The width and element type in the first relation.
        first: String,
        /// The width and element type in the other relation.
        second: String,
    },
    /// Weights and types are read by samplers, not as rows.
    #[error(
        "the column `{name}` is no row of a batch: call .edge_weights() or .edge_types() on the loader instead"
    )]
    OfSamplers {
        /// The name of the column.
        name: String,
    },
}

/// A value for the relations of a heterogeneous graph: one for all relations, and others for some of them, by name.
///
/// The text form has values that are separated by semicolons: one for all relations, and others that begin with the name of a
/// relation and `=`.
///
/// ```
/// use kiln_graph::ByRelation;
/// let depths = ByRelation::parse("3;buys=1", |text| Ok::<u32, Box<dyn std::error::Error>>(text.parse()?))?;
/// assert_eq!(depths.of_all, Some(3));
/// assert_eq!(depths.of_relations, [("buys".to_owned(), 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByRelation<T> {
    /// The value of all relations without their own; `None` if the text has none.
    pub of_all: Option<T>,
    /// The names of other relations and their values.
    pub of_relations: Vec<(String, T)>,
}

/// An error in the text of a [`ByRelation`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ByRelationError {
    /// There are two values for all relations.
    #[error("expected one value without a name of a relation")]
    TwoOfAll,
    /// There are two values for one relation.
    #[error("the relation `{relation}` has two values")]
    TwoOfRelation {
        /// The name of the relation.
        relation: String,
    },
}

impl<T> Default for ByRelation<T> {
    fn default() -> Self {
        Self { of_all: None, of_relations: Vec::new() }
    }
}

impl<T> ByRelation<T> {
    /// Parses a text, of which `parse_value` parses each value.
    ///
    /// # Errors
    /// Returns the errors of `parse_value`, and those of [`ByRelationError`].
    pub fn parse<E: From<ByRelationError>>(
        text: &str,
        mut parse_value: impl FnMut(&str) -> std::result::Result<T, E>,
    ) -> std::result::Result<Self, E> {
        let mut values = Self::default();
        for part in text.split(';') {
            // Names of relations may contain the sign.
            let (name, value) =
                part.rsplit_once('=').map_or((None, part), |(name, value)| (Some(name), value));
            let value = parse_value(value)?;
            match name.map(str::trim) {
                None if values.of_all.is_none() => values.of_all = Some(value),
                None => return Err(ByRelationError::TwoOfAll.into()),
                Some(name) if values.of_relations.iter().any(|(other, _)| other == name) => {
                    return Err(ByRelationError::TwoOfRelation { relation: name.to_owned() }.into());
                }
                Some(name) => values.of_relations.push((name.to_owned(), value)),
            }
        }
        Ok(values)
    }
}

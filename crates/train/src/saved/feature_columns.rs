//! The feature columns and edge types of a model, and those of the data of its predictions.

use std::sync::Arc;

use kiln_feature::{FeatureColumn, FeatureStore, order_of_columns, with_column_order};

use crate::error::Result;
use crate::saved::error::{ModelError, ModelNodesError};
use crate::saved::model::SavedModel;

impl SavedModel {
    /// Returns features with their columns in the order of the training data, after a comparison of what they mean with the
    /// columns of the training data. `node_type` is the name of the type of the nodes, `node` if there is one, and `columns` are
    /// those of the features. If the columns of either have no names, the features are returned as they are.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use kiln_feature::{FeatureColumn, FeatureStore};
    /// # use kiln_train::SavedModel;
    /// # fn example(features: Arc<dyn FeatureStore>) -> kiln_train::Result<()> {
    /// let model = SavedModel::open("runs/sage")?; // of the columns `plan` and `age`
    /// let columns = [FeatureColumn::new("age", "numeric"), FeatureColumn::new("plan", "ordinal")];
    /// let features = model.reorder_columns("node", &features, &columns)?; // `plan` comes first
    /// # let _ = features;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`ModelNodesError::OtherColumns`] with the first difference.
    pub fn reorder_columns(
        &self,
        node_type: &str,
        features: &Arc<dyn FeatureStore>,
        columns: &[FeatureColumn],
    ) -> Result<Arc<dyn FeatureStore>> {
        let Some(of_training) = self.info().inputs.feature_columns.get(node_type) else {
            return Ok(features.clone());
        };
        if columns.is_empty() {
            return Ok(features.clone());
        }
        let order = order_of_columns(of_training, columns).map_err(|difference| {
            let node_type = node_type.to_owned();
            ModelError::Nodes(ModelNodesError::OtherColumns { node_type, difference })
        })?;
        let Some(order) = order else { return Ok(features.clone()) };
        // A description that is not that of the features would select columns that they do not have.
        let expected = columns.iter().map(|column| column.width).sum();
        let got = features.dim();
        if expected != got {
            return Err(ModelError::Nodes(ModelNodesError::FeatureWidth { expected, got }).into());
        }
        Ok(with_column_order(features.clone(), order))
    }

    /// Returns a note if the columns of a type have names in the training data or in this data only, so that they cannot be
    /// compared. `columns` are those of each type of the data, by the name of the type.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// let model = SavedModel::open("runs/sage")?;
    /// // The columns of an array have no names.
    /// if let Some(note) = model.note_on_columns([("node", &[][..])]) {
    ///     println!("note: {note}");
    /// }
    /// # Ok::<(), kiln_train::Error>(())
    /// ```
    pub fn note_on_columns<'a>(
        &self,
        columns: impl IntoIterator<Item = (&'a str, &'a [FeatureColumn])>,
    ) -> Option<String> {
        let of_training = &self.info().inputs.feature_columns;
        let mut unnamed = Vec::new();
        let mut unnamed_in_training = Vec::new();
        for (node_type, columns) in columns {
            match (of_training.contains_key(node_type), columns.is_empty()) {
                (true, true) => unnamed.push(node_type),
                (false, false) => unnamed_in_training.push(node_type),
                _ => {}
            }
        }
        let places = [(unnamed, "this data"), (unnamed_in_training, "the training data")];
        let texts = places.into_iter().filter(|(types, _)| !types.is_empty()).map(|(types, place)| {
            format!("the feature columns of {} have no names in {place}", types.join(", "))
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| format!("{}, so only their number was compared", texts.join(", and ")))
    }
    /// Returns a note if the edge types that the model reads have names in the training data or in this data only, so that they
    /// cannot be compared. `names` are those of this data, by type.
    ///
    /// ```no_run
    /// # use kiln_train::SavedModel;
    /// let model = SavedModel::open("runs/rgcn")?;
    /// // The types of an array have no names.
    /// if let Some(note) = model.note_on_edge_types(&[]) {
    ///     println!("note: {note}");
    /// }
    /// # Ok::<(), kiln_train::Error>(())
    /// ```
    pub fn note_on_edge_types(&self, names: &[String]) -> Option<String> {
        let sampling = self.info().inputs.sampling.as_ref()?;
        let place = match (sampling.edge_type_names.is_empty(), names.is_empty()) {
            (false, true) => "this data",
            (true, false) if sampling.edge_types => "the training data",
            _ => return None,
        };
        Some(format!("the edge types have no names in {place}, so their numbers were compared"))
    }
}

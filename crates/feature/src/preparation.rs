//! The preparation of a dataset before training, recorded so that a trained model can prepare other data in the same
//! way. It is defined here because `kiln-data` performs the steps and `kiln-train` stores them, and neither depends on
//! the other.

use std::sync::Arc;

use kiln_graph::NodeId;

use crate::{Error, FeatureBuffer, FeatureDType, FeatureStore, Result, ScalingError};

/// The steps that prepared a dataset's graph and features for training, in the order in which they were applied. A
/// saved model contains them, because data for predictions must be prepared like the training data.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Preparation {
    /// The steps, first step first.
    pub steps: Vec<PreparationStep>,
}

/// One step of a [`Preparation`].
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum PreparationStep {
    /// The reverse of each edge was added, and duplicate edges were removed.
    Symmetrize,
    /// A self loop was added to each node that had none.
    SelfLoops,
    /// Each feature row was divided by its sum ([`normalize_row`]).
    RowNormalize,
    /// Each feature column was shifted and scaled.
    Scale(Scaling),
}

impl PreparationStep {
    /// Returns true for a step that changes the graph, false for one that changes features.
    pub fn is_of_graph(&self) -> bool {
        matches!(self, Self::Symmetrize | Self::SelfLoops)
    }
}

/// The shift and the factor of each feature column: `x` becomes `(x - means[c]) * factors[c]`, computed in f64.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Scaling {
    /// The mean of each column of the training data, `[dim]`.
    pub means: Vec<f64>,
    /// The reciprocal of the standard deviation of each column, `[dim]`; 0 for constant columns, which become 0.
    pub factors: Vec<f64>,
}

impl Scaling {
    /// Returns the scaling to mean 0 and standard deviation 1 for the columns of `values`, `[n_rows, dim]`, row-major.
    ///
    /// # Panics
    /// Panics if `dim` is 0.
    pub fn of_columns(values: &[f32], dim: usize) -> Self {
        let n_rows = (values.len() / dim).max(1) as f64;
        let mut means = vec![0.0; dim];
        for row in values.chunks_exact(dim) {
            for (mean, &value) in means.iter_mut().zip(row) {
                *mean += f64::from(value) / n_rows;
            }
        }
        let mut variances = vec![0.0; dim];
        for row in values.chunks_exact(dim) {
            for ((variance, &value), mean) in variances.iter_mut().zip(row).zip(&means) {
                *variance += (f64::from(value) - mean).powi(2) / n_rows;
            }
        }
        // The variance of a constant column may differ from 0 because the mean is rounded. Whether a column is constant
        // is therefore determined by comparing its values.
        let first: Vec<f32> = values.iter().take(dim).copied().collect();
        let mut varies = vec![false; dim];
        for row in values.chunks_exact(dim) {
            for ((varies, value), first) in varies.iter_mut().zip(row).zip(&first) {
                *varies |= value != first;
            }
        }
        let factors = variances
            .iter()
            .zip(&varies)
            .map(|(&variance, &varies): (&f64, &bool)| if varies { 1.0 / variance.sqrt() } else { 0.0 })
            .collect();
        Self { means, factors }
    }

    /// Scales one row, `[dim]`.
    pub fn scale_row(&self, row: &mut [f32]) {
        for ((value, mean), factor) in row.iter_mut().zip(&self.means).zip(&self.factors) {
            *value = ((f64::from(*value) - mean) * factor) as f32;
        }
    }

    fn check(&self, dim: usize) -> Result<()> {
        for (what, values) in [("means", &self.means), ("factors", &self.factors)] {
            if values.len() != dim {
                return Err(ScalingError::ScalingWidth { what, expected: dim, got: values.len() }.into());
            }
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                return Err(ScalingError::ScalingNotFinite { what, column, value: values[column] }.into());
            }
        }
        Ok(())
    }
}

/// Divides a row by its sum, computed in f64. A row whose sum is 0 is not changed.
///
/// # Errors
/// Returns the first negative value, for which the row is not changed.
pub fn normalize_row(row: &mut [f32]) -> Result<(), f32> {
    if let Some(&negative) = row.iter().find(|&&value| value < 0.0) {
        return Err(negative);
    }
    let sum: f64 = row.iter().map(|&value| f64::from(value)).sum();
    if sum != 0.0 {
        row.iter_mut().for_each(|value| *value = (f64::from(*value) / sum) as f32);
    }
    Ok(())
}

impl Preparation {
    /// Returns true if the reverse of each edge was added to the graph.
    pub fn symmetrizes(&self) -> bool {
        self.steps.contains(&PreparationStep::Symmetrize)
    }

    /// Returns true if a self loop was added to each node that had none.
    pub fn adds_self_loops(&self) -> bool {
        self.steps.contains(&PreparationStep::SelfLoops)
    }

    /// Checks that the steps suit features of `dim` columns.
    ///
    /// # Errors
    /// Returns [`ScalingError::ScalingWidth`] if a scaling has another number of columns, and
    /// [`ScalingError::ScalingNotFinite`] if a mean or factor is infinite or NaN.
    pub fn check(&self, dim: usize) -> Result<()> {
        self.steps.iter().try_for_each(|step| match step {
            PreparationStep::Scale(scaling) => scaling.check(dim),
            PreparationStep::Symmetrize | PreparationStep::SelfLoops | PreparationStep::RowNormalize => {
                Ok(())
            }
        })
    }

    /// Returns the features with the same steps applied to each row. Rows are changed when they are gathered, so this
    /// takes constant time and reads no row.
    ///
    /// # Errors
    /// Returns the errors of [`Preparation::check`].
    pub fn features(&self, source: Arc<dyn FeatureStore>) -> Result<Arc<dyn FeatureStore>> {
        let steps: Vec<PreparationStep> =
            self.steps.iter().filter(|step: &&PreparationStep| !step.is_of_graph()).cloned().collect();
        self.check(source.dim())?;
        Ok(if steps.is_empty() { source } else { Arc::new(PreparedFeatures { source, steps }) })
    }
}

/// Features whose rows are prepared when they are gathered, as 32-bit floats.
#[derive(Debug)]
struct PreparedFeatures {
    source: Arc<dyn FeatureStore>,
    /// The steps that change features.
    steps: Vec<PreparationStep>,
}

impl PreparedFeatures {
    fn prepare(&self, node: NodeId, row: &mut [f32]) -> Result<()> {
        for step in &self.steps {
            match step {
                PreparationStep::Symmetrize | PreparationStep::SelfLoops => {}
                PreparationStep::RowNormalize => {
                    normalize_row(row)
                        .map_err(|value| Error::from(ScalingError::NegativeFeature { node, value }))?;
                }
                PreparationStep::Scale(scaling) => scaling.scale_row(row),
            }
        }
        Ok(())
    }
}

impl FeatureStore for PreparedFeatures {
    fn dim(&self) -> usize {
        self.source.dim()
    }

    fn n_rows(&self) -> usize {
        self.source.n_rows()
    }

    fn dtype(&self) -> FeatureDType {
        FeatureDType::F32
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        // A source of 32-bit floats fills the caller's buffer, whose allocation is kept.
        let mut rows = match self.source.dtype() {
            FeatureDType::F32 => std::mem::take(out),
            half => FeatureBuffer::empty(half),
        };
        self.source.gather(ids, &mut rows)?;
        let mut rows = rows.into_f32();
        for (&node, row) in ids.iter().zip(rows.chunks_exact_mut(self.dim())) {
            self.prepare(node, row)?;
        }
        *out = FeatureBuffer::F32(rows);
        Ok(())
    }

    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        let source = self.source.in_memory()?;
        Some(Arc::new(Self { source, steps: self.steps.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::{DenseFeatures, FeatureArray};

    fn scaling() -> Scaling {
        Scaling { means: vec![1.0, 0.0], factors: vec![0.5, 2.0] }
    }

    fn prepared(rows: impl Into<FeatureArray>, steps: Vec<PreparationStep>) -> Result<Arc<dyn FeatureStore>> {
        Preparation { steps }.features(Arc::new(DenseFeatures::new(rows.into(), 2)?))
    }

    #[test]
    fn rows_are_prepared_in_the_order_of_the_steps() -> Result<()> {
        let steps = vec![
            PreparationStep::RowNormalize,
            PreparationStep::Symmetrize,
            PreparationStep::Scale(scaling()),
        ];
        let features = prepared(vec![1.0_f32, 3.0, 0.0, 0.0], steps)?;
        assert_eq!(features.row(NodeId(0))?, [(0.25 - 1.0) * 0.5, 1.5]);
        assert_eq!(features.row(NodeId(1))?, [-0.5, 0.0]);
        Ok(())
    }

    #[test]
    fn half_rows_are_prepared_as_32_bit_floats() -> Result<()> {
        let features = prepared(vec![f16::from_f32(3.0), f16::ONE], vec![PreparationStep::Scale(scaling())])?;
        assert_eq!(features.dtype(), FeatureDType::F32);
        let mut out = FeatureBuffer::default();
        features.gather(&[NodeId(0), NodeId(0)], &mut out)?;
        assert_eq!(out, FeatureBuffer::F32(vec![1.0, 2.0, 1.0, 2.0]));
        Ok(())
    }

    #[test]
    fn features_without_steps_are_the_source() -> Result<()> {
        let source: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(vec![1.0, 2.0], 2)?);
        let steps = vec![PreparationStep::Symmetrize, PreparationStep::SelfLoops];
        let features = Preparation { steps }.features(source.clone())?;
        assert!(Arc::ptr_eq(&source, &features));
        Ok(())
    }

    #[test]
    fn rejects_scaling_of_another_width_or_not_finite() {
        let wide = Scaling { means: vec![0.0; 3], factors: vec![1.0; 3] };
        let error = prepared(vec![0.0_f32; 4], vec![PreparationStep::Scale(wide)]).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Scaling(ScalingError::ScalingWidth { what: "means", expected: 2, got: 3 })
            ),
            "{error}"
        );
        let nan = Scaling { factors: vec![1.0, f64::NAN], ..scaling() };
        let error = prepared(vec![0.0_f32; 4], vec![PreparationStep::Scale(nan)]).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Scaling(ScalingError::ScalingNotFinite { what: "factors", column: 1, .. })
            ),
            "{error}"
        );
    }

    #[test]
    fn rejects_a_negative_feature_before_row_normalisation() -> Result<()> {
        let features = prepared(vec![0.0_f32, 1.0, 2.0, -1.0], vec![PreparationStep::RowNormalize])?;
        let error = features.row(NodeId(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node 1 has the feature -1, expected no negative values: the model divides each row by its sum"
        );
        Ok(())
    }
}

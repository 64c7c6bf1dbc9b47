use kiln_feature::{EdgeFeatures, Targets};
use kiln_graph::{LinkId, SharedArray};

use super::LinkTargets;
use super::link_values::LinkValues;
use crate::Result;
use crate::error::{LinkSplitError, require};
use crate::limits::numbers;

/// Links with target values and features: the edges whose classes, labels or numbers a model predicts.
impl LinkTargets {
    /// Sets the target values of the links: a class per link ([`Labels`](kiln_feature::Labels)), or several labels or numbers
    /// ([`TargetValues`](kiln_feature::TargetValues)), in the order of the links. Links without a value (a negative class, 255
    /// for a label, NaN for a number) may be in the list and in no part of the split.
    ///
    /// These are the `edge_label_index`, `edge_label` and `edge_attr` of PyG's `LinkNeighborLoader`:
    ///
    /// ```
    /// use kiln_data::{LinkSplit, LinkTargets, Split, synthetic};
    /// use kiln_feature::{EdgeFeatures, Labels};
    /// use kiln_graph::Links;
    /// let ring = synthetic::ring(10)?;
    /// // Five of the ring's edges are payments, the last of them a fraud; each has an amount.
    /// let payments = Links::new(vec![0, 1, 2, 3, 4], vec![1, 2, 3, 4, 5])?;
    /// let split = Split::random(payments.len(), [0.6, 0.2], 7)?;
    /// let targets = LinkTargets::new(payments, split)?
    ///     .with_values(Labels::new(vec![0, 0, 0, 0, 1], 2))?
    ///     .with_class_names(["honest", "fraud"])?
    ///     .with_features(EdgeFeatures::new(vec![10.0, 12.5, 9.0, 11.0, 990.0], 1)?)?;
    /// // The payments for validation and test, and their reverses, pass no messages.
    /// let split = LinkSplit::hold_out(&ring.graph, targets)?;
    /// assert_eq!(split.message().n_edges(), 20 - 2 * 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`LinkSplitError::RowCount`] unless there is a value for each link, [`LinkSplitError::NoTarget`] if a link of the
    /// split has none, and [`Error::Feature`](crate::Error::Feature) for an invalid value.
    pub fn with_values(mut self, values: impl Into<Targets<LinkId>>) -> Result<Self> {
        let values = values.into();
        self.values.class_names = numbers(values.n_outputs());
        self.values.targets = Some(values);
        self.check_values()?;
        Ok(self)
    }

    /// Sets the names of the classes, or of the columns of labels or numbers. The default are their numbers.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) unless there is a name for each class or column of
    /// [`LinkTargets::with_values`], which must be called before.
    pub fn with_class_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let n_outputs = self.values().map_or(0, Targets::n_outputs);
        let expected = "one for each class or column of the targets, which are set before";
        let got = format!("{} for {n_outputs}", names.len());
        require(names.len() == n_outputs, "the number of names of classes", expected, got)?;
        self.values.class_names = names;
        Ok(self)
    }

    /// Sets the feature rows of the links, in the order of the links, which a decoder of edges reads. They are those of the links
    /// themselves; the rows of the edges that pass messages are columns of the graph.
    ///
    /// # Errors
    /// Returns [`LinkSplitError::RowCount`] unless there is a row for each link, and [`LinkSplitError::RowNotFinite`] for a row with
    /// a value that is not finite.
    pub fn with_features(mut self, rows: impl Into<EdgeFeatures>) -> Result<Self> {
        self.values.features = Some(rows.into());
        self.check_features()?;
        Ok(self)
    }

    /// Sets the time of each link, in the order of the links, such as that of its edge: PyG's `edge_label_time`. A loader samples
    /// the nodes of a link at its time if messages pass at the times of items; others ignore it. The times are those of the data
    /// ([`DatasetTimes`](crate::DatasetTimes)).
    ///
    /// ```
    /// use kiln_data::{LinkTargets, Split};
    /// use kiln_graph::Links;
    /// // Node 0 pays node 1 twice: each payment is a link of its own.
    /// let payments = Links::new(vec![0, 0, 2], vec![1, 1, 1])?;
    /// let targets = LinkTargets::new(payments, Split::random(3, [0.4, 0.3], 7)?)?.with_times(vec![10, 20, 30])?;
    /// assert_eq!(targets.times().map(|times| times[1]), Some(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`LinkSplitError::RowCount`] unless there is a time for each link.
    pub fn with_times(mut self, times: impl Into<SharedArray<i64>>) -> Result<Self> {
        self.values.times = Some(times.into());
        self.check_times()?;
        Ok(self)
    }

    /// Returns the time of each link; `None` if links have none.
    pub fn times(&self) -> Option<&SharedArray<i64>> {
        self.values.times.as_ref()
    }

    /// Checks that the times are as many as the links.
    pub(super) fn check_times(&self) -> Result<()> {
        self.times().map_or(Ok(()), |times| check_count("times", self.links().len(), times.len()))
    }

    /// Sets values, features and times that [`LinkTargets::check`] must check before they are used.
    pub(crate) fn with_unchecked(
        mut self,
        targets: Option<(Targets<LinkId>, Vec<String>)>,
        features: Option<EdgeFeatures>,
        times: Option<SharedArray<i64>>,
    ) -> Self {
        let (targets, class_names) = targets.unzip();
        let class_names = class_names.unwrap_or_default();
        self.values = LinkValues { targets, class_names, features, times };
        self
    }

    /// Returns the target values of the links, by link; `None` for links that are only told from negatives.
    pub fn values(&self) -> Option<&Targets<LinkId>> {
        self.values.targets.as_ref()
    }

    /// Returns the names of the classes, or of the columns of labels or numbers; empty without target values.
    pub fn class_names(&self) -> &[String] {
        &self.values.class_names
    }

    /// Returns the feature rows of the links; row `i` is that of link `i`. `None` if the links have none.
    pub fn features(&self) -> Option<&EdgeFeatures> {
        self.values.features.as_ref()
    }

    /// Checks that the target values are as many as the links and valid, and that the links of the split have some.
    pub(super) fn check_values(&self) -> Result<()> {
        let Some(values) = self.values() else { return Ok(()) };
        check_count("target values", self.links().len(), values.len())?;
        values.validate()?;
        for (part, links) in self.split().parts() {
            if let Some(position) = links.iter().position(|link| !values.has_any(*link)) {
                let link = links[position].0;
                return Err(LinkSplitError::NoTarget { part, position, link }.into());
            }
        }
        Ok(())
    }

    /// Checks that the feature rows are as many as the links, and that their values are finite.
    pub(super) fn check_features(&self) -> Result<()> {
        let Some(features) = self.features() else { return Ok(()) };
        check_count("feature rows", self.links().len(), features.n_edges() as usize)?;
        let column = features.to_column();
        match column.first_not_finite() {
            Some(position) => {
                let link = (position / column.width()) as u32;
                let value = column.value(position).to_string();
                Err(LinkSplitError::RowNotFinite { link, value }.into())
            }
            None => Ok(()),
        }
    }
}

fn check_count(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(LinkSplitError::RowCount { what, expected, got }.into()) }
}

use kiln_graph::SharedArray;

use super::DatasetBuilder;
use crate::{TimeKind, TimeSplit};

impl DatasetBuilder<'_> {
    /// Sets the times of the nodes of the selected type, `[n_nodes_of_type]`. Those of edges are the column
    /// [`EdgeColumns::TIMES`](kiln_graph::EdgeColumns::TIMES) ([`DatasetBuilder::edge_column`], [`RelationEdges::columns`](kiln_graph::RelationEdges::columns)).
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[1, 2])
    ///     .features(vec![0.0; 3], 1)
    ///     .node_times(vec![2019, 2020, 2021])
    ///     .build()?;
    /// assert_eq!(data.node_time_range(0), Some([2019, 2021]));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn node_times(self, times: impl Into<SharedArray<i64>>) -> Self {
        self.describe(".node_times(times)", |of_type| of_type.times = Some(times.into()))
    }

    /// Sets the meaning of all times: integers by default.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_data::TimeKind;
    /// let date = TimeKind::Date.parse("2026-03-01")?;
    /// let data = Dataset::builder(2)
    ///     .edges(&[0], &[1])
    ///     .features(vec![0.0; 2], 1)
    ///     .node_times(vec![date; 2])
    ///     .time_kind(TimeKind::Date)
    ///     .build()?;
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn time_kind(self, kind: TimeKind) -> Self {
        Self { time_kind: kind, ..self }
    }

    /// Splits the nodes with targets by their times, instead of [`DatasetBuilder::split`]. Loaders then cut the messages of each
    /// phase ([`TimeSplit::cuts`]).
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_data::TimeSplit;
    /// let data = Dataset::builder(4)
    ///     .edges(&[0, 1, 2], &[1, 2, 3])
    ///     .features(vec![0.0; 4], 1)
    ///     .labels(vec![0, 1, 0, 1], 2)
    ///     .node_times(vec![2018, 2019, 2020, 2021])
    ///     .time_split(TimeSplit::new(None, 2020, 2021)?)
    ///     .build()?;
    /// assert_eq!(data.split().train.len(), 2);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn time_split(self, split: TimeSplit) -> Self {
        Self { time_split: Some(split), ..self }
    }
}

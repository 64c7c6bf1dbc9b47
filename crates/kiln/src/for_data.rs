use kiln_data::Dataset;
use kiln_graph::{EdgeColumn, EdgeColumns, Relation};
use kiln_nn::{GraphMetadata, ModelConfig};

/// Model configurations with defaults for a dataset.
pub trait ForData: ModelConfig {
    /// Returns the default configuration for the number of features and classes of a dataset. If the model can read edge
    /// features and the dataset has some, it is for their number of columns, else for the number of edge types if the model
    /// reads types.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // One feature column and two classes; the other settings are those of `SageConfig::new`.
    /// let config = SageConfig::for_data(&data).layers(2).hidden(64);
    /// assert_eq!((config.d_in, config.n_classes), (1, 2));
    /// # Ok::<(), Error>(())
    /// ```
    fn for_data(data: &impl DataDims) -> Self {
        let (d_in, n_classes) = data.dims();
        let edges = GraphMetadata { d_edge: data.d_edge(), ..GraphMetadata::default() };
        let config = Self::for_dims(d_in, n_classes).for_graph(&edges);
        // The types are counted only for a model that reads them, because that may read those of all edges.
        match config.requirements().n_relations {
            Some(_) => {
                let types = GraphMetadata { n_relations: data.n_edge_types(), ..GraphMetadata::default() };
                config.for_graph(&types)
            }
            None => config,
        }
    }
}

impl<C: ModelConfig> ForData for C {}

/// Data with known numbers of feature columns, classes and edge types, and edge features.
pub trait DataDims {
    /// Returns the number of feature columns, and the number of classes or target columns.
    fn dims(&self) -> (usize, usize);

    /// Returns the number of edge types, or `None` if edges have no types, or if it is unknown. It may read all types.
    fn n_edge_types(&self) -> Option<usize>;

    /// Returns the number of columns of the edge features, or `None` if edges have none.
    fn d_edge(&self) -> Option<usize> {
        None
    }

    /// Returns the number of columns of the edge features of each relation, `None` for a relation without features. The whole is
    /// `None` for a graph that is not heterogeneous.
    fn edge_widths(&self) -> Option<Vec<Option<usize>>> {
        None
    }
}

impl DataDims for Dataset {
    /// For a heterogeneous set whose types have features of several widths, or none, the number of feature columns is 0. A
    /// model of one width does not serve it, and its loader says so before the first step.
    fn dims(&self) -> (usize, usize) {
        let dims = Dataset::dims(self);
        let first = dims.first().copied().flatten();
        let d_in = first.filter(|_| dims.iter().all(|dim| *dim == first)).unwrap_or(0);
        (d_in, self.targets.as_ref().map_or(0, |targets| targets.values.n_outputs()))
    }

    fn n_edge_types(&self) -> Option<usize> {
        Dataset::n_edge_types(self)
    }

    fn d_edge(&self) -> Option<usize> {
        let graph = self.csc().ok()?;
        graph.columns().get(EdgeColumns::FEATURES).map(EdgeColumn::width)
    }

    fn edge_widths(&self) -> Option<Vec<Option<usize>>> {
        let width =
            |relation: &Relation| relation.graph.columns().get(EdgeColumns::FEATURES).map(EdgeColumn::width);
        self.is_heterogeneous().then(|| self.graph.iter().map(width).collect())
    }
}

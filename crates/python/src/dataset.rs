//! The class of datasets.

mod build;

use std::path::PathBuf;

use kiln::data::{Dataset as RustDataset, format};
use kiln::feature::{FeatureStore, Targets};
use kiln::graph::{ColumnValues, Csc, EdgeColumn, NodeId, SharedArray};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use self::build::{NodeArgs, RelationArgs, TargetArgs};
use crate::array;
use crate::batch::{as_tuple, attribute, edge_types};
use crate::error::{self, DataError};
use crate::guard;

/// A graph with features, targets and a split. It cannot be changed.
#[pyclass(frozen, module = "kiln._kiln")]
pub(crate) struct Dataset {
    data: RustDataset,
    /// The given number of each edge in the order of the adjacency, by relation; `None` for a relation with this order.
    origins: Vec<Option<SharedArray<i64>>>,
}

impl Dataset {
    fn new(data: RustDataset) -> Self {
        let origins = vec![None; data.graph.n_relations()];
        Self { data, origins }
    }

    pub(crate) fn data(&self) -> &RustDataset {
        &self.data
    }

    pub(crate) fn origins(&self) -> Vec<Option<SharedArray<i64>>> {
        self.origins.clone()
    }

    fn store(&self, node_type: usize) -> Option<&dyn FeatureStore> {
        self.data.features.get(node_type)?.as_deref()
    }

    fn csc_of(&self, relation: usize) -> PyResult<&Csc> {
        match relation < self.data.graph.n_relations() {
            true => Ok(&self.data.graph.relation(relation).graph),
            false => Err(PyKeyError::new_err(format!("there is no relation {relation}"))),
        }
    }
}

#[pymethods]
impl Dataset {
    /// Opens a folder, a file or a built-in set.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        guard::run(py, || Ok(Self::new(RustDataset::open(path).map_err(error::data)?)))
    }

    /// Builds a dataset from arrays. `types` are the names of the node types and their numbers of nodes.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        name: String,
        types: Vec<(String, usize)>,
        is_heterogeneous: bool,
        relations: Vec<RelationArgs<'_>>,
        nodes: Vec<NodeArgs<'_>>,
        targets: Option<TargetArgs<'_>>,
    ) -> PyResult<Self> {
        let given = build::Given::read(name, types, is_heterogeneous, relations, nodes, targets)?;
        guard::run(py, || {
            let (data, origins) = given.build()?;
            Ok(Self { data, origins })
        })
    }

    /// Writes the dataset to a new folder in the kiln format.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        guard::run(py, || format::write(&self.data, path).map_err(error::data))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.data.name
    }

    #[getter]
    fn is_heterogeneous(&self) -> bool {
        self.data.is_heterogeneous()
    }

    #[getter]
    fn node_types(&self) -> Vec<String> {
        self.data.graph.types().names().to_vec()
    }

    #[getter]
    fn edge_types<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        edge_types(&self.data).iter().map(|names| Ok(as_tuple(names).into_pyobject(py)?.into_any())).collect()
    }

    /// Returns the number of nodes of each type.
    #[getter]
    fn nodes_per_type(&self) -> Vec<usize> {
        let types = self.data.graph.types();
        (0..types.n_types()).map(|node_type| types.range(node_type).len()).collect()
    }

    /// Returns the number of edges of each relation.
    #[getter]
    fn edges_per_type(&self) -> Vec<u64> {
        self.data.graph.iter().map(|relation| relation.graph.n_edges()).collect()
    }

    /// Returns the number of feature columns of each node type; `None` for a type without features.
    #[getter]
    fn dims(&self) -> Vec<Option<usize>> {
        self.data.dims()
    }

    /// Returns the element type of the features of each node type: `f32`, `f16` or `bf16`.
    #[getter]
    fn dtypes(&self) -> Vec<Option<&'static str>> {
        let stores = self.data.features.iter();
        stores.map(|store| store.as_ref().map(|store| store.dtype().name())).collect()
    }

    /// Returns the element types of the columns of a relation's edges, by the names of their attributes in PyG.
    fn column_dtypes<'py>(&self, py: Python<'py>, relation: usize) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, column) in self.csc_of(relation)?.columns().iter() {
            dict.set_item(attribute(name), column.element_type())?;
        }
        Ok(dict)
    }

    /// Returns the features of a node type, `[n_nodes, dim]`, as a view; `None` if it has none.
    fn x<'py>(&self, py: Python<'py>, node_type: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(store) = self.store(node_type) else { return Ok(None) };
        let Some(dense) = store.as_dense() else {
            return Err(DataError::new_err("the features are sparse: take the rows of batches"));
        };
        array::view_rows(py, dense.rows(), dense.dim()).map(Some)
    }

    /// Returns the position of the node type with targets; `None` without targets.
    #[getter]
    fn target_type(&self) -> Option<usize> {
        self.data.targets.as_ref().filter(|_| self.data.has_targets()).map(|targets| targets.node_type)
    }

    /// Returns the number of classes, labels or columns of the targets; 0 without targets.
    #[getter]
    fn n_outputs(&self) -> usize {
        self.data.targets.as_ref().map_or(0, |targets| targets.values.n_outputs())
    }

    #[getter]
    fn class_names(&self) -> Vec<String> {
        self.data.class_names().to_vec()
    }

    /// Returns the classes, `[n]`, or the labels or numbers, `[n, n_columns]`, of the nodes with targets.
    fn y<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(targets) = self.data.targets.as_ref().filter(|_| self.data.has_targets()) else {
            return Ok(None);
        };
        let copied = match &targets.values {
            Targets::Classes(labels) => array::owned(py, labels.as_slice().to_vec()).into_any(),
            Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
                (Some(labels), _) => array::reshaped(array::owned(py, labels.to_vec()), values.n_columns())?,
                (None, Some(numbers)) => {
                    array::reshaped(array::owned(py, numbers.to_vec()), values.n_columns())?
                }
                (None, None) => return Ok(None),
            },
        };
        Ok(Some(copied))
    }

    /// Returns the nodes of the training, the validation and the test, numbered within their type.
    fn split<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let first = match &self.data.targets {
            Some(targets) => self.data.graph.types().range(targets.node_type).start,
            None => 0,
        };
        let mut parts = Vec::with_capacity(3);
        for (_, nodes) in self.data.split().parts() {
            let numbers: SharedArray<u32> = match first {
                0 => array::cast(nodes.clone()),
                first => nodes.iter().map(|node| node.0 - first).collect(),
            };
            parts.push(array::view(py, &numbers, &[numbers.len()])?);
        }
        Ok(parts)
    }

    /// Returns the edges of a relation as sources and destinations, `[2, n_edges]`, numbered within their types, in the order in
    /// which they were given, to which `e_id` of batches refers.
    fn edge_index<'py>(&self, py: Python<'py>, relation: usize) -> PyResult<Bound<'py, PyAny>> {
        let graph = self.csc_of(relation)?;
        let [srcs, _] = self.data.graph.schema().node_ranges(relation);
        let origins = self.origins[relation].as_ref();
        let n_edges = graph.indices().len();
        let edge_index = guard::run(py, || {
            graph.validate_indptr().map_err(error::data)?;
            let mut edge_index = vec![0_i64; 2 * n_edges];
            for (edge, (src, dst)) in graph.indices().iter().zip(graph.dsts()).enumerate() {
                let place = origins.map_or(edge, |origins| origins[edge] as usize);
                edge_index[place] = i64::from(src.0) - i64::from(srcs.start);
                edge_index[n_edges + place] = i64::from(dst.0);
            }
            Ok(edge_index)
        })?;
        array::shaped(array::owned(py, edge_index), [2, n_edges])
    }

    /// Returns the adjacency of a relation: the end of each destination's edges, and the sources. Those of a graph with one type of
    /// nodes are views.
    fn csc<'py>(&self, py: Python<'py>, relation: usize) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let graph = self.csc_of(relation)?;
        let [srcs, _] = self.data.graph.schema().node_ranges(relation);
        let indices: SharedArray<u32> = match srcs.start {
            0 => array::cast(graph.shared_indices()),
            first => graph.indices().iter().map(|src: &NodeId| src.0.wrapping_sub(first)).collect(),
        };
        let indptr = graph.shared_indptr();
        Ok((array::view(py, &indptr, &[indptr.len()])?, array::view(py, &indices, &[indices.len()])?))
    }

    /// Returns the columns of the edges of a relation as views in the order of the adjacency, by the names of their attributes in
    /// PyG.
    fn edge_columns<'py>(&self, py: Python<'py>, relation: usize) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, column) in self.csc_of(relation)?.columns().iter() {
            dict.set_item(attribute(name), column_view(py, column)?)?;
        }
        Ok(dict)
    }

    /// Returns the position in the adjacency of a relation of each edge in the given order; `None` if both orders are the same.
    fn adjacency_positions<'py>(
        &self,
        py: Python<'py>,
        relation: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.csc_of(relation)?;
        let Some(origins) = &self.origins[relation] else { return Ok(None) };
        let mut positions = vec![0_i64; origins.len()];
        for (position, origin) in origins.iter().enumerate() {
            positions[*origin as usize] = position as i64;
        }
        Ok(Some(array::owned(py, positions).into_any()))
    }

    /// Returns the times of the nodes of a type as a view; `None` if they have none.
    fn node_times<'py>(&self, py: Python<'py>, node_type: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.data.graph.types().n_types() <= node_type {
            return Err(PyValueError::new_err(format!("there is no node type {node_type}")));
        }
        let times = self.data.times.node_times(node_type);
        times.map(|times| array::view(py, times, &[times.len()])).transpose()
    }

    fn __repr__(&self) -> String {
        format!("<kiln.Dataset {}>", self.data)
    }
}

fn column_view<'py>(py: Python<'py>, column: &EdgeColumn) -> PyResult<Bound<'py, PyAny>> {
    let shape = [column.n_rows(), column.width()];
    match column.values() {
        ColumnValues::U8(values) => array::view(py, values, &shape[..1]),
        ColumnValues::I64(values) => array::view(py, values, &shape[..1]),
        ColumnValues::F32(values) => array::view_rows(py, &values.clone().into(), column.width()),
        ColumnValues::F16(values) => array::view_rows(py, &values.clone().into(), column.width()),
        ColumnValues::BF16(values) => array::view_rows(py, &values.clone().into(), column.width()),
        _ => Err(DataError::new_err(format!("a column of {} has no type in NumPy", column.element_type()))),
    }
}

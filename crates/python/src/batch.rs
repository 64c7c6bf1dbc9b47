//! Batches as dictionaries of arrays of NumPy.

use kiln::data::Dataset;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::array;
use crate::batcher::{BatchArrays, ColumnBuffer, ColumnRows, Pairs, TargetRows};
use crate::graph_arrays::{EdgesOfRelation, GraphArrays, NodesOfType};

/// The names of the parts of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    node_types: Vec<String>,
    /// The source type, the name and the destination type of each relation.
    edge_types: Vec<[String; 3]>,
    /// The position of the node type with targets.
    target_type: Option<usize>,
}

/// Returns the source type, the name and the destination type of each relation. A name that has all three, as those of edge types
/// do whose names are not unique, is that of its middle.
pub(crate) fn edge_types(data: &Dataset) -> Vec<[String; 3]> {
    let names = data.graph.types().names();
    let mut edge_types = Vec::with_capacity(data.graph.n_relations());
    for relation in data.graph.iter() {
        let [src, dst] = [relation.src_type, relation.dst_type].map(|node_type| names[node_type].clone());
        let inner = relation.name.strip_prefix(&format!("{src}__"));
        let inner = inner.and_then(|rest| rest.strip_suffix(&format!("__{dst}")));
        let name = inner.unwrap_or(&relation.name).to_owned();
        edge_types.push([src, name, dst]);
    }
    edge_types
}

impl Layout {
    pub(crate) fn of(data: &Dataset) -> Self {
        Self {
            node_types: data.graph.types().names().to_vec(),
            edge_types: edge_types(data),
            target_type: data.targets.as_ref().map(|targets| targets.node_type),
        }
    }

    /// Moves the arrays of a batch to Python, without copies.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>, batch: BatchArrays) -> PyResult<Bound<'py, PyDict>> {
        let BatchArrays { graphs, x, y, columns, e_id, input_id, seed_index, n_seeds, pairs } = batch;
        let all = PyList::empty(py);
        for ((graph, columns), e_id) in graphs.into_iter().zip(columns).zip(e_id) {
            all.append(self.graph(py, graph, columns, e_id)?)?;
        }
        for (name, rows) in self.node_types.iter().zip(x) {
            if let Some(rows) = rows {
                let x = array::owned_rows(py, rows.x, rows.dim)?;
                nodes_of(&all.get_item(0)?, name)?.set_item("x", x)?;
            }
        }
        if let (Some(targets), Some(node_type)) = (y, self.target_type) {
            let last = all.get_item(all.len() - 1)?;
            let y = match targets {
                TargetRows::Classes(classes) => array::owned(py, classes).into_any(),
                TargetRows::Values(values, n_columns) => {
                    array::reshaped(array::owned(py, values), n_columns)?
                }
            };
            nodes_of(&last, &self.node_types[node_type])?.set_item("y", y)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("graphs", all)?;
        dict.set_item("input_id", array::owned(py, input_id))?;
        dict.set_item("seed_index", array::owned(py, seed_index))?;
        dict.set_item("batch_size", n_seeds)?;
        if let Some(Pairs { srcs, dsts, n_negatives }) = pairs {
            dict.set_item("srcs", array::reshaped(array::owned(py, srcs), 1 + n_negatives)?)?;
            dict.set_item("dsts", array::reshaped(array::owned(py, dsts), 1 + n_negatives)?)?;
        }
        Ok(dict)
    }

    fn graph<'py>(
        &self,
        py: Python<'py>,
        graph: GraphArrays,
        columns: Vec<Vec<ColumnRows>>,
        e_id: Vec<Vec<i64>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let all_nodes = PyDict::new(py);
        for (name, NodesOfType { numbers, n_of_hop }) in self.node_types.iter().zip(graph.nodes) {
            let nodes = PyDict::new(py);
            let numbers: Vec<i64> = numbers.iter().map(|node| i64::from(node.0)).collect();
            nodes.set_item("n_id", array::owned(py, numbers))?;
            nodes.set_item("num_sampled_nodes", n_of_hop)?;
            all_nodes.set_item(name, nodes)?;
        }
        let all_edges = PyDict::new(py);
        for (((name, of_relation), columns), e_id) in
            self.edge_types.iter().zip(graph.edges).zip(columns).zip(e_id)
        {
            all_edges.set_item(as_tuple(name), edges(py, of_relation, columns, e_id)?)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("nodes", all_nodes)?;
        dict.set_item("edges", all_edges)?;
        Ok(dict)
    }
}

/// Returns an edge type as a tuple of Python.
pub(crate) fn as_tuple([src, name, dst]: &[String; 3]) -> (&str, &str, &str) {
    (src, name, dst)
}

fn nodes_of<'py>(graph: &Bound<'py, PyAny>, node_type: &str) -> PyResult<Bound<'py, PyAny>> {
    graph.get_item("nodes")?.get_item(node_type)
}

fn edges<'py>(
    py: Python<'py>,
    edges: EdgesOfRelation,
    columns: Vec<ColumnRows>,
    e_id: Vec<i64>,
) -> PyResult<Bound<'py, PyDict>> {
    let EdgesOfRelation { edge_index, n_of_hop, numbers } = edges;
    let dict = PyDict::new(py);
    let n_edges = numbers.len();
    let edge_index = array::shaped(array::owned(py, edge_index), [2, n_edges])?;
    dict.set_item("edge_index", edge_index)?;
    dict.set_item("e_id", array::owned(py, e_id))?;
    dict.set_item("num_sampled_edges", n_of_hop)?;
    for ColumnRows { name, rows, dim } in columns {
        let rows = match (rows, &*name) {
            (ColumnBuffer::Ints(values), _) => array::owned(py, values).into_any(),
            (ColumnBuffer::Floats(rows), "weights") => {
                array::owned_rows(py, rows, 1)?.call_method1("reshape", (-1,))?
            }
            (ColumnBuffer::Floats(rows), _) => array::owned_rows(py, rows, dim)?,
        };
        dict.set_item(attribute(&name), rows)?;
    }
    Ok(dict)
}

/// Returns the name that PyG gives a column of edges.
pub(crate) fn attribute(column: &str) -> &str {
    match column {
        "weights" => "edge_weight",
        "types" => "edge_type",
        "features" => "edge_attr",
        "times" => "edge_time",
        other => other,
    }
}

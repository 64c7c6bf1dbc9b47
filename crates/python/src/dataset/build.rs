//! Datasets of arrays that Python passes.

use kiln::data::{Dataset, DatasetBuilder};
use kiln::feature::FeatureArray;
use kiln::graph::{
    ColumnValues, Csc, CscBuilder, EdgeColumn, EdgeColumns, NodeId, NodeTypes, Relation, RelationEdges,
    Relations, SharedArray,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array;
use crate::error;

/// The name of the column that keeps the given number of each edge while edges are sorted. Only a column of times may have numbers of
/// 64 bits.
const ORIGINS: &str = "times";

/// A relation, as Python passes it: the entries of a dictionary.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RelationArgs<'py> {
    name: String,
    src_type: String,
    dst_type: String,
    /// The sources, or the ends of the edges of each destination if the edges are an adjacency.
    first: Bound<'py, PyAny>,
    /// The destinations, or the sources.
    second: Bound<'py, PyAny>,
    is_adjacency: bool,
    /// The names and the values of columns, and whether the values are the bits of bf16.
    columns: Vec<(String, Bound<'py, PyAny>, bool)>,
}

/// What belongs to the nodes of a type.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NodeArgs<'py> {
    node_type: String,
    x: Option<Bound<'py, PyAny>>,
    dim: usize,
    is_bf16: bool,
    times: Option<Bound<'py, PyAny>>,
    names: Option<Vec<String>>,
}

/// The targets and the split.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TargetArgs<'py> {
    node_type: String,
    /// `classes`, `multi_label` or `regression`.
    kind: String,
    values: Bound<'py, PyAny>,
    n_columns: usize,
    /// The nodes of the training, the validation and the test, numbered within their type.
    split: Vec<Bound<'py, PyAny>>,
}

/// The arrays of a dataset.
pub(super) struct Given {
    name: String,
    types: Vec<(String, usize)>,
    is_heterogeneous: bool,
    relations: Vec<GivenRelation>,
    nodes: Vec<GivenNodes>,
    targets: Option<GivenTargets>,
}

struct GivenRelation {
    name: String,
    src_type: String,
    dst_type: String,
    edges: GivenEdges,
    columns: EdgeColumns,
}

enum GivenEdges {
    List { srcs: SharedArray<u32>, dsts: SharedArray<u32> },
    Adjacency { indptr: SharedArray<u64>, indices: SharedArray<NodeId> },
}

struct GivenNodes {
    node_type: String,
    features: Option<(FeatureArray, usize)>,
    times: Option<SharedArray<i64>>,
    names: Option<Vec<String>>,
}

struct GivenTargets {
    node_type: String,
    values: GivenValues,
    n_columns: usize,
    split: [SharedArray<NodeId>; 3],
}

enum GivenValues {
    Classes(SharedArray<i32>),
    MultiLabel(SharedArray<u8>),
    Regression(SharedArray<f32>),
}

impl Given {
    /// Reads the arrays of Python, without copies where the types fit.
    pub(super) fn read(
        name: String,
        types: Vec<(String, usize)>,
        is_heterogeneous: bool,
        relations: Vec<RelationArgs<'_>>,
        nodes: Vec<NodeArgs<'_>>,
        targets: Option<TargetArgs<'_>>,
    ) -> PyResult<Self> {
        Ok(Self {
            name,
            types,
            is_heterogeneous,
            relations: relations.into_iter().map(GivenRelation::read).collect::<PyResult<_>>()?,
            nodes: nodes.into_iter().map(GivenNodes::read).collect::<PyResult<_>>()?,
            targets: targets.map(GivenTargets::read).transpose()?,
        })
    }

    /// Builds the dataset, and returns the given number of each edge by relation.
    pub(super) fn build(self) -> PyResult<(Dataset, Vec<Option<SharedArray<i64>>>)> {
        let types = NodeTypes::new(self.types.iter().map(|(name, n_nodes)| (name.as_str(), *n_nodes)));
        let types = types.map_err(error::data)?;
        let mut relations = Vec::with_capacity(self.relations.len());
        let mut origins = Vec::with_capacity(self.relations.len());
        for given in self.relations {
            let (relation, of_relation) = given.build(&types, self.is_heterogeneous)?;
            relations.push(relation);
            origins.push(of_relation);
        }
        let graph = Relations::new(types, relations).map_err(error::data)?;
        graph.validate().map_err(error::data)?;
        let mut builder = match self.is_heterogeneous {
            true => Dataset::builder_with_relations(&graph),
            false => {
                let csc = graph.relation(0).graph.clone();
                Dataset::builder(graph.n_nodes()).graph(csc)
            }
        };
        builder = builder.name(self.name);
        let has_features = self.is_heterogeneous || self.nodes.iter().any(|nodes| nodes.features.is_some());
        if !has_features {
            // The builder requires features of a graph with one type, but a loader does not.
            builder = builder.features(vec![0.0_f32; graph.n_nodes()], 1);
        }
        for nodes in self.nodes {
            builder = nodes.add_to(builder, self.is_heterogeneous);
        }
        if let Some(targets) = self.targets {
            builder = targets.add_to(builder, self.is_heterogeneous);
        }
        let mut data = builder.build().map_err(error::data)?;
        if !has_features {
            data.features = vec![None];
        }
        Ok((data, origins))
    }
}

impl GivenRelation {
    fn read(args: RelationArgs<'_>) -> PyResult<Self> {
        let RelationArgs { name, src_type, dst_type, first, second, is_adjacency, columns } = args;
        let edges = match is_adjacency {
            true => GivenEdges::Adjacency {
                indptr: array::cast::<i64, u64>(array::values(&first, "contiguous int64")?),
                indices: array::node_ids(&second, "indices")?,
            },
            false => GivenEdges::List {
                srcs: array::ids(&first, "edge_index[0]")?,
                dsts: array::ids(&second, "edge_index[1]")?,
            },
        };
        let mut all = EdgeColumns::default();
        for (name, values, is_bf16) in columns {
            all = all.with(name, read_column(&values, is_bf16)?).map_err(error::data)?;
        }
        Ok(Self { name, src_type, dst_type, edges, columns: all })
    }

    /// Builds the adjacency, and returns the given number of each of its edges; `None` if they had its order.
    fn build(
        self,
        types: &NodeTypes,
        is_heterogeneous: bool,
    ) -> PyResult<(Relation, Option<SharedArray<i64>>)> {
        let (graph, origins) = match &self.edges {
            GivenEdges::Adjacency { indptr, indices } => {
                (Csc::new(indptr.clone(), indices.clone()).map_err(error::data)?, None)
            }
            GivenEdges::List { srcs, dsts } => {
                let graph = self.sort(srcs, dsts, types, is_heterogeneous)?;
                let origins = match graph.columns().get(ORIGINS).map(EdgeColumn::values) {
                    Some(ColumnValues::I64(origins)) => Some(origins.clone()),
                    _ => None,
                };
                (graph, origins)
            }
        };
        let columns = match &origins {
            Some(origins) => ordered(&self.columns, origins, graph.n_edges())?,
            None => self.columns,
        };
        let graph = graph.with_columns(&columns).map_err(error::data)?.into();
        let src_type = types.require(&self.src_type).map_err(error::data)?;
        let dst_type = types.require(&self.dst_type).map_err(error::data)?;
        let relation = Relation { name: self.name, src_type, dst_type, graph };
        let is_ordered = origins.as_ref().is_some_and(|origins| origins.is_sorted());
        Ok((relation, origins.filter(|_| !is_ordered)))
    }

    /// Sorts edges by destination. The column [`ORIGINS`] of the result has the given number of each edge.
    fn sort(&self, srcs: &[u32], dsts: &[u32], types: &NodeTypes, is_heterogeneous: bool) -> PyResult<Csc> {
        let numbers: SharedArray<i64> = (0..srcs.len() as i64).collect();
        let numbers = EdgeColumn::new(numbers, 1).map_err(error::data)?;
        let numbered = EdgeColumns::default().with(ORIGINS, numbers).map_err(error::data)?;
        if !is_heterogeneous {
            let builder = CscBuilder::new(types.n_nodes()).columns(numbered);
            return builder.build(srcs, dsts).map_err(error::data);
        }
        let edges = RelationEdges::new(&self.name, &self.src_type, &self.dst_type, srcs, dsts);
        let edges = [RelationEdges { columns: Some(&numbered), ..edges }];
        let relations = Relations::from_edges(types.clone(), &edges).map_err(error::data)?;
        Ok(Csc::clone(&relations.relation(0).graph))
    }
}

/// Returns columns of edges in the order of the adjacency.
fn ordered(columns: &EdgeColumns, origins: &SharedArray<i64>, n_edges: u64) -> PyResult<EdgeColumns> {
    for (name, column) in columns.iter() {
        let got = column.n_rows() as u64;
        if got != n_edges {
            return Err(PyValueError::new_err(format!(
                "the column {name} of edges has {got} rows, expected {n_edges}, one per edge"
            )));
        }
    }
    columns.select(origins.iter().map(|origin| *origin as u64)).map_err(error::data)
}

fn read_column(values: &Bound<'_, PyAny>, is_bf16: bool) -> PyResult<EdgeColumn> {
    let shape: Vec<usize> = values.getattr("shape")?.extract()?;
    let width = shape.get(1).copied().unwrap_or(1);
    let of_ints = array::values::<u8>(values, "uint8").map(ColumnValues::from);
    let of_ints = of_ints.or_else(|_| array::values::<i64>(values, "int64").map(ColumnValues::from));
    let values = match of_ints {
        Ok(values) => values,
        Err(_) => match array::rows(values, is_bf16)? {
            FeatureArray::F32(values) => values.into(),
            FeatureArray::F16(values) => values.into(),
            FeatureArray::BF16(values) => values.into(),
            other => {
                return Err(PyValueError::new_err(format!("columns of {} are not possible", other.dtype())));
            }
        },
    };
    EdgeColumn::new(values, width).map_err(error::data)
}

impl GivenNodes {
    fn read(args: NodeArgs<'_>) -> PyResult<Self> {
        let NodeArgs { node_type, x, dim, is_bf16, times, names } = args;
        Ok(Self {
            node_type,
            features: x.map(|x| Ok::<_, PyErr>((array::rows(&x, is_bf16)?, dim))).transpose()?,
            times: times.map(|times| array::values(&times, "contiguous int64")).transpose()?,
            names,
        })
    }

    fn add_to<'a>(self, builder: DatasetBuilder<'a>, is_heterogeneous: bool) -> DatasetBuilder<'a> {
        let mut builder = if is_heterogeneous { builder.nodes(&self.node_type) } else { builder };
        if let Some((rows, dim)) = self.features {
            builder = builder.features(rows, dim);
        }
        if let Some(times) = self.times {
            builder = builder.node_times(times);
        }
        match &self.names {
            Some(names) => builder.node_names(names.iter().map(String::as_str)),
            None => builder,
        }
    }
}

impl GivenTargets {
    fn read(args: TargetArgs<'_>) -> PyResult<Self> {
        let TargetArgs { node_type, kind, values, n_columns, split } = args;
        let values = match &*kind {
            "classes" => GivenValues::Classes(array::values(&values, "contiguous int32")?),
            "multi_label" => GivenValues::MultiLabel(array::values(&values, "contiguous uint8")?),
            "regression" => GivenValues::Regression(array::values(&values, "contiguous float32")?),
            other => {
                return Err(PyValueError::new_err(format!(
                    "task is {other:?}, expected \"classes\", \"multi_label\" or \"regression\""
                )));
            }
        };
        let mut parts: [SharedArray<NodeId>; 3] = Default::default();
        for ((part, nodes), name) in parts.iter_mut().zip(&split).zip(["train", "val", "test"]) {
            *part = array::node_ids(nodes, name)?;
        }
        Ok(Self { node_type, values, n_columns, split: parts })
    }

    fn add_to<'a>(self, builder: DatasetBuilder<'a>, is_heterogeneous: bool) -> DatasetBuilder<'a> {
        let builder = if is_heterogeneous { builder.nodes(&self.node_type) } else { builder };
        let builder = match self.values {
            GivenValues::Classes(classes) => builder.labels(classes, self.n_columns),
            GivenValues::MultiLabel(labels) => builder.multi_label(labels, self.n_columns),
            GivenValues::Regression(values) => builder.regression(values, self.n_columns),
        };
        let [train, val, test] = self.split;
        builder.split(train, val, test)
    }
}

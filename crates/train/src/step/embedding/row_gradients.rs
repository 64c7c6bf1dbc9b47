use kiln_comm::Communicator;
use kiln_graph::NodeId;

use crate::error::{Error, Result, TrainerError};
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::task::metric_sums::LossWeight;

/// The gradients of some rows of a table, one per node, ascending by node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowGradients {
    nodes: Vec<NodeId>,
    values: Vec<f32>,
}

impl RowGradients {
    /// Creates the gradients of the rows of `nodes`, `[n, dim]`. The gradients of a node that occurs several times are added
    /// in their order.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::Gradients`] unless there is the same number of values for each node.
    pub fn new(nodes: Vec<NodeId>, values: Vec<f32>) -> Result<Self> {
        if !nodes.is_empty() && !values.len().is_multiple_of(nodes.len())
            || nodes.is_empty() && !values.is_empty()
        {
            return Err(EmbeddingError::Gradients { n_nodes: nodes.len(), n_values: values.len() }.into());
        }
        if nodes.is_sorted_by(|node, next| node < next) {
            return Ok(Self { nodes, values });
        }
        let dim = values.len() / nodes.len();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&position| nodes[position]);
        let mut sums =
            Self { nodes: Vec::with_capacity(nodes.len()), values: Vec::with_capacity(values.len()) };
        for position in order {
            let row = &values[position * dim..(position + 1) * dim];
            if sums.nodes.last() == Some(&nodes[position]) {
                let first = sums.values.len() - dim;
                sums.values[first..].iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            } else {
                sums.nodes.push(nodes[position]);
                sums.values.extend_from_slice(row);
            }
        }
        Ok(sums)
    }

    /// Returns the nodes, ascending.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the gradients, `[n_nodes, dim]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the gradients of the step's loss: the sum over the ranks, in their order, of the gradients times the rank's
    /// share of the step's weight, like [`HostAllReduce`](crate::HostAllReduce) for a model's parameters. All ranks get the
    /// same values. They exchange the rows of their batches, not the table: a rank sends 8 bytes, and 4 for each node and value. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if the ranks cannot communicate, and [`EmbeddingError::Gradients`] if their rows differ in width.
    pub fn sum_over_ranks(mut self, weight: LossWeight, comm: &mut dyn Communicator) -> Result<Self> {
        let LossWeight { own, all } = weight;
        if !(0.0..=all).contains(&own) || !all.is_finite() {
            let what = "the weight of a rank's items";
            let expected = "0 to the weight of all items";
            return Err(Error::Trainer(TrainerError::BadSetting { what, expected, got: own }));
        }
        // A step without weight, in which all targets are missing, has no gradients.
        let share = if all == 0.0 { 0.0 } else { (own / all) as f32 };
        self = self.scaled(share);
        if comm.rank_info().world_size == 1 {
            return Ok(self);
        }
        let mut nodes = Vec::new();
        let mut values = Vec::new();
        let mut dim = None;
        for bytes in comm.all_gather(&self.to_bytes())? {
            let of_rank = Self::from_bytes(&bytes)?;
            let n_nodes = of_rank.nodes.len();
            let n_values = of_rank.values.len();
            if n_nodes != 0 && *dim.get_or_insert(n_values / n_nodes) * n_nodes != n_values {
                return Err(EmbeddingError::Gradients { n_nodes, n_values }.into());
            }
            nodes.extend(of_rank.nodes);
            values.extend(of_rank.values);
        }
        Self::new(nodes, values)
    }

    /// Returns the gradients of this and then of `other`.
    pub(crate) fn and(mut self, mut other: Self) -> Result<Self> {
        self.nodes.append(&mut other.nodes);
        self.values.append(&mut other.values);
        Self::new(self.nodes, self.values)
    }

    /// Returns the gradients times a factor.
    pub(crate) fn scaled(mut self, factor: f32) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Returns the number of nodes, the nodes and the gradients in little-endian order.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = (self.nodes.len() as u64).to_le_bytes().to_vec();
        bytes.extend(self.nodes.iter().flat_map(|node| node.0.to_le_bytes()));
        bytes.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = || Error::from(EmbeddingError::Gradients { n_nodes: 0, n_values: bytes.len() / 4 });
        let (n_nodes, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
        let n_bytes =
            usize::try_from(u64::from_le_bytes(*n_nodes)).ok().and_then(|n_nodes| n_nodes.checked_mul(4));
        let (nodes, values) = n_bytes.and_then(|n_bytes| rest.split_at_checked(n_bytes)).ok_or_else(wrong)?;
        let nodes = nodes.as_chunks::<4>().0;
        let values = values.as_chunks::<4>().0;
        let nodes = nodes.iter().map(|word| NodeId(u32::from_le_bytes(*word))).collect();
        Self::new(nodes, values.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }
}

use std::fmt;
use std::sync::OnceLock;

use kiln_comm::Communicator;
use kiln_graph::NodeId;
use kiln_sample::RngKey;

use crate::error::{Error, Result};
use crate::step::embedding_error::EmbeddingError;
use crate::step::metric_sums::LossWeight;

/// A trainable row for each node of a type without features, `[n_nodes, dim]`, in host memory, with the moments of a sparse
/// Adam. Nodes are numbered within the type.
///
/// A step changes the rows that occur in its batch only. It is Adam (Kingma and Ba 2015) on these rows, in the form of
/// PyTorch's `SparseAdam`: for gradient `g`, moments `m` and `v`, and step `t` of the whole table, from 1,
///
/// ```text
/// m += (1 - β1) (g - m),  v += (1 - β2) (g² - v),  row -= rate √(1 - β2^t) / (1 - β1^t) · m / (√v + ε)
/// ```
///
/// The moments of other rows do not decay.
///
/// A node whose row was in no step, for example one that was added after training, is represented by the mean of the other
/// rows ([`NodeEmbedding::learned_rows`]).
///
/// [`TaskTrainer`](crate::TaskTrainer) does not use tables yet, and its checkpoints do not contain them: they are for training
/// loops of your own.
///
/// ```
/// use kiln_graph::NodeId;
/// use kiln_sample::RngKey;
/// use kiln_train::{NodeEmbedding, RowGradients, SparseAdamConfig};
/// let mut table = NodeEmbedding::new(3, 2, RngKey::new(0))?;
/// let before = table.rows(&[NodeId(0), NodeId(2)])?;
/// table.step(&RowGradients::new(vec![NodeId(2)], vec![1.0, -1.0])?, &SparseAdamConfig::default(), 0.1)?;
/// let after = table.rows(&[NodeId(0), NodeId(2)])?;
/// assert_eq!(after[..2], before[..2]);
/// // The first step of Adam is as large as the learning rate.
/// assert!((after[2] - (before[2] - 0.1)).abs() < 1e-6);
/// # Ok::<(), kiln_train::Error>(())
/// ```
#[derive(Clone)]
pub struct NodeEmbedding {
    dim: usize,
    values: Vec<f32>,
    means: Vec<f32>,
    mean_squares: Vec<f32>,
    is_learned: Vec<bool>,
    n_steps: usize,
    /// The mean of the learned rows, computed when it is first needed after a step.
    mean_row: OnceLock<Vec<f32>>,
}

/// The hyperparameters of [`NodeEmbedding::step`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SparseAdamConfig {
    /// The decay rates of the mean of the gradients and of the mean of their squares, in `[0, 1)`.
    pub betas: [f64; 2],
    /// The number added to the root of the mean square, above 0.
    pub epsilon: f32,
}

impl SparseAdamConfig {
    fn check(&self) -> Result<()> {
        let Self { betas, epsilon } = *self;
        if let Some(got) = betas.into_iter().find(|beta| !(0.0..1.0).contains(beta)) {
            return Err(Error::BadSetting {
                what: "a decay rate of the sparse Adam",
                expected: "0 to below 1",
                got,
            });
        }
        match 0.0 < epsilon && epsilon.is_finite() {
            true => Ok(()),
            false => Err(Error::BadSetting {
                what: "the epsilon of the sparse Adam",
                expected: "a positive number",
                got: epsilon.into(),
            }),
        }
    }

    /// Returns the step size of step `time`, from 1, with the correction of the moments, which start at zero.
    fn rate(&self, learning_rate: f64, time: i32) -> f32 {
        let [correction, of_squares] = self.betas.map(|beta| 1.0 - beta.powi(time));
        (learning_rate * of_squares.sqrt() / correction) as f32
    }

    /// Updates a row with a step size.
    fn update(&self, rate: f32, row: Row<'_>, gradient: &[f32]) {
        let [share, of_squares] = self.betas.map(|beta| (1.0 - beta) as f32);
        let Row { values, means, mean_squares } = row;
        for (((value, mean), mean_square), gradient) in
            values.iter_mut().zip(means).zip(mean_squares).zip(gradient)
        {
            *mean += (gradient - *mean) * share;
            *mean_square += (gradient * gradient - *mean_square) * of_squares;
            *value -= rate * (*mean / (mean_square.sqrt() + self.epsilon));
        }
    }
}

/// A row of a table with its moments.
struct Row<'a> {
    values: &'a mut [f32],
    means: &'a mut [f32],
    mean_squares: &'a mut [f32],
}

impl Default for SparseAdamConfig {
    /// Returns the values of PyTorch: 0.9, 0.999 and 1e-8.
    fn default() -> Self {
        Self { betas: [0.9, 0.999], epsilon: 1e-8 }
    }
}

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
    /// same values. They exchange the rows of their batches, not the table. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if the ranks cannot communicate, and [`EmbeddingError::Gradients`] if their rows differ in width.
    pub fn sum_over_ranks(mut self, weight: LossWeight, comm: &mut dyn Communicator) -> Result<Self> {
        let LossWeight { own, all } = weight;
        if !(0.0..=all).contains(&own) || !all.is_finite() {
            let (what, expected) = ("the weight of a rank's items", "0 to the weight of all items");
            return Err(Error::BadSetting { what, expected, got: own });
        }
        // A step without weight, in which all targets are missing, has no gradients.
        let share = if all == 0.0 { 0.0 } else { (own / all) as f32 };
        self.values.iter_mut().for_each(|value| *value *= share);
        if comm.rank_info().world_size == 1 {
            return Ok(self);
        }
        let (mut nodes, mut values, mut dim) = (Vec::new(), Vec::new(), None);
        for bytes in comm.all_gather(&self.to_bytes())? {
            let of_rank = Self::from_bytes(&bytes)?;
            let (n_nodes, n_values) = (of_rank.nodes.len(), of_rank.values.len());
            if n_nodes != 0 && *dim.get_or_insert(n_values / n_nodes) * n_nodes != n_values {
                return Err(EmbeddingError::Gradients { n_nodes, n_values }.into());
            }
            nodes.extend(of_rank.nodes);
            values.extend(of_rank.values);
        }
        Self::new(nodes, values)
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
        let (nodes, values) = (nodes.as_chunks::<4>().0, values.as_chunks::<4>().0);
        let nodes = nodes.iter().map(|word| NodeId(u32::from_le_bytes(*word))).collect();
        Self::new(nodes, values.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }
}

impl NodeEmbedding {
    /// Creates a table. The value in column `c` of node `v` is uniform in `±1 / √dim`, by word `c % 4` of
    /// `key.draw4(0, v, c / 4)`, so a node's row does not depend on the number of nodes.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::TooLarge`] without columns, for more than 2^32 - 1 nodes, or if the table does not fit in
    /// memory.
    pub fn new(n_nodes: usize, dim: usize, key: RngKey) -> Result<Self> {
        let too_large = || Error::from(EmbeddingError::TooLarge { n_nodes, dim });
        let n_rows = u32::try_from(n_nodes).map_err(|_| too_large())?;
        let n_values = n_nodes.checked_mul(dim).filter(|_| dim != 0).ok_or_else(too_large)?;
        let zeros = || {
            let mut zeros = Vec::new();
            zeros.try_reserve_exact(n_values).map_err(|_| too_large())?;
            zeros.resize(n_values, 0.0);
            Ok::<_, Error>(zeros)
        };
        let mut values = Vec::new();
        values.try_reserve_exact(n_values).map_err(|_| too_large())?;
        let (means, mean_squares) = (zeros()?, zeros()?);
        let scale = (dim as f32).sqrt().recip();
        for node in 0..n_rows {
            for group in 0..dim.div_ceil(4) {
                let words = key.draw4(0, node, group as u32);
                let n_columns = (dim - 4 * group).min(4);
                // The upper 24 bits of a draw are a number in [0, 1) that f32 represents exactly.
                let uniform = |word: u32| (word >> 8) as f32 / 16_777_216.0;
                values.extend(words[..n_columns].iter().map(|&word| (2.0 * uniform(word) - 1.0) * scale));
            }
        }
        Ok(Self {
            dim,
            values,
            means,
            mean_squares,
            is_learned: vec![false; n_nodes],
            n_steps: 0,
            mean_row: OnceLock::new(),
        })
    }

    /// Returns the number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.is_learned.len()
    }

    /// Returns the rows of nodes, `[n, dim]`, for training.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::NoRow`] for a node without a row.
    pub fn rows(&self, nodes: &[NodeId]) -> Result<Vec<f32>> {
        let mut rows = Vec::with_capacity(nodes.len() * self.dim);
        for &node in nodes {
            rows.extend_from_slice(&self.values[self.range(node)?]);
        }
        Ok(rows)
    }

    /// Returns the rows of nodes, `[n, dim]`, for predictions: a node that has no row, or whose row was in no step, gets the
    /// mean of the rows that were, or zeros if there are none.
    pub fn learned_rows(&self, nodes: &[NodeId]) -> Vec<f32> {
        let mean = self.mean_row.get_or_init(|| self.compute_mean_row());
        let mut rows = Vec::with_capacity(nodes.len() * self.dim);
        for &node in nodes {
            let is_learned = self.is_learned.get(node.index()).copied().unwrap_or(false);
            let range = node.index() * self.dim..(node.index() + 1) * self.dim;
            rows.extend_from_slice(if is_learned { &self.values[range] } else { mean });
        }
        rows
    }

    /// Returns the mean of the rows that were in a step; zeros if there are none.
    fn compute_mean_row(&self) -> Vec<f32> {
        let mut sums = vec![0.0_f64; self.dim];
        let mut n_learned = 0_u64;
        for (node, _) in self.is_learned.iter().enumerate().filter(|(_, is_learned)| **is_learned) {
            n_learned += 1;
            let row = &self.values[node * self.dim..(node + 1) * self.dim];
            sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sums.iter().map(|sum| (sum / n_learned.max(1) as f64) as f32).collect()
    }

    /// Runs one step of the sparse Adam on the rows of `gradients`. A step without rows counts, too.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::NoRow`] for a node without a row, [`EmbeddingError::Gradients`] if the gradients have another width, and
    /// [`Error::BadSetting`] for a setting out of range. The table is then unchanged.
    pub fn step(
        &mut self,
        gradients: &RowGradients,
        config: &SparseAdamConfig,
        learning_rate: f64,
    ) -> Result<()> {
        config.check()?;
        let rate = config.rate(learning_rate, i32::try_from(self.n_steps + 1).unwrap_or(i32::MAX));
        if !rate.is_finite() {
            let (what, expected) = ("the learning rate of the sparse Adam", "a finite number of f32");
            return Err(Error::BadSetting { what, expected, got: learning_rate });
        }
        let (n_nodes, n_values) = (gradients.nodes.len(), gradients.values.len());
        if n_nodes * self.dim != n_values {
            return Err(EmbeddingError::Gradients { n_nodes, n_values }.into());
        }
        if let Some(&last) = gradients.nodes.last() {
            // The nodes ascend, so all have a row if the last one has.
            self.range(last)?;
        }
        self.n_steps += 1;
        self.mean_row = OnceLock::new();
        for (position, &node) in gradients.nodes.iter().enumerate() {
            let row = node.index() * self.dim..(node.index() + 1) * self.dim;
            let gradient = &gradients.values[position * self.dim..(position + 1) * self.dim];
            let row = Row {
                means: &mut self.means[row.clone()],
                mean_squares: &mut self.mean_squares[row.clone()],
                values: &mut self.values[row],
            };
            config.update(rate, row, gradient);
            self.is_learned[node.index()] = true;
        }
        Ok(())
    }

    fn range(&self, node: NodeId) -> Result<std::ops::Range<usize>> {
        let n_nodes = self.n_nodes();
        match node.index() < n_nodes {
            true => Ok(node.index() * self.dim..(node.index() + 1) * self.dim),
            false => Err(EmbeddingError::NoRow { node, n_nodes }.into()),
        }
    }
}

impl fmt::Debug for NodeEmbedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dim, n_steps, .. } = self;
        f.debug_struct("NodeEmbedding")
            .field("n_nodes", &self.n_nodes())
            .field("dim", dim)
            .field("n_steps", n_steps)
            .finish_non_exhaustive()
    }
}

use std::collections::BTreeMap;
use std::fmt;

use kiln_comm::Communicator;
use kiln_graph::NodeId;
use kiln_sample::RngKey;

use crate::error::{Error, Result};

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
/// A node whose row no step has changed, for example one that was added after training, is represented by the mean of the
/// changed rows ([`NodeEmbedding::learned_rows`]).
///
/// ```
/// use kiln_graph::NodeId;
/// use kiln_sample::RngKey;
/// use kiln_train::{NodeEmbedding, RowGradients, SparseAdamConfig};
/// let mut table = NodeEmbedding::new(3, 2, RngKey::new(0));
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
    /// Updates a row in step `time`, from 1.
    fn update(&self, time: i32, rate: f64, row: Row<'_>, gradient: &[f32]) {
        let [correction, of_squares] = self.betas.map(|beta| 1.0 - beta.powi(time));
        let rate = (rate * of_squares.sqrt() / correction) as f32;
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
    /// Returns [`Error::RowGradients`] unless there is the same number of values for each node.
    pub fn new(nodes: Vec<NodeId>, values: Vec<f32>) -> Result<Self> {
        if !nodes.is_empty() && !values.len().is_multiple_of(nodes.len())
            || nodes.is_empty() && !values.is_empty()
        {
            return Err(Error::RowGradients { n_nodes: nodes.len(), n_values: values.len() });
        }
        if nodes.is_sorted_by(|node, next| node < next) {
            return Ok(Self { nodes, values });
        }
        let dim = values.len() / nodes.len();
        let mut sums = BTreeMap::<NodeId, Vec<f32>>::new();
        for (position, node) in nodes.into_iter().enumerate() {
            let row = &values[position * dim..(position + 1) * dim];
            sums.entry(node).and_modify(|sum| add(sum, row)).or_insert_with(|| row.to_vec());
        }
        Ok(Self { nodes: sums.keys().copied().collect(), values: sums.into_values().flatten().collect() })
    }

    /// Returns the nodes, ascending.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the gradients, `[n_nodes, dim]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Adds the gradients of all ranks, in the order of the ranks, so that all have the same sums. The ranks exchange the
    /// rows of their batches, not the table. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if the ranks cannot communicate, and [`Error::RowGradients`] if their rows differ in width.
    pub fn sum_over_ranks(self, comm: &mut dyn Communicator) -> Result<Self> {
        if comm.rank_info().world_size == 1 {
            return Ok(self);
        }
        let mut sent = (self.nodes.len() as u64).to_le_bytes().to_vec();
        sent.extend(self.nodes.iter().flat_map(|node| node.0.to_le_bytes()));
        sent.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        let (mut nodes, mut values, mut dim) = (Vec::new(), Vec::new(), None);
        for of_rank in comm.all_gather(&sent)? {
            let (n_nodes, rest) = of_rank.split_first_chunk::<8>().expect("each rank sends a number of rows");
            let n_nodes = u64::from_le_bytes(*n_nodes) as usize;
            let (of_nodes, of_values) = rest.split_at(4 * n_nodes);
            let n_values = of_values.len() / 4;
            if n_nodes == 0 {
                continue;
            }
            if *dim.get_or_insert(n_values / n_nodes) * n_nodes != n_values {
                return Err(Error::RowGradients { n_nodes, n_values });
            }
            let words = |bytes: &'_ [u8]| bytes.as_chunks::<4>().0.to_vec();
            nodes.extend(words(of_nodes).into_iter().map(|word| NodeId(u32::from_le_bytes(word))));
            values.extend(words(of_values).into_iter().map(f32::from_le_bytes));
        }
        Self::new(nodes, values)
    }
}

impl NodeEmbedding {
    /// Creates a table. The value in column `c` of node `v` is uniform in `±1 / √dim`, by word `c % 4` of
    /// `key.draw4(0, v, c / 4)`, so a node's row does not depend on the number of nodes.
    pub fn new(n_nodes: usize, dim: usize, key: RngKey) -> Self {
        let bound = (dim.max(1) as f32).sqrt().recip();
        let mut values = Vec::with_capacity(n_nodes * dim);
        for node in 0..n_nodes as u32 {
            for group in 0..dim.div_ceil(4) {
                let words = key.draw4(0, node, group as u32);
                let n_columns = (dim - 4 * group).min(4);
                // The upper 24 bits of a draw are a number in [0, 1) that f32 represents exactly.
                let uniform = |word: u32| (word >> 8) as f32 / 16_777_216.0;
                values.extend(words[..n_columns].iter().map(|&word| (2.0 * uniform(word) - 1.0) * bound));
            }
        }
        let zeros = vec![0.0; values.len()];
        Self {
            dim,
            values,
            means: zeros.clone(),
            mean_squares: zeros,
            is_learned: vec![false; n_nodes],
            n_steps: 0,
        }
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
    /// Returns [`Error::NoEmbedding`] for a node without a row.
    pub fn rows(&self, nodes: &[NodeId]) -> Result<Vec<f32>> {
        let mut rows = Vec::with_capacity(nodes.len() * self.dim);
        for &node in nodes {
            rows.extend_from_slice(&self.values[self.range(node)?]);
        }
        Ok(rows)
    }

    /// Returns the rows of nodes, `[n, dim]`, for predictions: a node that has no row, or whose row no step has changed, gets
    /// the mean of the changed rows, or zeros if there are none.
    pub fn learned_rows(&self, nodes: &[NodeId]) -> Vec<f32> {
        let mean = self.mean_row();
        let mut rows = Vec::with_capacity(nodes.len() * self.dim);
        for &node in nodes {
            let is_learned = self.is_learned.get(node.index()).copied().unwrap_or(false);
            let range = node.index() * self.dim..(node.index() + 1) * self.dim;
            rows.extend_from_slice(if is_learned { &self.values[range] } else { &mean });
        }
        rows
    }

    /// Returns the mean of the rows that steps have changed; zeros if there are none.
    fn mean_row(&self) -> Vec<f32> {
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
    /// Returns [`Error::NoEmbedding`] for a node without a row, and [`Error::RowGradients`] if the gradients have another
    /// width. The table is then unchanged.
    pub fn step(
        &mut self,
        gradients: &RowGradients,
        config: &SparseAdamConfig,
        learning_rate: f64,
    ) -> Result<()> {
        let (n_nodes, n_values) = (gradients.nodes.len(), gradients.values.len());
        if n_nodes * self.dim != n_values {
            return Err(Error::RowGradients { n_nodes, n_values });
        }
        if let Some(&last) = gradients.nodes.last() {
            // The nodes ascend, so all have a row if the last one has.
            self.range(last)?;
        }
        self.n_steps += 1;
        let time = i32::try_from(self.n_steps).unwrap_or(i32::MAX);
        for (position, &node) in gradients.nodes.iter().enumerate() {
            let row = node.index() * self.dim..(node.index() + 1) * self.dim;
            let gradient = &gradients.values[position * self.dim..(position + 1) * self.dim];
            let row = Row {
                means: &mut self.means[row.clone()],
                mean_squares: &mut self.mean_squares[row.clone()],
                values: &mut self.values[row],
            };
            config.update(time, learning_rate, row, gradient);
            self.is_learned[node.index()] = true;
        }
        Ok(())
    }

    fn range(&self, node: NodeId) -> Result<std::ops::Range<usize>> {
        let n_nodes = self.n_nodes();
        match node.index() < n_nodes {
            true => Ok(node.index() * self.dim..(node.index() + 1) * self.dim),
            false => Err(Error::NoEmbedding { node, n_nodes }),
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

fn add(sum: &mut [f32], row: &[f32]) {
    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
}

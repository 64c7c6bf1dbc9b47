pub(crate) mod embedding_error;
pub(crate) mod embeddings;
pub(crate) mod node_keys;
pub(crate) mod row_gradients;

use std::fmt;
use std::sync::OnceLock;

use kiln_graph::NodeId;
use kiln_sample::RngKey;

use crate::error::{Error, Result, TrainerError};
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::embedding::node_keys::NodeKeys;
use crate::step::embedding::row_gradients::RowGradients;

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
/// A [`TaskTrainer`](crate::TaskTrainer) trains the tables of its task ([`Task::embeddings`](crate::Task::embeddings)), and its
/// checkpoints contain them.
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
    /// The keys of the nodes; `None` if they have no names.
    keys: Option<NodeKeys>,
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
            return Err(Error::Trainer(TrainerError::BadSetting {
                what: "a decay rate of the sparse Adam",
                expected: "0 to below 1",
                got,
            }));
        }
        match 0.0 < epsilon && epsilon.is_finite() {
            true => Ok(()),
            false => Err(Error::Trainer(TrainerError::BadSetting {
                what: "the epsilon of the sparse Adam",
                expected: "a positive number",
                got: epsilon.into(),
            })),
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
        let means = zeros()?;
        let mean_squares = zeros()?;
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
            keys: None,
            mean_row: OnceLock::new(),
        })
    }

    /// Creates a table of trained rows, `[n_nodes, dim]`. The rows with 1 in `is_learned` were in a step.
    pub(crate) fn of_rows(
        dim: usize,
        values: Vec<f32>,
        is_learned: &[u8],
        keys: Option<NodeKeys>,
    ) -> NodeEmbedding {
        let means = vec![0.0; values.len()];
        let mean_squares = vec![0.0; values.len()];
        let is_learned = is_learned.iter().map(|&is_learned| is_learned != 0).collect();
        Self { dim, values, means, mean_squares, is_learned, n_steps: 0, keys, mean_row: OnceLock::new() }
    }

    /// Sets the keys by which rows are found in other data.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::Keys`] unless there is a key for each node.
    pub fn with_keys(self, keys: NodeKeys) -> Result<Self> {
        let expected = self.n_nodes();
        let got = keys.len();
        match expected == got {
            true => Ok(Self { keys: Some(keys), ..self }),
            false => Err(EmbeddingError::Keys { expected, got }.into()),
        }
    }

    /// Returns the keys by which rows are found in other data; `None` if the nodes have no names.
    pub fn keys(&self) -> Option<&NodeKeys> {
        self.keys.as_ref()
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
    /// [`TrainerError::BadSetting`] for a setting out of range. The table is then unchanged.
    pub fn step(
        &mut self,
        gradients: &RowGradients,
        config: &SparseAdamConfig,
        learning_rate: f64,
    ) -> Result<()> {
        config.check()?;
        let rate = config.rate(learning_rate, i32::try_from(self.n_steps + 1).unwrap_or(i32::MAX));
        if !rate.is_finite() {
            let what = "the learning rate of the sparse Adam";
            let expected = "a finite number of f32";
            return Err(Error::Trainer(TrainerError::BadSetting { what, expected, got: learning_rate }));
        }
        let nodes = gradients.nodes();
        let values = gradients.values();
        let n_nodes = nodes.len();
        let n_values = values.len();
        if n_nodes * self.dim != n_values {
            return Err(EmbeddingError::Gradients { n_nodes, n_values }.into());
        }
        if let Some(&last) = nodes.last() {
            // The nodes ascend, so all have a row if the last one has.
            self.range(last)?;
        }
        self.n_steps += 1;
        self.mean_row = OnceLock::new();
        for (position, &node) in nodes.iter().enumerate() {
            let row = node.index() * self.dim..(node.index() + 1) * self.dim;
            let gradient = &values[position * self.dim..(position + 1) * self.dim];
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

    /// Returns the values of all rows, and 1 for each row that was in a step, else 0.
    pub(crate) fn learned(&self) -> (&[f32], Vec<u8>) {
        (&self.values, self.is_learned.iter().map(|&is_learned| u8::from(is_learned)).collect())
    }

    /// Replaces the values of all rows, and which of them were in a step, by those of a table of the same shape.
    ///
    /// # Panics
    /// Panics if the table has another shape.
    pub(crate) fn set_learned(&mut self, rows: Self) {
        let shapes = [&rows, self].map(|table| [table.n_nodes(), table.dim]);
        assert_eq!(shapes[0], shapes[1], "the rows are those of another table");
        self.values = rows.values;
        self.is_learned = rows.is_learned;
        self.mean_row = OnceLock::new();
    }

    /// Returns the state of the sparse Adam: the number of steps, the means of the gradients and those of their squares.
    pub(crate) fn moments(&self) -> (usize, [&[f32]; 2]) {
        (self.n_steps, [&self.means, &self.mean_squares])
    }

    /// Replaces the state of the sparse Adam. Returns false, and changes nothing, if the moments are those of another table.
    pub(crate) fn set_moments(&mut self, n_steps: usize, [means, mean_squares]: [Vec<f32>; 2]) -> bool {
        let fits = [means.len(), mean_squares.len()] == [self.values.len(); 2];
        if fits {
            (self.n_steps, self.means, self.mean_squares) = (n_steps, means, mean_squares);
        }
        fits
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

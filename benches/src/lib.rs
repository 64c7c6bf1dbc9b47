//! What the benches share: the graphs they run on, a batch of seeds, and criterion's settings.
//!
//! A bench is called `stage/variant/size`. Everything is drawn from fixed keys, so that two runs of a
//! commit measure the same work. `cargo xtask bench` runs them and prints the rates.

use std::sync::Arc;
use std::time::Duration;

use criterion::Criterion;
use kiln_data::{Dataset, debian_packages, synthetic};
use kiln_graph::NodeId;
use kiln_sample::{BlockSampler, Fanout, NeighborSampler, RngKey, Sampled, Scratch, Seeds};

/// The allocator of the example programs, so that benches measure what they do.
#[global_allocator]
static ALLOCATOR: kiln_mem::LargeBuffers = kiln_mem::LargeBuffers::new();

/// Seeds of a batch.
pub const BATCH_SIZE: usize = 1024;

/// Neighbours for each layer of a batch, input layer first.
pub const FANOUTS: [Fanout; 3] = [Fanout::UpTo(10); 3];

/// A data set and how it is called in a bench's name.
#[derive(Debug)]
pub struct Input {
    /// The last part of a bench's name.
    pub name: &'static str,
    /// What is benched.
    pub dataset: Dataset,
}

/// A power-law graph of 2^17 nodes, 2^21 edges and 128 feature columns, too large for most caches; and
/// the built-in data set, which fits into them.
///
/// # Errors
/// When the built-in data set cannot be read.
pub fn inputs() -> Result<[Input; 2], kiln_data::Error> {
    Ok([
        Input { name: "rmat-17x16", dataset: synthetic::rmat(17, 16, 128, 0)? },
        Input { name: "debian-packages", dataset: debian_packages()? },
    ])
}

impl Input {
    /// [`BATCH_SIZE`] nodes from all over the graph.
    pub fn seeds(&self) -> Seeds {
        // Multiples of an odd number near the golden section of the ids lie evenly among them, and their
        // low bits differ, which tell a hub from a leaf in a synthetic power-law graph.
        let n_nodes = self.dataset.graph.n_nodes();
        let stride = (n_nodes as f64 * 0.618) as usize | 1;
        Seeds::nodes((0..BATCH_SIZE).map(|i| NodeId((i * stride % n_nodes) as u32)).collect())
    }

    /// [`BATCH_SIZE`] nodes of the training split.
    pub fn labelled_seeds(&self) -> Seeds {
        let train = &self.dataset.split.train;
        Seeds::nodes((0..BATCH_SIZE).map(|i| train[i * train.len() / BATCH_SIZE]).collect())
    }

    /// The sampler that every stage behind the sampler uses.
    pub fn sampler(&self) -> NeighborSampler {
        NeighborSampler::new(Arc::clone(&self.dataset.graph), FANOUTS)
    }

    /// One batch from it.
    ///
    /// # Errors
    /// When the graph is damaged.
    pub fn sampled(&self) -> Result<Sampled, kiln_sample::Error> {
        self.sampler().sample_blocks(&self.seeds(), RngKey::new(0), &mut Scratch::default())
    }
}

/// Criterion, set so that all stages together take less than three minutes; command-line arguments
/// change it further.
pub fn settings() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        // `cargo xtask bench` reads the samples themselves and no estimate that resampling gives.
        .nresamples(1000)
        .configure_from_args()
}

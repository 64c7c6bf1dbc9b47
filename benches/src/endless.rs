use std::fmt;

use kiln_loader::{Batcher, Batches, Loader, Phase};

/// An endless iterator over a loader's batches, epoch after epoch, for benches that measure a steady state.
pub struct Endless<F: Batcher> {
    loader: Loader<F>,
    epoch: u64,
    batches: Batches<F>,
}

impl<F: Batcher> Endless<F> {
    /// Creates an iterator over a loader's batches, from epoch 0 on. The loader's workers start immediately.
    pub fn new(loader: Loader<F>) -> Self {
        let batches = loader.epoch(Phase::Train { epoch: 0 });
        Self { loader, epoch: 0, batches }
    }
}

impl<F: Batcher> Iterator for Endless<F> {
    type Item = kiln_loader::Result<F::Batch>;

    /// Returns the next batch, or `None` if the loader's epochs have no steps.
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.batches.next() {
            return Some(batch);
        }
        self.epoch += 1;
        self.batches = self.loader.epoch(Phase::Train { epoch: self.epoch });
        self.batches.next()
    }
}

impl<F: Batcher> fmt::Debug for Endless<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endless").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

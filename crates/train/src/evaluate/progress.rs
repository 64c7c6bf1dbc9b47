use std::fmt;
use std::sync::Arc;

/// A callback for the progress of predictions, with the number of finished rows and of all rows. The default does
/// nothing.
#[derive(Clone, Default)]
pub(crate) struct OnProgress(Option<Arc<dyn Fn(u64, u64) + Send + Sync>>);

impl OnProgress {
    pub(crate) fn new(callback: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    pub(crate) fn report(&self, n_done: usize, n_rows: usize) {
        if let Some(callback) = &self.0 {
            callback(n_done as u64, n_rows as u64);
        }
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnProgress").field(&self.0.is_some()).finish()
    }
}

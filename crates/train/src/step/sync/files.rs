use std::path::PathBuf;

use crate::error::Result;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

impl<T: Task> TaskTrainer<T> {
    /// Checks that no mapped file of any rank was changed since it was mapped ([`kiln_graph::check_mapped_files`]),
    /// because an epoch that read a changed file is invalid. [`fit`](crate::fit) calls it before it writes a checkpoint
    /// or records an epoch. Returns the paths of this process's mapped files that were removed or replaced; the process
    /// continues to read the old contents. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`kiln_graph::Error::FileChanged`] on the rank that has mapped the file, and
    /// [`Error::Ranks`](crate::Error::Ranks) on the others.
    pub fn check_files(&mut self) -> Result<Vec<PathBuf>> {
        let own = kiln_graph::check_mapped_files();
        if self.comm().rank_info().world_size == 1 {
            return Ok(own?);
        }
        self.comm().set_stage("checking files");
        let failed = self.comm().all_gather(&[u8::from(own.is_err())])?;
        let replaced = own?;
        if failed.iter().any(|failed| failed == &[1]) {
            // The failed rank does not take part in this collective, so its error ends this rank as well.
            self.comm().all_gather(&[])?;
        }
        Ok(replaced)
    }
}

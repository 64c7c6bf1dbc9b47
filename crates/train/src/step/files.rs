use std::path::PathBuf;

use crate::error::Result;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

impl<T: Task> TaskTrainer<T> {
    /// Checks that no file that a process of the ranks has mapped was changed since, as
    /// [`kiln_graph::check_mapped_files`] does: an epoch that read such a file is worth nothing. [`fit`](crate::fit) calls
    /// it before it writes a checkpoint or records an epoch. Returns the files of this process that were replaced, whose
    /// old contents it still reads. A meeting.
    ///
    /// # Errors
    /// [`kiln_graph::Error::FileChanged`] on the rank that has mapped the file, and [`Error::Ranks`](crate::Error::Ranks) on the
    /// others.
    pub fn check_files(&mut self) -> Result<Vec<PathBuf>> {
        let own = kiln_graph::check_mapped_files();
        if self.comm().rank_info().world_size == 1 {
            return Ok(own?);
        }
        self.comm().set_stage("checking files");
        let failed = self.comm().all_gather(&[u8::from(own.is_err())])?;
        let replaced = own?;
        if failed.iter().any(|failed| failed == &[1]) {
            // The rank that failed does not take part any more: its error ends this one, too.
            self.comm().all_gather(&[])?;
        }
        Ok(replaced)
    }
}

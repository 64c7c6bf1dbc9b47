use std::path::PathBuf;

use kiln_store::paths::is_there;

use crate::table::{ReadLimit, TableFormat};
use crate::{Error, Result, SpecError};

/// The options of [`propose_spec`](crate::propose_spec).
#[derive(Debug, Clone)]
pub struct ProposalOptions {
    /// The path that the spec will have: its folder is the one to which the files of tables are relative, and its name without the
    /// extension is that of the set. `tables.yaml` in the current folder by default.
    pub spec: PathBuf,
    /// The maximum number of bytes on the heap. Columns with more different values than fit are compared by a sample of them, and
    /// the comments say so.
    pub memory_bytes: u64,
}

impl Default for ProposalOptions {
    /// Returns a limit of 1 GiB and a spec in the current folder.
    fn default() -> Self {
        Self { spec: PathBuf::from("tables").with_extension("yaml"), memory_bytes: ReadLimit::DEFAULT_BYTES }
    }
}

impl ProposalOptions {
    /// Checks that the path of the spec is that of a new file, whose name is none of a table.
    ///
    /// # Errors
    /// Returns [`SpecError::OutPath`] if it exists, or if its name ends as that of a table.
    pub fn check_path(&self) -> Result<()> {
        let refused = |what: &'static str| Error::Spec(SpecError::OutPath { path: self.spec.clone(), what });
        if TableFormat::of(&self.spec).is_some() {
            return Err(refused("is the name of a table: choose one that ends in .yaml"));
        }
        match is_there(&self.spec) {
            true => Err(refused("exists: choose another path, existing files are kept")),
            false => Ok(()),
        }
    }
}

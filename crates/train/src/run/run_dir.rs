use std::path::{Path, PathBuf};

use crate::error::{Error, Result, RunError};
use crate::run::folder::RunFolder;

/// The folder of a run, and whether the run starts or resumes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunDir {
    /// Starts a run in this folder, which must be new or empty.
    New(PathBuf),
    /// Starts a run in the folder `parent/name-001`, or in the one with the first free number.
    Numbered {
        /// The parent folder.
        parent: PathBuf,
        /// The prefix of the folder's name, such as the name of the program.
        name: String,
    },
    /// Resumes the run in this folder from its last checkpoint.
    Resume(PathBuf),
    /// Resumes the run in this folder if it has a checkpoint, and starts a run otherwise: for jobs that are restarted
    /// with the same command.
    StartOrResume(PathBuf),
}

impl RunDir {
    /// Returns the folder, or `None` if its number is chosen when it is created.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::New(path) | Self::Resume(path) | Self::StartOrResume(path) => Some(path),
            Self::Numbered { .. } => None,
        }
    }

    /// Checks, before data is read, that the folder can be opened: a new run has a new or empty folder, and a resumed one has a
    /// checkpoint. Another process may still use the folder before [`RunDir::open`].
    ///
    /// ```
    /// use kiln_train::RunDir;
    /// let root = tempfile::tempdir()?;
    /// RunDir::New(root.path().join("run")).check()?;
    /// let error = RunDir::Resume(root.path().join("run")).check().unwrap_err();
    /// assert!(error.to_string().contains("has no checkpoint"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`RunError::RunFolderNotEmpty`] and [`RunError::NoCheckpoint`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Numbered { .. } => Ok(()),
            Self::New(path) => RunFolder::check_empty(path),
            Self::Resume(path) => RunFolder::check_checkpoint(path),
            Self::StartOrResume(path) => {
                RunFolder::check_checkpoint(path).or_else(|_| RunFolder::check_empty(path))
            }
        }
    }

    /// Creates or opens the folder.
    ///
    /// # Errors
    /// Returns the errors of [`RunFolder::create`] if a run starts, and of [`RunFolder::open`] if it resumes.
    pub fn open(&self) -> Result<RunFolder> {
        match self {
            Self::New(path) => RunFolder::create(path),
            Self::Numbered { parent, name } => RunFolder::create_numbered(parent, name),
            Self::Resume(path) => RunFolder::open(path),
            Self::StartOrResume(path) => match RunFolder::open(path) {
                Err(Error::Run(RunError::NoCheckpoint { .. })) => RunFolder::create(path),
                opened => opened,
            },
        }
    }
}

use std::path::{Path, PathBuf};

use kiln_store::{Error as StoreError, array_folder};

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
    /// assert!(error.to_string().contains("does not exist"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`RunError::RunFolderNotEmpty`], [`RunError::NoCheckpoint`], and [`RunError::Io`] if the folder cannot be created.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Numbered { parent, .. } => check_parent(&parent.join("new")),
            Self::New(path) => check_new(path),
            Self::Resume(path) => RunFolder::check_checkpoint(path),
            Self::StartOrResume(path) => RunFolder::check_checkpoint(path).or_else(|_| check_new(path)),
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

/// Checks that a folder is absent or counts as empty, and that it can be created if it is absent.
fn check_new(path: &Path) -> Result<()> {
    RunFolder::check_empty(path)?;
    if path.exists() { Ok(()) } else { check_parent(path) }
}

/// Checks that a folder that does not exist can be created.
fn check_parent(path: &Path) -> Result<()> {
    match array_folder::check_new(path) {
        Err(StoreError::Io { path, source }) => Err(Error::Run(RunError::Io { path, source })),
        Err(_) => Err(Error::Run(RunError::RunFolderNotEmpty { path: path.to_owned() })),
        Ok(()) => Ok(()),
    }
}

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::run::folder::RunFolder;

/// The folder of a run, and whether the run starts or resumes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunDir {
    /// A run starts in this folder, which is new or empty.
    New(PathBuf),
    /// A run starts in the folder `parent/name-001`, or the one with the first number that is free.
    Numbered {
        /// The folder of the folders.
        parent: PathBuf,
        /// What is run.
        name: String,
    },
    /// The run of this folder resumes from its last checkpoint.
    Resume(PathBuf),
    /// The run of this folder resumes where there is a checkpoint, and starts otherwise: for jobs that are started again
    /// by the same command.
    StartOrResume(PathBuf),
}

impl RunDir {
    /// Makes or opens the folder.
    ///
    /// # Errors
    /// As [`RunFolder::create`] where a run starts, and as [`RunFolder::open`] where it resumes.
    pub fn open(&self) -> Result<RunFolder> {
        match self {
            Self::New(path) => RunFolder::create(path),
            Self::Numbered { parent, name } => RunFolder::create_numbered(parent, name),
            Self::Resume(path) => RunFolder::open(path),
            Self::StartOrResume(path) => match RunFolder::open(path) {
                Err(Error::NoCheckpoint { .. }) => RunFolder::create(path),
                opened => opened,
            },
        }
    }
}

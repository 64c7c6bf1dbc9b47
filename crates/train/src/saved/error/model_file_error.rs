use std::io;
use std::path::PathBuf;

use crate::saved::model_file::{MODEL_FILE, MODEL_FORMAT};

/// An error in the files of a saved model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFileError {
    /// A file of the run folder cannot be read.
    #[error("{path}: {source}: expected a run folder with {MODEL_FILE} and best.safetensors{suggestion}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// The runs in the folder or beside it, for the message; empty if there are none.
        suggestion: String,
    },
    /// The model's description is damaged: it is no JSON, or a field is missing or has an invalid value.
    #[error("{path}: {reason}: restore the file, or train again")]
    BadInfo {
        /// The path of the file.
        path: PathBuf,
        /// The field or position, and what was expected.
        reason: String,
    },
    /// The model's description has a format that this version of kiln does not know.
    #[error(
        "{path}: the format is {found}, expected at most {MODEL_FORMAT}: use a newer version of kiln ({version})"
    )]
    UnknownFormat {
        /// The path of the file.
        path: PathBuf,
        /// The format of the file.
        found: u64,
        /// The version of kiln that wrote the file, as text for the message.
        version: String,
    },
    /// No constructor is registered for the kind of the model.
    #[error(
        "{path}: the model is a {kind:?}, expected one of {known}: it is a model of another program, which can predict with it"
    )]
    UnknownKind {
        /// The path of the file.
        path: PathBuf,
        /// The kind in the file.
        kind: String,
        /// The registered kinds, separated by commas.
        known: String,
    },
    /// The weights are no safetensors file, do not fit the model's description, or have another hash.
    #[error("{path}: {reason}: expected the weights of {MODEL_FILE} in the same folder")]
    BadWeights {
        /// The path of the file.
        path: PathBuf,
        /// The first difference.
        reason: String,
    },
}

use std::path::PathBuf;

use crate::error::{Error, Result, RunError};
use crate::run::checkpoint::{Checkpoint, Fault};
use crate::run::folder::RunFolder;
use crate::run::identity::{RecordedIdentity, check_identity};

/// Returns the bytes of the newest undamaged checkpoint (empty if the folder has no checkpoint), and the error of the
/// first damaged checkpoint. Renames damaged checkpoints.
pub(crate) fn whole_checkpoint(
    folder: &RunFolder,
    identity: &RecordedIdentity,
) -> Result<(Vec<u8>, Option<String>)> {
    let mut damaged: Vec<(PathBuf, Error)> = Vec::new();
    for (path, bytes) in folder.checkpoints() {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(source) => {
                let error = Error::Run(RunError::Io { path: path.clone(), source });
                // After a transient error the file may be intact, so it is neither skipped nor renamed.
                if error.is_transient() {
                    return Err(error);
                }
                damaged.push((path, error));
                continue;
            }
        };
        match Checkpoint::read(&bytes) {
            Ok(checkpoint) => {
                check_identity(checkpoint.identity(), identity)?;
                damaged.iter().try_for_each(|(path, _)| folder.set_aside(path))?;
                return Ok((bytes, damaged.first().map(|(_, error)| error.to_string())));
            }
            Err(Fault::Damaged(reason)) => {
                damaged.push((path.clone(), Error::Run(RunError::BadFile { path, reason })))
            }
            Err(Fault::Version(version)) => {
                let reason = format!(
                    "it has format version {version}, which this program cannot read: resume with the program that \
                     wrote it"
                );
                return Err(Error::Run(RunError::BadFile { path, reason }));
            }
            Err(Fault::Contract(wrote)) => {
                let version = wrote.contract;
                let program = wrote.program();
                return Err(Error::Run(RunError::OtherContract { path, version, program }));
            }
        }
    }
    match damaged.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok((Vec::new(), None)),
    }
}

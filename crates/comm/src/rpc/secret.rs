use std::io::{self, Read};
use std::path::Path;

use crate::rpc::{Error, Result};

/// Returns the secret in the environment variable `name`, or in the file named by the variable `{name}_FILE`, or `None`
/// if neither is set. `var` returns the value of an environment variable; an empty value counts as not set.
///
/// # Errors
/// Returns [`Error::Secret`] if the file cannot be read, and [`Error::ReadableByOthers`] if other users can read it.
pub fn secret(name: &str, var: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let set = |name: &str| var(name).filter(|text| !text.is_empty());
    if let Some(secret) = set(name) {
        return Ok(Some(secret));
    }
    let name = format!("{name}_FILE");
    let Some(path) = set(&name) else { return Ok(None) };
    ensure_private(&name, Path::new(&path))?;
    let text = read_regular(Path::new(&path)).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    match text {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(source) => Err(Error::Secret { setting: format!("{name}={path}"), source }),
    }
}

/// The maximum size of a file with a token, a key or certificates, which may be those of many authorities.
const MOST_BYTES: u64 = 1 << 24;

/// Reads a regular file. A named pipe or a device would block, or have no end.
pub(super) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        let said = "not a regular file: pipes and devices cannot be read";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= MOST_BYTES {
        true => Ok(bytes),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MOST_BYTES} bytes"))),
    }
}

/// Checks that only its owner has permissions for a file with a secret; checks nothing on systems other than Unix.
/// `name` is the flag or variable that contains the path.
///
/// # Errors
/// Returns [`Error::Secret`] if the file's permissions cannot be read, and [`Error::ReadableByOthers`] if its group or
/// other users have any permission for it.
pub fn ensure_private(name: &str, path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let setting = format!("{name}={}", path.display());
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(source) => return Err(Error::Secret { setting, source }),
        };
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(Error::ReadableByOthers { setting });
        }
    }
    Ok(())
}

use std::sync::atomic::Ordering;

use kiln_data::{HashedPart, LinkTargets, hash_checked};
use kiln_train::DataHash;

/// The number of checks, each after 2 to 4 MiB, within which data is hashed before the run starts, in a few milliseconds.
const CHECKS_AT_ONCE: usize = 4;

/// Returns the hash that `hash` computes: at once for data of a few MiB, otherwise on a thread of its own while the run
/// trains. `hash` passes its argument on, to [`HashedPart::All`](kiln_data::HashedPart::All). It ends with an error when
/// the run has ended, or if a mapped file was truncated or modified in place meanwhile.
///
/// ```
/// use kiln::data::HashedPart;
/// let data = kiln::data::synthetic::ring(100)?;
/// let expected = data.hash()?;
/// let hash = kiln::hash_in_background(move |check| data.hash_of(HashedPart::All(check)));
/// assert_eq!(hash.wait()?, expected);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn hash_in_background(
    hash: impl Fn(&mut dyn FnMut() -> kiln_data::Result<()>) -> kiln_data::Result<String> + Send + 'static,
) -> DataHash {
    let mut n_checks = 0;
    let is_large = || {
        n_checks += 1;
        CHECKS_AT_ONCE < n_checks
    };
    if let Ok(hash) = hash_checked(&hash, is_large, kiln_graph::check_mapped_files) {
        return hash.into();
    }
    // The data is large, or cannot be hashed, which is an error of the first checkpoint.
    DataHash::later(move |is_unwanted| {
        hash_checked(&hash, || is_unwanted.load(Ordering::Relaxed), kiln_graph::check_mapped_files)
    })
}

/// Returns the hash of data that `hash` computes as for [`hash_in_background`], together with that of links if there are any.
pub(crate) fn hash_with_links(
    hash: impl Fn(&mut dyn FnMut() -> kiln_data::Result<()>) -> kiln_data::Result<String> + Send + 'static,
    links: Option<LinkTargets>,
) -> DataHash {
    hash_in_background(move |check| {
        let data = hash(check)?;
        let Some(links) = &links else { return Ok(data) };
        Ok(format!("{data}, links {}", links.hash_of(HashedPart::All(check))?))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, UNIX_EPOCH};

    use kiln_data::{Dataset, format, synthetic};

    use super::*;

    /// Checks that a hash of changed data is an error that names the file. `compute` gets the file of the features.
    fn check_changed(
        compute: impl Fn(&Dataset, &File, &mut dyn FnMut() -> kiln_data::Result<()>) -> kiln_data::Result<String>
        + Send
        + 'static,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        format::write(&synthetic::ring(1000).unwrap(), &path).unwrap();
        let data = format::open(&path).unwrap();
        let features = File::options().write(true).open(path.join("features.npy")).unwrap();
        let hash = hash_in_background(move |check| compute(&data, &features, check));
        let error = hash.wait().unwrap_err();
        let expected = "features.npy: the file was changed while it was mapped";
        assert!(matches!(error, kiln_train::Error::Run(kiln_train::RunError::DataHash { .. })), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn a_file_that_is_changed_while_it_is_hashed_is_an_error_that_names_it() {
        check_changed(|data, features, check| {
            check()?;
            features.set_modified(UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
            data.hash_of(HashedPart::All(check))
        });
    }

    #[test]
    fn a_file_that_is_truncated_before_it_is_hashed_is_an_error_that_names_it() {
        let is_at_once = AtomicBool::new(true);
        check_changed(move |data, features, check| {
            if is_at_once.swap(false, Ordering::Relaxed) {
                // Like data that is too large to be hashed before the run starts.
                features.set_len(100).unwrap();
                return Err(kiln_data::Error::HashCancelled);
            }
            data.hash_of(HashedPart::All(check))
        });
    }
}

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

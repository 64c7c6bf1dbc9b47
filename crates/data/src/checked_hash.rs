use crate::{Error, Result};

/// The number of checks between two checks of the mapped files, hence after 32 to 64 MiB: a check of hundreds of files
/// takes as long as hashing a few MiB.
const CHECKS_PER_FILE_CHECK: usize = 16;

/// Returns the value of `hash`, which passes its argument on to [`HashedPart::All`](crate::HashedPart::All). Each of its checks
/// asks `is_cancelled`. `check_files` checks the mapped files with the first of them, with every 16th, and after the last one.
///
/// ```
/// use kiln_data::{HashedPart, hash_checked};
/// let data = kiln_data::synthetic::ring(100)?;
/// let hash = |check: &mut dyn FnMut() -> kiln_data::Result<()>| data.hash_of(HashedPart::All(check));
/// assert_eq!(hash_checked(hash, || false, kiln_graph::check_mapped_files)?, data.hash()?);
/// # Ok::<(), kiln_data::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::HashCancelled`] if `is_cancelled` returned true, and the errors of `hash` and `check_files`.
pub fn hash_checked<R>(
    hash: impl Fn(&mut dyn FnMut() -> Result<()>) -> Result<String>,
    mut is_cancelled: impl FnMut() -> bool,
    check_files: impl Fn() -> kiln_graph::Result<R>,
) -> Result<String> {
    let mut n_checks = 0_usize;
    let value = hash(&mut || {
        if is_cancelled() {
            return Err(Error::HashCancelled);
        }
        let is_due = n_checks.is_multiple_of(CHECKS_PER_FILE_CHECK);
        n_checks += 1;
        if is_due {
            check_files()?;
        }
        Ok(())
    })?;
    check_files()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn files_are_checked_at_the_start_in_large_steps_and_at_the_end() {
        let (n_hashed, checked_at) = (Cell::new(0), RefCell::new(Vec::new()));
        let hash = |check: &mut dyn FnMut() -> Result<()>| {
            for _ in 0..40 {
                check()?;
                n_hashed.set(n_hashed.get() + 1);
            }
            Ok("value".to_owned())
        };
        let check_files = || {
            checked_at.borrow_mut().push(n_hashed.get());
            Ok(())
        };
        assert_eq!(hash_checked(hash, || false, check_files).unwrap(), "value");
        assert_eq!(*checked_at.borrow(), [0, 16, 32, 40]);
        // A cancelled computation ends at its next check.
        n_hashed.set(0);
        let cancelled = hash_checked(hash, || n_hashed.get() == 5, check_files);
        assert!(matches!(cancelled, Err(Error::HashCancelled)) && n_hashed.get() == 5);
    }
}

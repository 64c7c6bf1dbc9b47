//! The hash of data whose files change while it is computed.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use kiln::data::{Dataset, HashedPart, format, synthetic};
use kiln::hash_in_background;

/// Checks that a hash of changed data is an error that names the file. `compute` gets the file of the features.
fn check_changed(
    compute: impl Fn(&Dataset, &File, &mut dyn FnMut() -> kiln::data::Result<()>) -> kiln::data::Result<String>
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
    assert!(matches!(error, kiln::train::Error::Run(kiln::train::RunError::DataHash { .. })), "{error}");
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
            return Err(kiln::data::Error::HashCancelled);
        }
        data.hash_of(HashedPart::All(check))
    });
}

use std::fmt;

/// The exit status of a program whose command line is wrong, the same as for the errors that clap finds.
pub const EXIT_USAGE: u8 = 2;

/// An error in the command line that the parser cannot find: a flag that does not apply, or a path that cannot be what its
/// flag needs. [`bail`](crate::bail) and [`ensure`](crate::ensure) return it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError(
    /// The message: what is wrong, and what to do.
    pub String,
);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns a [`UsageError`] with a formatted text from a function.
///
/// ```
/// fn select(ranks: usize) -> Result<(), Box<dyn std::error::Error>> {
///     kiln_usage::bail!("--ranks {ranks} needs processes: remove it");
/// }
/// assert!(select(2).unwrap_err().is::<kiln_usage::UsageError>());
/// ```
#[macro_export]
macro_rules! bail {
    ($($text:tt)*) => {
        return Err($crate::UsageError(format!($($text)*)).into())
    };
}

/// Returns a [`UsageError`] with a formatted text from a function unless a condition holds.
///
/// ```
/// fn check(ranks: usize) -> Result<(), Box<dyn std::error::Error>> {
///     kiln_usage::ensure!(ranks == 1, "--ranks {ranks} needs processes: remove it");
///     Ok(())
/// }
/// assert!(check(1).is_ok() && check(2).is_err());
/// ```
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::bail!($($text)*)
        }
    };
}

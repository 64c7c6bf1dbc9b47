//! Which rows of remote nodes a feature store finds in its caches: the static cache of a partition (`hot`) and the dynamic
//! cache (`sieve`).

pub(crate) mod hot;
pub(crate) mod sieve;

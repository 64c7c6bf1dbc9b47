//! The thresholds by which sections, tags and words are kept.

/// The thresholds for classes and words, and the width of the features. Tests use smaller numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The minimum number of packages of a section that becomes a class.
    pub(crate) min_packages: usize,
    /// The minimum number of source packages of a section that becomes a class.
    pub(crate) min_sources: usize,
    /// The minimum number of descriptions that contain a word; rarer words are dropped.
    pub(crate) min_documents: usize,
    /// The number of feature columns.
    pub(crate) n_columns: usize,
    /// The minimum number of source packages of a section that becomes a class of source packages.
    pub(crate) min_class_sources: usize,
}

/// The rules of the built-in data sets.
pub(crate) const RULES: Rules =
    Rules { min_packages: 100, min_sources: 40, min_documents: 3, n_columns: 128, min_class_sources: 100 };

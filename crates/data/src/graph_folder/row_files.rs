use std::borrow::Cow;
use std::path::Path;

use kiln_store::array_folder::{ElementType, Entries, Known, bad_key, check_together, missing_entry};

use crate::Result;
use crate::arrays::numbered;

/// The names of the files of feature rows: one dense array, or the three arrays of a CSR matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFiles {
    /// The file of the dense array `[n_rows, dim]`.
    pub dense: Cow<'static, str>,
    /// The files of the CSR matrix: the offsets of each row's values, the column of each value, and the values.
    pub sparse: [Cow<'static, str>; 3],
}

/// The file names of a data set's feature rows: the dense array, and the three arrays of a CSR matrix.
pub(crate) const FEATURE_FILES: [&str; 4] =
    ["features.npy", "features_indptr.npy", "features_indices.npy", "features_data.npy"];

/// The file names of a data set's feature rows.
pub const FEATURES: RowFiles = RowFiles::new(FEATURE_FILES);

impl RowFiles {
    /// Returns files with these names: the dense array first, then the three arrays of a CSR matrix.
    pub const fn new([dense, indptr, columns, values]: [&'static str; 4]) -> Self {
        let sparse = [Cow::Borrowed(indptr), Cow::Borrowed(columns), Cow::Borrowed(values)];
        Self { dense: Cow::Borrowed(dense), sparse }
    }

    /// Returns the files of the node type at a position, such as `features.2.npy` ([`numbered`]).
    pub fn of_type(&self, position: usize) -> Self {
        let number = |name: &Cow<'static, str>| Cow::Owned(numbered(name, position));
        Self { dense: number(&self.dense), sparse: self.sparse.each_ref().map(number) }
    }

    /// Returns the types and shapes of these files for `n_rows` rows. All are optional here; [`RowFiles::check`]
    /// checks that the set has the dense array or all three sparse ones.
    pub fn known(&self, n_rows: usize, dim: usize) -> [Known; 4] {
        use ElementType::{BF16, F16, F32, U32, U64};
        let known = |name: &Cow<'static, str>, types, shape| Known {
            name: name.clone(),
            types,
            shape,
            is_needed: false,
        };
        let [indptr, columns, values] = &self.sparse;
        [
            known(&self.dense, &[F32, F16, BF16], Some(vec![n_rows, dim])),
            known(indptr, &[U64], Some(vec![n_rows.saturating_add(1)])),
            known(columns, &[U32], None),
            known(values, &[F32], None),
        ]
    }

    /// Checks that the entries contain either the dense array or all three sparse ones. If `are_needed` is false, all
    /// four may be absent.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Metadata`] if entries are missing or both forms are present.
    pub fn check(&self, path: &Path, entries: &Entries, are_needed: bool) -> Result<()> {
        let has = |name: &str| entries.contains_key(name);
        let n_sparse = self.sparse.iter().filter(|name| has(name)).count();
        match (has(&self.dense), n_sparse) {
            (false, 0) if are_needed => Err(missing_entry(path, &self.dense).into()),
            (_, 0) | (false, 3) => Ok(()),
            (true, 3) => {
                let expected = format!("{} or {}", self.dense, self.sparse[0]);
                Err(bad_key(path, "files", expected, "both").into())
            }
            _ => Ok(check_together(path, entries, &self.sparse.each_ref().map(|name| &**name))?),
        }
    }
}

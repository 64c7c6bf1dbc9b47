//! The keys of a table that its Parquet file declares, as RelBench writes them: three entries of the file's metadata in JSON.

use std::collections::BTreeMap;

use crate::Result;
use crate::table::AllColumns;

/// The keys of a table and the column of its times, by the names of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredKeys {
    /// The column of the keys; `None` for a table without them.
    pub(super) key: Option<String>,
    /// The table to whose keys each column refers.
    pub(super) references: BTreeMap<String, String>,
    /// The column of the times; `None` for a table without them.
    pub(super) time: Option<String>,
}

impl DeclaredKeys {
    /// Reads the keys that the first file of a table declares; `None` if it declares none.
    ///
    /// # Errors
    /// Returns the errors of reading the file.
    pub(super) fn read(columns: &AllColumns) -> Result<Option<Self>> {
        let entries: BTreeMap<String, String> = columns.parquet_entries()?.into_iter().collect();
        let column = |name: &str| -> Option<String> {
            entries.get(name).and_then(|text| serde_json::from_str(text).ok()).flatten()
        };
        let references = entries.get("fkey_col_to_pkey_table").map(|text| serde_json::from_str(text));
        Ok(match references {
            Some(Ok(references)) => {
                Some(Self { key: column("pkey_col"), references, time: column("time_col") })
            }
            Some(Err(_)) | None => None,
        })
    }
}

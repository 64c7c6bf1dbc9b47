//! Node types without a table: the keys of their relations.

use std::ops::ControlFlow;

use super::{ImportedType, Importer};
use crate::join::{EndColumn, EndRows, MAX_ROWS};
use crate::key::{RowKey, map_keys};
use crate::key_file::KeyWriter;
use crate::row_ids::{RowIds, RowSet};
use crate::spill::KeyRecord;
use crate::table::table_of;
use crate::{Error, FittedNodeType, Result};

impl<'a> Importer<'a> {
    /// Makes a node of each key of the relations: its rows are those of all ends, one after the other.
    pub(super) fn type_from_relations(
        &self,
        position: usize,
        columns: &[EndColumn],
        used_bytes: u64,
    ) -> Result<(ImportedType<'a>, Vec<EndRows>)> {
        let spec = &self.spec.nodes[position];
        let label = table_of(&spec.name);
        let names = self.known.map(|known| known.nodes(position).names);
        let mut keys = KeyWriter::create(self.temporary, &format!("keys-of-type-{position}"), &label, names)?;
        let mut dropped = RowSet::default();
        let mut starts = vec![keys.n_rows];
        for column in columns {
            column.table.for_each_batch("reading keys", &mut |batch| {
                if MAX_ROWS < keys.n_rows + batch.n_rows as u64 {
                    let what = "too many rows in its relations".to_owned();
                    return Err(Error::TooLarge { table: label.clone(), what, max: MAX_ROWS });
                }
                let found = map_keys(batch, 0, column.key_type, |key| match key {
                    RowKey::Key(key) => Ok(key.to_vec()),
                    RowKey::Missing => Err(KeyRecord::Missing),
                    RowKey::Wrong => Err(KeyRecord::Wrong),
                });
                for key in found {
                    match &key {
                        Ok(key) => keys.write(KeyRecord::Key(key))?,
                        Err(record) => {
                            dropped.insert(keys.n_rows as u32);
                            keys.write(*record)?;
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
            starts.push(keys.n_rows);
        }
        let keys = keys.finish()?;
        let (_, first) = self.join(&label, &keys, &mut dropped, used_bytes, |join| join.find_first_rows())?;
        let rows = starts
            .iter()
            .zip(&starts[1..])
            .map(|(start, end): (&u64, &u64)| EndRows {
                file: first.file.clone(),
                start: *start,
                n_rows: end - start,
            })
            .collect();
        let ids = RowIds::new(keys.n_rows, dropped);
        self.check_known_ids(&ids, keys.n_known, &label)?;
        let fitted = FittedNodeType { name: spec.name.clone(), columns: Vec::new(), target: None };
        let imported = ImportedType {
            table: None,
            keys,
            ids,
            fitted,
            lacks_targets: false,
            n_known_rows: 0,
            n_other_parts: 0,
        };
        Ok((imported, rows))
    }
}

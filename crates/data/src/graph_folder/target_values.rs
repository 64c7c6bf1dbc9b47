//! The file of classes, or that of target values, of nodes, links or the rows of a task table.

use std::borrow::Cow;

use bytemuck::Pod;
use kiln_feature::{Labels, TargetValues, Targets};
use kiln_graph::ItemId;
use kiln_store::array_folder::{ArrayFolder, ElementType, FolderWriter, Known};

use crate::Result;

/// The names of the two files, of which a folder has one: the classes, `[n]`, and the target values, `[n, n_columns]`, u8 for several
/// labels and f32 for numbers.
#[derive(Debug, Clone)]
pub(crate) struct ValueFiles {
    pub(crate) labels: Cow<'static, str>,
    pub(crate) values: Cow<'static, str>,
}

impl ValueFiles {
    pub(crate) const fn new(labels: &'static str, values: &'static str) -> Self {
        Self { labels: Cow::Borrowed(labels), values: Cow::Borrowed(values) }
    }

    /// Returns the types and shapes of the files of `n_items` items with `n_outputs` classes or columns. One is needed.
    pub(crate) fn known(&self, has_values: bool, n_items: usize, n_outputs: usize) -> [Known; 2] {
        use ElementType::{F32, I32, U8};
        [
            Known {
                name: self.labels.clone(),
                types: &[I32],
                shape: Some(vec![n_items]),
                is_needed: !has_values,
            },
            Known {
                name: self.values.clone(),
                types: &[U8, F32],
                shape: Some(vec![n_items, n_outputs]),
                is_needed: has_values,
            },
        ]
    }

    /// Reads the file of a folder, whose values are not checked.
    pub(crate) fn read<I: ItemId>(&self, arrays: &ArrayFolder, n_outputs: usize) -> Result<Targets<I>> {
        let Self { labels, values } = self;
        Ok(match arrays.entries().get(&**values).map(|entry| entry.dtype) {
            None => Labels::new(arrays.values::<i32>(labels)?, n_outputs).into(),
            Some(ElementType::U8) => {
                TargetValues::multi_label(arrays.values::<u8>(values)?, n_outputs)?.into()
            }
            Some(_) => TargetValues::regression(arrays.values::<f32>(values)?, n_outputs)?.into(),
        })
    }

    /// Writes the file of these targets.
    pub(crate) fn write<I: ItemId>(&self, set: &mut FolderWriter, targets: &Targets<I>) -> Result<()> {
        match targets {
            Targets::Classes(labels) => {
                Ok(set.put(self.labels.clone(), ElementType::I32, labels.as_slice())?)
            }
            Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
                (Some(labels), _) => self.put_rows(set, ElementType::U8, values.n_columns(), labels),
                (None, numbers) => {
                    self.put_rows(set, ElementType::F32, values.n_columns(), numbers.unwrap_or_default())
                }
            },
        }
    }

    fn put_rows<T: Pod>(
        &self,
        set: &mut FolderWriter,
        dtype: ElementType,
        n_columns: usize,
        values: &[T],
    ) -> Result<()> {
        let mut rows = set.rows(self.values.clone(), dtype, n_columns)?;
        rows.push(values)?;
        Ok(set.add(rows)?)
    }
}

//! Columns of edges in arrays beside an edge list or a graph.

use std::ops::Range;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use kiln_feature::EdgeFeatures;
use kiln_graph::{ColumnValues, EdgeColumn, EdgeColumns};
use kiln_store::ArrayFile;
use kiln_store::array_folder::ElementType;
use kiln_store::npy::DType;
use kiln_store::paths::find;

use super::source::ColumnFormat;
use crate::arrays::{RowsOf, check_finite, column_value, row_shape, rows_of, written_type};
use crate::graph_folder::{column_files, column_in_file};
use crate::layout::Layout;
use crate::{Note, Result};

/// The number of values that are converted at a time.
const VALUES_AT_ONCE: usize = 1 << 10;

/// A column of edges in an array of its own.
#[derive(Debug)]
pub(crate) struct ColumnArray {
    pub(crate) format: ColumnFormat,
    array: ArrayFile,
}

impl ColumnArray {
    /// Opens the columns of edges in a folder: `weights.npy`, `edge_types.npy`, and a column for each other `edge_NAME.npy`. A
    /// note names a file of the latter form that is no column, because its values are no floats.
    pub(crate) fn open_all(folder: &Path, notes: &mut Vec<Note>) -> Result<Vec<Self>> {
        let mut columns = Vec::new();
        if let Some(path) = find(folder, &["weights.npy"]) {
            columns.push(Self::vector(path, DType::F32, ColumnFormat::weights())?);
        }
        if let Some(path) = find(folder, &["edge_types.npy"]) {
            columns.push(Self::vector(path, DType::U8, ColumnFormat::types())?);
        }
        for file in column_files(folder)? {
            let Some(name) = column_in_file(Layout::Plain, 0, &file) else {
                let path = folder.join(&file);
                let path = path.display();
                notes.push(Note::Other(format!(
                    "{path} is not read: a column of edges has a name of small letters, digits and underscores, and weights \
                     are in weights.npy"
                )));
                continue;
            };
            if name == EdgeColumns::TYPES {
                continue;
            }
            if name == EdgeColumns::TIMES {
                columns.push(Self::vector(folder.join(&file), DType::I64, ColumnFormat::times())?);
                continue;
            }
            let array = ArrayFile::open(folder.join(&file))?;
            let is_float = matches!(array.dtype(), DType::F16 | DType::F32 | DType::F64);
            if name != EdgeColumns::FEATURES && !is_float {
                let path = array.path().display();
                notes.push(Note::Other(format!(
                    "{path} is not read: a column of edges has floats (<f4 or <f2)"
                )));
                continue;
            }
            columns.push(Self::rows(array, name)?);
        }
        Ok(columns)
    }

    /// Returns the column of a name in an array of floats, `[n_edges, width]`.
    pub(crate) fn rows(array: ArrayFile, name: &str) -> Result<Self> {
        let element = written_type(&array)?;
        let width = row_shape(&array)?.1;
        Ok(Self { format: ColumnFormat { name: name.to_owned(), element, width }, array })
    }

    fn vector(path: PathBuf, dtype: DType, format: ColumnFormat) -> Result<Self> {
        let array = ArrayFile::open(path)?;
        array.check_vector_of(dtype)?;
        Ok(Self { format, array })
    }

    /// Returns the path of the array.
    pub(crate) fn path(&self) -> &Path {
        self.array.path()
    }

    /// Checks that the array was not written in place since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        Ok(self.array.check_unchanged()?)
    }

    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.array.shape().first().copied().unwrap_or(0)
    }

    /// Returns the noun for the number of rows in messages.
    pub(crate) fn count(&self) -> &'static str {
        match self.format.name.as_str() {
            EdgeColumns::WEIGHTS | EdgeColumns::TYPES | EdgeColumns::TIMES => "the number of entries",
            _ => RowsOf::Edges.count(),
        }
    }

    /// Appends the rows of a range of edges as little-endian bytes, in the element type of the format.
    pub(crate) fn push_rows(&self, edges: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let width = self.format.width;
        let row_bytes = width * self.array.dtype().bytes();
        let bytes = &self.array.value_bytes()[edges.start * row_bytes..edges.end * row_bytes];
        if self.format.name == EdgeColumns::TIMES {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let elements = edges.start * width..edges.end * width;
        check_finite(&self.array, elements, width, column_value(&self.format.name))?;
        if self.array.dtype() != DType::F64 {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        for piece in bytes.chunks(8 * VALUES_AT_ONCE) {
            let values = piece.chunks_exact(8).map(|bytes| bytemuck::pod_read_unaligned::<f64>(bytes) as f32);
            let values: Vec<f32> = values.collect();
            out.extend_from_slice(bytemuck::cast_slice(&values));
        }
        Ok(())
    }

    /// Returns the column, mapped if its element type allows it.
    pub(crate) fn column(&self, notes: &mut Vec<Note>) -> Result<EdgeColumn> {
        Ok(match self.format.name.as_str() {
            EdgeColumns::WEIGHTS => EdgeColumn::new(self.array.elements::<f32>()?, 1)?,
            EdgeColumns::TYPES => EdgeColumn::new(self.array.elements::<u8>()?, 1)?,
            EdgeColumns::TIMES => EdgeColumn::new(self.array.elements::<i64>()?, 1)?,
            _ => EdgeFeatures::from(rows_of(&self.array, RowsOf::Edges, notes)?).to_column(),
        })
    }
}

impl ColumnFormat {
    /// Returns the column of rows that were collected from chunks.
    pub(super) fn column_of(&self, bytes: &[u8]) -> Result<EdgeColumn> {
        let values: ColumnValues = match self.element {
            ElementType::U8 => bytes.to_vec().into(),
            ElementType::I64 => bytemuck::pod_collect_to_vec::<u8, i64>(bytes).into(),
            ElementType::F16 => bytemuck::pod_collect_to_vec::<u8, f16>(bytes).into(),
            ElementType::BF16 => bytemuck::pod_collect_to_vec::<u8, bf16>(bytes).into(),
            _ => bytemuck::pod_collect_to_vec::<u8, f32>(bytes).into(),
        };
        Ok(EdgeColumn::new(values, self.width)?)
    }
}

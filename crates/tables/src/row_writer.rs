use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, StringArray, UInt32Array,
};
use arrow_schema::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::io_error;
use crate::{Error, Result, TableFileError};

/// The maximum number of rows of a row group, which is in memory until it is written.
const GROUP_ROWS: usize = 1 << 16;

/// A column of rows for a [`RowWriter`].
#[derive(Debug, Clone, Copy)]
pub enum OutputColumn<'a> {
    /// Numbers.
    U32(&'a [u32]),
    /// Numbers, some of which are missing.
    OptionalU32(&'a [Option<u32>]),
    /// Numbers.
    F32(&'a [f32]),
    /// Numbers, some of which are missing.
    OptionalF32(&'a [Option<f32>]),
    /// Numbers of double precision, some of which are missing.
    OptionalF64(&'a [Option<f64>]),
    /// Texts.
    Text(&'a [&'a str]),
    /// Texts, some of which are missing.
    OptionalText(&'a [Option<&'a str>]),
    /// Rows of `width` numbers, `[n_rows, width]`: a list of fixed size in each row of the file.
    F32Rows {
        /// The numbers, row by row.
        values: &'a [f32],
        /// The number of columns, above 0.
        width: usize,
    },
}

/// Writes rows to a new Parquet file batch by batch, for example predictions with the keys of the nodes. Memory is that of
/// a row group of 65,536 rows. Columns are compressed by Snappy if the feature `snappy` is on.
///
/// ```
/// use kiln_tables::{OutputColumn, RowWriter};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("scores.parquet");
/// let mut writer = RowWriter::create(&path)?;
/// writer.write(&[
///     ("name", OutputColumn::Text(&["anna", "ben"])),
///     ("scores", OutputColumn::F32Rows { values: &[0.5, 0.1, -0.5, 0.2], width: 2 }),
/// ])?;
/// writer.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RowWriter {
    path: PathBuf,
    /// The file before the first batch, whose columns determine those of the file.
    file: Option<File>,
    writer: Option<ArrowWriter<File>>,
    /// The columns of the file, known after the first batch.
    schema: Option<Arc<Schema>>,
}

impl RowWriter {
    /// Creates a file, which must not exist.
    ///
    /// # Errors
    /// Returns [`Error::Store`] if the file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let file = File::create_new(&path).map_err(io_error(&path))?;
        Ok(Self { path, file: Some(file), writer: None, schema: None })
    }

    /// Appends rows, whose columns have the same length. The first call determines names, types and order of the columns; a call
    /// without rows does, too.
    ///
    /// # Errors
    /// Returns [`TableFileError::Written`] if the columns are others than those of the first call or have different
    /// lengths, and [`Error::DiskFull`] and [`Error::Store`] if the file cannot be written.
    pub fn write(&mut self, columns: &[(&str, OutputColumn<'_>)]) -> Result<()> {
        let arrays: Vec<ArrayRef> = columns.iter().map(|(_, column)| column.to_array()).collect();
        let schema = Arc::new(Schema::new(
            columns
                .iter()
                .zip(&arrays)
                .map(|((name, column), array): (&(&str, OutputColumn<'_>), &ArrayRef)| {
                    Field::new(*name, array.data_type().clone(), column.is_optional())
                })
                .collect::<Vec<_>>(),
        ));
        let batch = RecordBatch::try_new(schema.clone(), arrays);
        let batch = batch.map_err(|error| self.failed(ParquetError::from(error)))?;
        if self.schema.as_ref().is_some_and(|of_file| *of_file != schema) {
            let message = "the columns differ from those of the first rows".to_owned();
            return Err(Error::TableFile(TableFileError::Written { path: self.path.clone(), message }));
        }
        self.schema = Some(schema.clone());
        if let Some(file) = self.file.take() {
            let codec =
                if cfg!(feature = "snappy") { Compression::SNAPPY } else { Compression::UNCOMPRESSED };
            let properties = WriterProperties::builder()
                .set_compression(codec)
                .set_max_row_group_row_count(Some(GROUP_ROWS))
                .build();
            let writer = ArrowWriter::try_new(file, schema, Some(properties));
            self.writer = Some(writer.map_err(|error| self.failed(error))?);
        }
        let written = self.writer.as_mut().map_or(Ok(()), |writer| writer.write(&batch));
        written.map_err(|error| self.failed(error))
    }

    /// Writes the end of the file and syncs it to disk. Without any call of [`RowWriter::write`], the file is empty.
    ///
    /// # Errors
    /// Returns the errors of [`RowWriter::write`].
    pub fn finish(mut self) -> Result<()> {
        let file = match self.writer.take() {
            Some(writer) => Some(writer.into_inner().map_err(|error| self.failed(error))?),
            None => self.file.take(),
        };
        file.map_or(Ok(()), |file| file.sync_all()).map_err(io_error(&self.path))
    }

    fn failed(&self, error: ParquetError) -> Error {
        match error {
            ParquetError::External(source) if source.is::<std::io::Error>() => {
                let source = *source.downcast::<std::io::Error>().expect("the source should be an I/O error");
                io_error(&self.path)(source)
            }
            other => Error::TableFile(TableFileError::Written {
                path: self.path.clone(),
                message: other.to_string(),
            }),
        }
    }
}

impl OutputColumn<'_> {
    fn is_optional(self) -> bool {
        matches!(
            self,
            Self::OptionalU32(_) | Self::OptionalF32(_) | Self::OptionalF64(_) | Self::OptionalText(_)
        )
    }

    fn to_array(self) -> ArrayRef {
        match self {
            Self::U32(values) => Arc::new(UInt32Array::from(values.to_vec())),
            Self::OptionalU32(values) => Arc::new(UInt32Array::from(values.to_vec())),
            Self::F32(values) => Arc::new(Float32Array::from(values.to_vec())),
            Self::OptionalF32(values) => Arc::new(Float32Array::from(values.to_vec())),
            Self::OptionalF64(values) => Arc::new(Float64Array::from(values.to_vec())),
            Self::Text(texts) => Arc::new(StringArray::from(texts.to_vec())),
            Self::OptionalText(texts) => Arc::new(StringArray::from(texts.to_vec())),
            Self::F32Rows { values, width } => {
                let rows = values.chunks_exact(width.max(1));
                let rows = rows.map(|row| Some(row.iter().copied().map(Some)));
                Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, width as i32))
            }
        }
    }
}

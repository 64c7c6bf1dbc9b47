//! The files of scores and embeddings, in each format.

use std::fmt::Write as _;

use kiln::graph::ItemId;
use kiln::store::array_folder::{ArrayWriter, ElementType, FolderWriter, TextWriter};
use kiln::train::OutputRows;
#[cfg(feature = "tables")]
use kiln_tables::{OutputColumn, RowWriter};

use super::files::{Format, Request, push_values};

/// The content of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    Scores,
    Embeddings,
}

/// A file with a row per item.
pub(super) enum RowFile {
    Csv(TextWriter),
    Npy(Box<ArrayWriter>),
    #[cfg(feature = "tables")]
    Parquet {
        writer: Box<RowWriter>,
        kind: RowKind,
    },
}

impl RowKind {
    /// Starts the file of the format of a request, for rows of this width.
    pub(super) fn create<I: ItemId>(
        self,
        folder: &FolderWriter,
        request: &Request<'_, I>,
        width: usize,
    ) -> anyhow::Result<RowFile> {
        let [csv, npy] = match self {
            Self::Scores => ["scores.csv", "scores.npy"],
            Self::Embeddings => ["embeddings.csv", "embeddings.npy"],
        };
        match request.format {
            Format::Npy => Ok(RowFile::Npy(Box::new(folder.rows(npy, ElementType::F32, width)?))),
            Format::Csv => {
                let mut file = folder.text(csv)?;
                let columns: String = (0..width).map(|column| format!(",{column}")).collect();
                file.write(&format!("item{columns}\n"))?;
                Ok(RowFile::Csv(file))
            }
            #[cfg(feature = "tables")]
            Format::Parquet => {
                let path = folder.folder().join(csv).with_extension("parquet");
                let mut file = RowFile::Parquet { writer: Box::new(RowWriter::create(path)?), kind: self };
                // The file has its columns also without rows.
                file.write(request, &[], &OutputRows::new(Vec::new(), width))?;
                Ok(file)
            }
        }
    }
}

impl RowFile {
    /// Appends rows.
    pub(super) fn write<I: ItemId>(
        &mut self,
        request: &Request<'_, I>,
        items: &[I],
        rows: &OutputRows,
    ) -> anyhow::Result<()> {
        match self {
            Self::Npy(array) => Ok(array.push(rows.values())?),
            Self::Csv(file) => {
                let mut csv = String::new();
                for (item, row) in items.iter().zip(rows.rows()) {
                    let _ = write!(csv, "{}", item.get());
                    push_values(&mut csv, row);
                }
                Ok(file.write(&csv)?)
            }
            #[cfg(feature = "tables")]
            Self::Parquet { writer, kind } => write_parquet(writer, *kind, request, items, rows),
        }
    }

    pub(super) fn finish(self, folder: &mut FolderWriter) -> anyhow::Result<()> {
        match self {
            Self::Csv(file) => Ok(file.finish()?),
            Self::Npy(array) => Ok(folder.add(*array)?),
            #[cfg(feature = "tables")]
            Self::Parquet { writer, .. } => Ok(writer.finish()?),
        }
    }
}

/// Appends rows to a Parquet file: the ids, the names, of scores the labels and the predicted classes, and the values.
#[cfg(feature = "tables")]
fn write_parquet<I: ItemId>(
    writer: &mut RowWriter,
    kind: RowKind,
    request: &Request<'_, I>,
    items: &[I],
    rows: &OutputRows,
) -> anyhow::Result<()> {
    let ids: Vec<u32> = items.iter().map(|item| item.get()).collect();
    let names: Vec<&str> = items.iter().map(|item| request.name(*item)).collect();
    let mut columns = vec![("item", OutputColumn::U32(&ids))];
    if request.names.is_some() {
        columns.push(("name", OutputColumn::Text(&names)));
    }
    let has_classes = kind == RowKind::Scores && request.is_of_classes();
    let (classes, probabilities) = match has_classes {
        true => (rows.classes(), rows.confidences()),
        false => Default::default(),
    };
    let labels: Vec<Option<u32>> = items.iter().map(|item| request.label(*item)).collect();
    let class_names: Vec<&str> =
        classes.iter().map(|class| request.model.class_name(*class).unwrap_or_default()).collect();
    if has_classes {
        columns.push(("label", OutputColumn::OptionalU32(&labels)));
        columns.push(("class", OutputColumn::U32(&classes)));
        if request.model.class_name(0).is_some() {
            columns.push(("class_name", OutputColumn::Text(&class_names)));
        }
        columns.push(("probability", OutputColumn::F32(&probabilities)));
    }
    let values = OutputColumn::F32Rows { values: rows.values(), width: rows.width() };
    columns.push(match kind {
        RowKind::Scores => ("scores", values),
        RowKind::Embeddings => ("embedding", values),
    });
    Ok(writer.write(&columns)?)
}

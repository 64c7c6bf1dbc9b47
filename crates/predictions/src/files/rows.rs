//! The files of scores and embeddings, in each format.

use kiln_graph::ItemId;
#[cfg(feature = "tables")]
use kiln_graph::NodeId;
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter, TextWriter};
use kiln_store::csv::push_values;
#[cfg(feature = "tables")]
use kiln_tables::{OutputColumn, RowWriter};
use kiln_train::OutputRows;

#[cfg(feature = "tables")]
use super::request::EdgeEnds;
use super::request::PredictionRequest;
use crate::{PredictionFormat, Result};

/// The content of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    Scores,
    Embeddings,
}

/// A file with a row per item.
#[derive(Debug)]
pub(super) enum RowFile {
    Csv(TextWriter),
    Npy(Box<ArrayWriter>),
    #[cfg(feature = "tables")]
    Parquet {
        writer: Box<RowWriter>,
        kind: RowKind,
    },
}

impl RowFile {
    /// Starts the file of the format of a request, for rows of this width.
    pub(super) fn create<I: ItemId>(
        kind: RowKind,
        folder: &FolderWriter,
        request: &PredictionRequest<I>,
        width: usize,
    ) -> Result<Self> {
        let [csv, npy] = match kind {
            RowKind::Scores => ["scores.csv", "scores.npy"],
            RowKind::Embeddings => ["embeddings.csv", "embeddings.npy"],
        };
        match request.format {
            PredictionFormat::Npy => Ok(Self::Npy(Box::new(folder.rows(npy, ElementType::F32, width)?))),
            PredictionFormat::Csv => {
                let mut file = folder.text(csv)?;
                let columns: String = (0..width).map(|column| format!(",{column}")).collect();
                file.write(&format!("{}{columns}\n", request.id_columns()))?;
                Ok(Self::Csv(file))
            }
            #[cfg(feature = "tables")]
            PredictionFormat::Parquet => {
                let path = folder.folder().join(csv).with_extension("parquet");
                let mut file = Self::Parquet { writer: Box::new(RowWriter::create(path)?), kind };
                // The file has its columns also without rows.
                file.write(request, &[], &OutputRows::new(Vec::new(), width))?;
                Ok(file)
            }
        }
    }

    /// Appends rows.
    pub(super) fn write<I: ItemId>(
        &mut self,
        request: &PredictionRequest<I>,
        items: &[I],
        rows: &OutputRows,
    ) -> Result<()> {
        match self {
            Self::Npy(array) => Ok(array.push(rows.values())?),
            Self::Csv(file) => {
                let mut csv = String::new();
                for (&item, row) in items.iter().zip(rows.rows()) {
                    request.push_id(&mut csv, item);
                    push_values(&mut csv, row);
                }
                Ok(file.write(&csv)?)
            }
            #[cfg(feature = "tables")]
            Self::Parquet { writer, kind } => write_parquet(writer, *kind, request, items, rows),
        }
    }

    /// Completes the file.
    pub(super) fn finish(self, folder: &mut FolderWriter) -> Result<()> {
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
    request: &PredictionRequest<I>,
    items: &[I],
    rows: &OutputRows,
) -> Result<()> {
    let ids = request.ids(items);
    let names: Vec<&str> = items.iter().map(|item| request.name(*item)).collect();
    let mut columns = vec![("item", OutputColumn::U32(&ids))];
    let ends: Vec<[NodeId; 2]> = items.iter().filter_map(|item| request.ends_of(*item)).collect();
    let numbers = [0, 1].map(|end| match &request.ends {
        Some(EdgeEnds { nodes, .. }) => ends.iter().map(|ends| nodes.number(end, ends[end])).collect(),
        None => Vec::new(),
    });
    let end_names = [0, 1].map(|end| match &request.ends {
        Some(EdgeEnds { nodes, .. }) => ends.iter().map(|ends| nodes.name(end, ends[end])).collect(),
        None => Vec::new(),
    });
    if let Some(EdgeEnds { nodes, .. }) = &request.ends {
        let names = [("source", "source_name"), ("destination", "destination_name")];
        for (end, (number, name)) in names.into_iter().enumerate() {
            columns.push((number, OutputColumn::U32(&numbers[end])));
            if nodes.has_names(end) {
                columns.push((name, OutputColumn::Text(&end_names[end])));
            }
        }
    }
    if request.has_names() {
        columns.push(("name", OutputColumn::Text(&names)));
    }
    let has_classes = kind == RowKind::Scores && request.is_of_classes();
    let (classes, probabilities) = match has_classes {
        true => (rows.classes(), rows.confidences()),
        false => Default::default(),
    };
    let labels: Vec<Option<u32>> = items.iter().map(|item| request.label(*item)).collect();
    let class_names: Vec<Option<&str>> =
        classes.iter().map(|class| class.and_then(|class| request.model.class_name(class))).collect();
    if has_classes {
        columns.push(("label", OutputColumn::OptionalU32(&labels)));
        columns.push(("class", OutputColumn::OptionalU32(&classes)));
        if request.model.class_name(0).is_some() {
            columns.push(("class_name", OutputColumn::OptionalText(&class_names)));
        }
        columns.push(("probability", OutputColumn::OptionalF32(&probabilities)));
    }
    let values = OutputColumn::F32Rows { values: rows.values(), width: rows.width() };
    columns.push(match kind {
        RowKind::Scores => ("scores", values),
        RowKind::Embeddings => ("embedding", values),
    });
    Ok(writer.write(&columns)?)
}

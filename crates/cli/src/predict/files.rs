//! The files of `kiln predict`, which are written batch by batch.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use kiln::data::NodeNames;
use kiln::feature::{TargetKind, Targets};
use kiln::graph::{ItemId, NodeId};
use kiln::prelude::SavedModel;
use kiln::store::ArrayFile;
use kiln::store::array_folder::{ArrayWriter, ElementType, FolderWriter, TextWriter};
use kiln::train::{OutputRows, PredictedRows, push_target_header, push_target_row};

use super::rows::{RowFile, RowKind};

/// The format of scores and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text, one line per node or graph, which begins with its id.
    Csv,
    /// NumPy arrays of f32, with the ids in `items.npy`.
    Npy,
    /// Parquet files, with the id and the name of each node; scores also with label, class and probability.
    #[cfg(feature = "tables")]
    Parquet,
}

/// A request: the items, and what the files contain about them.
pub(super) struct Request<'a, I> {
    pub(super) items: &'a [I],
    pub(super) targets: &'a Targets<I>,
    pub(super) names: Option<&'a NodeNames>,
    pub(super) model: &'a SavedModel,
    pub(super) format: Format,
    /// The width of the embeddings; `None` if they are not requested.
    pub(super) embedding_width: Option<usize>,
}

/// The number of items in files, of those with a label, and of those that were predicted correctly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) n_items: u64,
    pub(super) n_labelled: u64,
    pub(super) n_hits: u64,
}

/// The files of consecutive items of a request. They are in a temporary folder beside the target until they are
/// complete; dropping this value removes them. Held in memory: the current batch, and at most 8 bytes per item.
pub(super) struct PredictionFiles<'a, I> {
    request: &'a Request<'a, I>,
    folder: FolderWriter,
    scores: Option<RowFile>,
    embeddings: Option<RowFile>,
    /// The outputs of other targets than classes, which are sorted by item at the end.
    outputs: Option<ArrayWriter>,
    classes_csv: Option<TextWriter>,
    /// The outputs with the names of nodes, for other targets than classes.
    values_csv: Option<TextWriter>,
    /// The predicted class of each item so far; empty for other targets.
    classes: Vec<u32>,
    /// The position of the first item in the request.
    start: usize,
    n_items: usize,
    totals: Totals,
}

/// The temporary array of the outputs that are sorted.
const OUTPUTS: &str = "outputs.npy";

/// The number of items whose lines are formatted at once.
const LINES: usize = 4096;

impl<'a, I: ItemId> PredictionFiles<'a, I> {
    /// Starts the files of a folder, which must be new or empty.
    pub(super) fn create(target: &Path, request: &'a Request<'a, I>) -> anyhow::Result<Self> {
        let folder = FolderWriter::create(target)?;
        let classes_csv = match request.is_of_classes() {
            true => {
                let mut file = folder.text("classes.csv")?;
                file.write("item,name,class,class_name,probability\n")?;
                Some(file)
            }
            false => None,
        };
        Ok(Self {
            request,
            folder,
            scores: None,
            embeddings: None,
            outputs: None,
            classes_csv,
            values_csv: None,
            classes: Vec::new(),
            start: 0,
            n_items: 0,
            totals: Totals::default(),
        })
    }

    /// Appends the rows of a batch, whose items follow those of the batch before.
    pub(super) fn write(&mut self, rows: &PredictedRows) -> anyhow::Result<()> {
        let request = self.request;
        let Some(scores) = &rows.scores else { return Ok(()) };
        if self.n_items == 0 {
            self.start = rows.positions.start;
            self.open(scores.width(), rows.embeddings.as_ref().map(OutputRows::width))?;
        }
        let items = &request.items[rows.positions.clone()];
        self.n_items += items.len();
        if let Some(file) = &mut self.scores {
            file.write(request, items, scores)?;
        }
        if let (Some(file), Some(rows)) = (&mut self.embeddings, &rows.embeddings) {
            file.write(request, items, rows)?;
        }
        if let Some(file) = &mut self.outputs {
            file.push(scores.values())?;
        }
        if let Some(file) = &mut self.values_csv {
            file.write(&request.values_lines(items, scores))?;
        }
        if let Some(file) = &mut self.classes_csv {
            let classes = scores.classes();
            file.write(&request.classes_lines(items, &classes, scores))?;
            self.totals.count(request, items, &classes);
            self.classes.extend(classes);
        }
        Ok(())
    }

    /// Opens the files of rows of these widths.
    fn open(&mut self, width: usize, embedding_width: Option<usize>) -> anyhow::Result<()> {
        let scores = RowKind::Scores.create(&self.folder, self.request, width)?;
        self.scores = Some(scores);
        if let Some(width) = embedding_width {
            self.embeddings = Some(RowKind::Embeddings.create(&self.folder, self.request, width)?);
        }
        if !self.request.is_of_classes() {
            self.outputs = Some(self.folder.rows(OUTPUTS, ElementType::F32, width)?);
        }
        if self.request.names.is_some() && !self.request.is_of_classes() {
            let mut file = self.folder.text("values.csv")?;
            file.write(&self.request.values_header(width))?;
            self.values_csv = Some(file);
        }
        Ok(())
    }

    /// Writes the files that are sorted by item, and gives the folder its name. Returns their totals.
    pub(super) fn finish(mut self) -> anyhow::Result<Totals> {
        if self.scores.is_none() {
            // Without items, the files have no rows.
            self.open(self.request.model.info().inputs.n_outputs, self.request.embedding_width)?;
        }
        for file in [self.scores.take(), self.embeddings.take()].into_iter().flatten() {
            file.finish(&mut self.folder)?;
        }
        for file in [self.classes_csv.take(), self.values_csv.take()].into_iter().flatten() {
            file.finish()?;
        }
        let items = &self.request.items[self.start..self.start + self.n_items];
        if self.request.format == Format::Npy {
            let ids: Vec<u32> = items.iter().map(|item| item.get()).collect();
            self.folder.put("items.npy", ElementType::U32, &ids)?;
        }
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_key(|&row| items[row as usize].get());
        let mut file = self.folder.text("predictions.csv")?;
        match self.outputs.take() {
            Some(outputs) => {
                self.folder.add(outputs)?;
                self.write_targets(items, &order, &mut file)?;
            }
            None => self.write_classes(items, &order, &mut file)?,
        }
        file.finish()?;
        self.folder.commit()?;
        Ok(Totals { n_items: self.n_items as u64, ..self.totals })
    }

    /// Writes `predictions.csv` for classes: the format and the order of a run's `test_predictions.csv`. Items without
    /// a label have an empty field.
    fn write_classes(&self, items: &[I], order: &[u32], file: &mut TextWriter) -> anyhow::Result<()> {
        file.write("item,label,predicted\n")?;
        for rows in order.chunks(LINES) {
            let mut csv = String::new();
            for row in rows.iter().map(|&row| row as usize) {
                let label = self.request.label(items[row]).map(|label| label.to_string()).unwrap_or_default();
                let _ = writeln!(csv, "{},{label},{}", items[row].get(), self.classes[row]);
            }
            file.write(&csv)?;
        }
        Ok(())
    }

    /// Writes `predictions.csv` for several labels or regression: the format and the order of a run's
    /// `test_predictions.csv`. Missing targets are empty fields. The outputs are read from their file.
    fn write_targets(&self, items: &[I], order: &[u32], file: &mut TextWriter) -> anyhow::Result<()> {
        let path = self.folder.folder().join(OUTPUTS);
        let array = ArrayFile::open(&path)?;
        let (outputs, width) = (array.elements::<f32>()?, array.shape().last().copied().unwrap_or(0));
        let mut csv = String::new();
        push_target_header(&mut csv, width);
        for rows in order.chunks(LINES) {
            for row in rows.iter().map(|&row| row as usize) {
                let targets = self.request.target_row(items[row], width);
                push_target_row(
                    &mut csv,
                    items[row].get(),
                    &targets,
                    &outputs[row * width..(row + 1) * width],
                );
            }
            file.write(&csv)?;
            csv.clear();
        }
        file.write(&csv)?;
        drop((array, outputs));
        std::fs::remove_file(&path).with_context(|| format!("{} could not be removed", path.display()))
    }
}

impl<I: ItemId> Request<'_, I> {
    pub(super) fn is_of_classes(&self) -> bool {
        self.model.info().inputs.targets == TargetKind::Classes
    }

    pub(super) fn label(&self, item: I) -> Option<u32> {
        match self.targets {
            Targets::Classes(labels) => labels.get(item),
            Targets::Values(_) => None,
        }
    }

    /// Returns the target values of an item, NaN if it has none.
    fn target_row(&self, item: I, width: usize) -> Vec<f32> {
        let (mut classes, mut row) = (Vec::new(), Vec::new());
        let is_known = matches!(self.targets, Targets::Values(_))
            && self.targets.gather(std::slice::from_ref(&item), &mut classes, &mut row).is_ok()
            && row.len() == width;
        if is_known { row } else { vec![f32::NAN; width] }
    }

    /// Returns the name of an item, or an empty text.
    pub(super) fn name(&self, item: I) -> &str {
        self.names.and_then(|names| names.get(NodeId(item.get()))).unwrap_or_default()
    }

    /// Returns the first line of `values.csv`: the names of the labels or numbers, or their positions.
    fn values_header(&self, width: usize) -> String {
        let mut csv = "item,name".to_owned();
        for column in 0..width {
            let _ = match self.model.class_name(column as u32) {
                Some(name) => write!(csv, ",{}", quoted(name)),
                None => write!(csv, ",{column}"),
            };
        }
        csv + "\n"
    }

    /// Returns the lines of `values.csv`: the outputs with the name of the node.
    fn values_lines(&self, items: &[I], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for (item, row) in items.iter().zip(scores.rows()) {
            let _ = write!(csv, "{},{}", item.get(), quoted(self.name(*item)));
            push_values(&mut csv, row);
        }
        csv
    }

    /// Returns the lines of `classes.csv`: the predicted class with its name and its probability.
    fn classes_lines(&self, items: &[I], classes: &[u32], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for ((item, &class), probability) in items.iter().zip(classes).zip(scores.confidences()) {
            let name = self.name(*item);
            let class_name = self.model.class_name(class).unwrap_or_default();
            let (item, name, class_name) = (item.get(), quoted(name), quoted(class_name));
            let _ = writeln!(csv, "{item},{name},{class},{class_name},{probability}");
        }
        csv
    }
}

impl Totals {
    pub(super) fn sum(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, other| Self {
            n_items: sum.n_items + other.n_items,
            n_labelled: sum.n_labelled + other.n_labelled,
            n_hits: sum.n_hits + other.n_hits,
        })
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        [self.n_items, self.n_labelled, self.n_hits].map(u64::to_le_bytes).concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        let mut next = || numbers.next().unwrap_or(0);
        Self { n_items: next(), n_labelled: next(), n_hits: next() }
    }

    fn count<I: ItemId>(&mut self, request: &Request<'_, I>, items: &[I], classes: &[u32]) {
        for (&item, &class) in items.iter().zip(classes) {
            if let Some(label) = request.label(item) {
                self.n_labelled += 1;
                self.n_hits += u64::from(label == class);
            }
        }
    }
}

/// Appends the values of a row as fields and ends the line. Text is read back to the same f32.
pub(super) fn push_values(csv: &mut String, row: &[f32]) {
    for value in row {
        let _ = write!(csv, ",{value}");
    }
    csv.push('\n');
}

/// Returns a field of comma-separated text, in quotes if it needs them (RFC 4180).
pub(super) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_fields_that_contain_separators() {
        assert_eq!(quoted("admin"), "admin");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}

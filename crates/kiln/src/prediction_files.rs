//! The files of predictions, which are written batch by batch.

mod rows;
mod totals;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use kiln_data::NodeNames;
use kiln_feature::{TargetKind, Targets};
use kiln_graph::{ItemId, NodeId};
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter, TextWriter};
use kiln_store::csv::{finite, push_finite, quoted};
use kiln_train::{OutputRows, PredictedRows, SavedModel, push_target_columns, push_target_fields};

use self::rows::{RowFile, RowKind};
pub use self::totals::{PartCounts, PredictionTotals, SplitPart, SplitParts};
use crate::Result;

/// The format of scores and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PredictionFormat {
    /// Text, one line per item, which begins with its id and its name.
    #[default]
    Csv,
    /// NumPy arrays of f32, with the ids in `items.npy`.
    Npy,
    /// Parquet files, with the id and the name of each item; scores also with label, class and probability.
    #[cfg(feature = "tables")]
    Parquet,
}

/// A request for predictions, and the content of their files.
#[derive(Debug, Clone)]
pub struct PredictionRequest<I> {
    /// The items in the order of the files, repeated items included.
    pub items: Arc<[I]>,
    /// The targets of the items of the data; an item may have none.
    pub targets: Targets<I>,
    /// The split of the data, by whose parts predictions are compared with targets.
    pub parts: SplitParts,
    /// The names of the items of the data; `None` or empty for items without names.
    pub names: Option<Arc<NodeNames>>,
    /// The model of the predictions.
    pub model: SavedModel,
    /// The format of scores and embeddings.
    pub format: PredictionFormat,
    /// The width of the embeddings; `None` if they are not requested.
    pub embedding_width: Option<usize>,
}

/// The files of consecutive items of a request. All have the order of the request and begin with the same columns: the
/// id, and the name if the items have names. They are in a temporary folder beside the target until they are complete;
/// dropping this value removes them. One batch is in memory.
///
/// | file | columns after the id and the name |
/// |---|---|
/// | `predictions.csv` | `label,predicted`, or `target_0,…,output_0,…` for other targets than classes |
/// | `classes.csv`, for classes | `class,class_name,probability` |
/// | `values.csv`, for other targets of items with names | the outputs, by the names of the labels |
/// | `scores.csv`, `.npy` or `.parquet` | the outputs, logits of a classifier |
/// | `embeddings.csv`, `.npy` or `.parquet` | the embeddings, if requested |
/// | `items.npy`, for the format `npy` | the ids of the rows of the arrays, which have no other columns |
///
/// Classes, probabilities, and values of `predictions.csv` and `values.csv` are empty if they are not finite.
///
/// ```no_run
/// use kiln::prelude::*;
/// use kiln::train::WantedRows;
/// use kiln::{PredictionFiles, PredictionFormat, PredictionRequest, SplitParts};
/// let data = Dataset::open("papers")?;
/// let model = SavedModel::open("runs/sage")?;
/// let batches = model.on_nodes(&data)?.batches(
///     &[NodeId(17), NodeId(5)],
///     &PredictMode::default(),
///     WantedRows::Outputs,
/// )?;
/// let Some(targets) = &data.targets else { return Ok(()) };
/// let mut files = PredictionFiles::create(
///     "predictions",
///     PredictionRequest {
///         items: [NodeId(17), NodeId(5)].into(),
///         targets: targets.values.clone(),
///         parts: SplitParts::new(data.graph.n_nodes(), data.split()),
///         names: Some(data.names[targets.node_type].clone()),
///         model,
///         format: PredictionFormat::Csv,
///         embedding_width: None,
///     },
/// )?;
/// for batch in 0..batches.n_batches() {
///     files.write(&batches.batch(batch)?)?;
/// }
/// println!("{} items", files.finish()?.n_items);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct PredictionFiles<I> {
    request: PredictionRequest<I>,
    folder: FolderWriter,
    predictions: TextWriter,
    /// The file `classes.csv` or `values.csv`; `None` for outputs without names.
    named: Option<TextWriter>,
    scores: RowFile,
    embeddings: Option<RowFile>,
    /// The ids of the rows of arrays; `None` for other formats.
    ids: Option<ArrayWriter>,
    totals: PredictionTotals,
}

impl<I: ItemId> PredictionFiles<I> {
    /// Starts the files of a folder, which must be new or empty.
    ///
    /// # Errors
    /// Returns an error if the folder is not empty, or if a file cannot be created.
    pub fn create(target: impl AsRef<Path>, request: PredictionRequest<I>) -> Result<Self> {
        let folder = FolderWriter::create(target)?;
        let n_outputs = request.model.info().inputs.n_outputs;
        let scores = RowFile::create(RowKind::Scores, &folder, &request, n_outputs)?;
        let embeddings = match request.embedding_width {
            Some(width) => Some(RowFile::create(RowKind::Embeddings, &folder, &request, width)?),
            None => None,
        };
        let ids = match request.format {
            PredictionFormat::Npy => Some(folder.vector("items.npy", ElementType::U32)?),
            _ => None,
        };
        let mut predictions = folder.text("predictions.csv")?;
        predictions.write(&request.predictions_header(n_outputs))?;
        let named = match (request.is_of_classes(), request.has_names()) {
            (true, _) => {
                let mut file = folder.text("classes.csv")?;
                file.write(&format!("{},class,class_name,probability\n", request.id_columns()))?;
                Some(file)
            }
            (false, true) => {
                let mut file = folder.text("values.csv")?;
                file.write(&request.values_header(n_outputs))?;
                Some(file)
            }
            (false, false) => None,
        };
        let totals = PredictionTotals::default();
        Ok(Self { request, folder, predictions, named, scores, embeddings, ids, totals })
    }

    /// Appends the rows of a batch, whose items follow those of the batch before.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    ///
    /// # Panics
    /// Panics if the items of the batch are not those of a range of the request.
    pub fn write(&mut self, rows: &PredictedRows) -> Result<()> {
        let Self { request, predictions, named, totals, .. } = self;
        let Some(scores) = &rows.scores else { return Ok(()) };
        let items = &request.items[rows.positions.clone()];
        totals.n_items += items.len() as u64;
        self.scores.write(request, items, scores)?;
        if let (Some(file), Some(rows)) = (&mut self.embeddings, &rows.embeddings) {
            file.write(request, items, rows)?;
        }
        if let Some(ids) = &mut self.ids {
            ids.push(&request.ids(items))?;
        }
        if request.is_of_classes() {
            let classes = scores.classes();
            for (&item, &class) in items.iter().zip(&classes) {
                match (request.label(item), class) {
                    (_, None) => totals.add_non_finite(item.get()),
                    (Some(label), Some(class)) => {
                        totals.add_label(request.parts.part(item), label == class);
                    }
                    (None, Some(_)) => {}
                }
            }
            predictions.write(&request.predicted_classes(items, &classes))?;
            if let Some(file) = named {
                file.write(&request.classes_lines(items, &classes, scores))?;
            }
        } else {
            for row in scores.non_finite() {
                totals.add_non_finite(items[row].get());
            }
            predictions.write(&request.predicted_values(items, scores))?;
            if let Some(file) = named {
                file.write(&request.values_lines(items, scores))?;
            }
        }
        Ok(())
    }

    /// Completes the files and gives the folder its name. Returns the number of items and of correct predictions.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, or if the folder exists by now and is not empty.
    pub fn finish(self) -> Result<PredictionTotals> {
        let Self { mut folder, predictions, named, scores, embeddings, ids, totals, .. } = self;
        predictions.finish()?;
        if let Some(file) = named {
            file.finish()?;
        }
        scores.finish(&mut folder)?;
        if let Some(file) = embeddings {
            file.finish(&mut folder)?;
        }
        if let Some(ids) = ids {
            folder.add(ids)?;
        }
        folder.commit()?;
        Ok(totals)
    }
}

impl<I: ItemId> PredictionRequest<I> {
    fn is_of_classes(&self) -> bool {
        self.model.info().inputs.targets == TargetKind::Classes
    }

    fn has_names(&self) -> bool {
        self.names.as_ref().is_some_and(|names| !names.is_empty())
    }

    /// Returns the class of an item, if it has one.
    fn label(&self, item: I) -> Option<u32> {
        match &self.targets {
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
    fn name(&self, item: I) -> &str {
        self.names.as_ref().and_then(|names| names.get(NodeId(item.get()))).unwrap_or_default()
    }

    fn ids(&self, items: &[I]) -> Vec<u32> {
        items.iter().map(|item| item.get()).collect()
    }

    /// Returns the names of the first columns of each text file.
    fn id_columns(&self) -> &'static str {
        if self.has_names() { "item,name" } else { "item" }
    }

    /// Appends the first fields of an item's line in each text file.
    fn push_id(&self, csv: &mut String, item: I) {
        let _ = write!(csv, "{}", item.get());
        if self.has_names() {
            let _ = write!(csv, ",{}", quoted(self.name(item)));
        }
    }

    /// Returns the first line of `predictions.csv`. Without names, it is that of a run's `test_predictions.csv`.
    fn predictions_header(&self, n_outputs: usize) -> String {
        let mut csv = self.id_columns().to_owned();
        match self.is_of_classes() {
            true => csv.push_str(",label,predicted\n"),
            false => push_target_columns(&mut csv, n_outputs),
        }
        csv
    }

    /// Returns the lines of `predictions.csv` for classes. Items without a label or a class have an empty field.
    fn predicted_classes(&self, items: &[I], classes: &[Option<u32>]) -> String {
        let mut csv = String::new();
        for (&item, &class) in items.iter().zip(classes) {
            let [label, class] = [self.label(item), class].map(field);
            self.push_id(&mut csv, item);
            let _ = writeln!(csv, ",{label},{class}");
        }
        csv
    }

    /// Returns the lines of `predictions.csv` for several labels or regression. Missing targets and outputs that are not
    /// finite are empty fields.
    fn predicted_values(&self, items: &[I], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for (&item, row) in items.iter().zip(scores.rows()) {
            self.push_id(&mut csv, item);
            push_target_fields(&mut csv, &self.target_row(item, scores.width()), row);
        }
        csv
    }

    /// Returns the lines of `classes.csv`: the predicted class with its name and its probability.
    fn classes_lines(&self, items: &[I], classes: &[Option<u32>], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for ((&item, &class), probability) in items.iter().zip(classes).zip(scores.confidences()) {
            let class_name = class.and_then(|class| self.model.class_name(class)).unwrap_or_default();
            self.push_id(&mut csv, item);
            let _ = writeln!(csv, ",{},{},{}", field(class), quoted(class_name), finite(probability));
        }
        csv
    }

    /// Returns the first line of `values.csv`: the names of the labels or numbers, or their positions.
    fn values_header(&self, n_outputs: usize) -> String {
        let mut csv = self.id_columns().to_owned();
        for column in 0..n_outputs {
            let _ = match self.model.class_name(column as u32) {
                Some(name) => write!(csv, ",{}", quoted(name)),
                None => write!(csv, ",{column}"),
            };
        }
        csv + "\n"
    }

    /// Returns the lines of `values.csv`: the outputs, empty if they are not finite.
    fn values_lines(&self, items: &[I], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for (&item, row) in items.iter().zip(scores.rows()) {
            self.push_id(&mut csv, item);
            push_finite(&mut csv, row);
        }
        csv
    }
}

/// Returns the field of a number that may be missing.
fn field(number: Option<u32>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

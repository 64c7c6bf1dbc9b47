//! The files of predictions, which are written batch by batch.

mod request;
mod rows;

use std::path::Path;

use kiln_graph::ItemId;
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter, TextWriter};
use kiln_train::PredictedRows;

pub use self::request::{EdgeEnds, PredictionRequest};
use self::rows::{RowFile, RowKind};
use crate::{PredictionFormat, PredictionTotals, Result};

/// The files of consecutive items of a request. All have the order of the request and begin with the same columns: the
/// id, and the name if the items have names; those of edges have the source and the destination instead, with their names. They are in a temporary folder beside the target until they are complete;
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
/// | `links.npy`, for edges in the format `npy` | the source and the destination of each row, numbered within their types |
///
/// Classes, probabilities, and values of `predictions.csv` and `values.csv` are empty if they are not finite.
///
/// ```no_run
/// use kiln_data::Dataset;
/// use kiln_graph::NodeId;
/// use kiln_predictions::{PredictionFiles, PredictionFormat, PredictionRequest, SplitParts};
/// use kiln_train::{NodePredictor, PredictMode, PredictionData, SavedModel, WantedRows};
/// let data = Dataset::open("papers")?;
/// let model = SavedModel::open("runs/sage")?;
/// let graph = PredictionData::new(data.csc()?.clone(), data.node_features()?.clone());
/// let batches = NodePredictor::new(&model, graph)?.batches(
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
///         ends: None,
///         model,
///         format: PredictionFormat::Csv,
///         embedding_width: None,
///     },
/// )?;
/// for batch in 0..batches.n_batches() {
///     files.write(&batches.batch(batch)?)?;
/// }
/// let (folder, totals) = files.complete()?;
/// folder.commit()?;
/// println!("{} items", totals.n_items);
/// # Ok::<(), Box<dyn std::error::Error>>(())
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
    /// The ends of the edges of these rows; `None` for other items and formats.
    ends: Option<ArrayWriter>,
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
        let ends = match (request.format, &request.ends) {
            (PredictionFormat::Npy, Some(_)) => Some(folder.rows("links.npy", ElementType::U32, 2)?),
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
        Ok(Self { request, folder, predictions, named, scores, embeddings, ids, ends, totals })
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
        if let (Some(array), Some(EdgeEnds { nodes, .. })) = (&mut self.ends, &request.ends) {
            for [src, dst] in items.iter().filter_map(|item| request.ends_of(*item)) {
                array.push(&[nodes.number(0, src), nodes.number(1, dst)])?;
            }
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

    /// Completes the files. Returns the unfinished folder, which [`FolderWriter::commit`] renames to the target, and the number of
    /// items and of correct predictions. A job of several ranks commits after all of them have ended.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn complete(self) -> Result<(FolderWriter, PredictionTotals)> {
        let Self { mut folder, predictions, named, scores, embeddings, ids, ends, totals, .. } = self;
        predictions.finish()?;
        if let Some(file) = named {
            file.finish()?;
        }
        scores.finish(&mut folder)?;
        if let Some(file) = embeddings {
            file.finish(&mut folder)?;
        }
        for array in ids.into_iter().chain(ends) {
            folder.add(array)?;
        }
        Ok((folder, totals))
    }
}

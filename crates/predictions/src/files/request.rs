use std::fmt::Write as _;
use std::sync::Arc;

use kiln_data::NodeNames;
use kiln_feature::{TargetKind, Targets};
use kiln_graph::{ItemId, LinkId, Links, NodeId};
use kiln_store::csv::{finite, push_finite, quoted};
use kiln_train::{ItemColumns, OutputRows, SavedModel, push_target_columns, push_target_fields};

use crate::{LinkNodes, PredictionFormat, SplitParts};

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
    /// The sources and the destinations of the edges of the data, by item; `None` for other items.
    pub ends: Option<EdgeEnds>,
    /// The model of the predictions.
    pub model: SavedModel,
    /// The format of scores and embeddings.
    pub format: PredictionFormat,
    /// The width of the embeddings; `None` if they are not requested.
    pub embedding_width: Option<usize>,
}

/// The ends of the edges of the data. Files of edges have them as columns, and so has `test_predictions.csv` of a run on edges or
/// links.
#[derive(Debug, Clone)]
pub struct EdgeEnds {
    /// The edges, with node ids of the graph, by item.
    pub links: Links,
    /// The nodes of both ends.
    pub nodes: LinkNodes,
}

impl EdgeEnds {
    /// Returns the columns of the ends for a run's `test_predictions.csv`, which are those of prediction files.
    pub fn item_columns(self) -> ItemColumns {
        ItemColumns::new(self.columns(), move |csv, edge| self.push_fields(csv, edge))
    }

    /// Returns the names of the columns of both ends.
    fn columns(&self) -> String {
        self.nodes.columns().trim_end_matches(',').to_owned()
    }

    /// Appends the fields of both ends of an edge to its line.
    fn push_fields(&self, csv: &mut String, edge: u32) {
        let (src, dst) = self.links.pair(LinkId(edge));
        self.nodes.push_ends(csv, [src, dst]);
        // The comma behind the last of them is that before the next field.
        csv.pop();
    }
}

impl<I: ItemId> PredictionRequest<I> {
    pub(super) fn is_of_classes(&self) -> bool {
        self.model.info().inputs.targets == TargetKind::Classes
    }

    pub(super) fn has_names(&self) -> bool {
        self.names.as_ref().is_some_and(|names| !names.is_empty())
    }

    /// Returns the class of an item, if it has one.
    pub(super) fn label(&self, item: I) -> Option<u32> {
        match &self.targets {
            Targets::Classes(labels) => labels.get(item),
            Targets::Values(_) => None,
        }
    }

    /// Returns the target values of an item, NaN if it has none.
    pub(super) fn target_row(&self, item: I, width: usize) -> Vec<f32> {
        let mut classes = Vec::new();
        let mut row = Vec::new();
        let is_known = matches!(self.targets, Targets::Values(_))
            && self.targets.gather(std::slice::from_ref(&item), &mut classes, &mut row).is_ok()
            && row.len() == width;
        if is_known { row } else { vec![f32::NAN; width] }
    }

    /// Returns the name of an item, or an empty text.
    pub(super) fn name(&self, item: I) -> &str {
        self.names.as_ref().and_then(|names| names.get(NodeId(item.get()))).unwrap_or_default()
    }

    pub(super) fn ids(&self, items: &[I]) -> Vec<u32> {
        items.iter().map(|item| item.get()).collect()
    }

    /// Returns the source and the destination of an edge; `None` for other items.
    pub(super) fn ends_of(&self, item: I) -> Option<[NodeId; 2]> {
        let (src, dst) = self.ends.as_ref()?.links.pair(LinkId(item.get()));
        Some([src, dst])
    }

    /// Returns the names of the first columns of each text file.
    pub(super) fn id_columns(&self) -> String {
        match &self.ends {
            Some(ends) => format!("item,{}", ends.columns()),
            None if self.has_names() => "item,name".to_owned(),
            None => "item".to_owned(),
        }
    }

    /// Appends the first fields of an item's line in each text file.
    pub(super) fn push_id(&self, csv: &mut String, item: I) {
        let _ = write!(csv, "{}", item.get());
        if let Some(ends) = &self.ends {
            csv.push(',');
            ends.push_fields(csv, item.get());
        }
        if self.has_names() {
            let _ = write!(csv, ",{}", quoted(self.name(item)));
        }
    }

    /// Returns the first line of `predictions.csv`. Without names, it is that of a run's `test_predictions.csv`.
    pub(super) fn predictions_header(&self, n_outputs: usize) -> String {
        let mut csv = self.id_columns();
        match self.is_of_classes() {
            true => csv.push_str(",label,predicted\n"),
            false => push_target_columns(&mut csv, n_outputs),
        }
        csv
    }

    /// Returns the lines of `predictions.csv` for classes. Items without a label or a class have an empty field.
    pub(super) fn predicted_classes(&self, items: &[I], classes: &[Option<u32>]) -> String {
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
    pub(super) fn predicted_values(&self, items: &[I], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for (&item, row) in items.iter().zip(scores.rows()) {
            self.push_id(&mut csv, item);
            push_target_fields(&mut csv, &self.target_row(item, scores.width()), row);
        }
        csv
    }

    /// Returns the lines of `classes.csv`: the predicted class with its name and its probability.
    pub(super) fn classes_lines(&self, items: &[I], classes: &[Option<u32>], scores: &OutputRows) -> String {
        let mut csv = String::new();
        for ((&item, &class), probability) in items.iter().zip(classes).zip(scores.confidences()) {
            let class_name = class.and_then(|class| self.model.class_name(class)).unwrap_or_default();
            self.push_id(&mut csv, item);
            let _ = writeln!(csv, ",{},{},{}", field(class), quoted(class_name), finite(probability));
        }
        csv
    }

    /// Returns the first line of `values.csv`: the names of the labels or numbers, or their positions.
    pub(super) fn values_header(&self, n_outputs: usize) -> String {
        let mut csv = self.id_columns();
        for column in 0..n_outputs {
            let _ = match self.model.class_name(column as u32) {
                Some(name) => write!(csv, ",{}", quoted(name)),
                None => write!(csv, ",{column}"),
            };
        }
        csv + "\n"
    }

    /// Returns the lines of `values.csv`: the outputs, empty if they are not finite.
    pub(super) fn values_lines(&self, items: &[I], scores: &OutputRows) -> String {
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

//! Reads the task with labels of edges of a GraphBolt folder.

use std::path::Path;
use std::sync::Arc;

use kiln_feature::{Labels, TargetValues, Targets};
use kiln_graph::{LinkId, Links};
use kiln_store::npy::DType;
use kiln_store::yaml::YamlEntry;
use kiln_store::{ArrayFile, check_count};

use super::set_arrays::{LABELS, PAIRS, data};
use super::{note_unread_data, set_of_part};
use crate::edges::read_links;
use crate::limits::check_n_classes;
use crate::readers::classes;
use crate::readers::links::StoredLinks;
use crate::readers::target_arrays::{check_columns, for_each_number, label_bit};
use crate::{LinkTargets, Note, Result};

const COLUMNS: &str = "the number of columns of labels";

/// Reads the edges and the labels of the three sets of a task. The ids in the files are below `n_nodes`; `check_type` checks the
/// `type` of a set, and `convert` its edges.
pub(super) fn read_task(
    folder: &Path,
    task: &YamlEntry<'_>,
    n_nodes: usize,
    check_type: impl Fn(&YamlEntry<'_>) -> Result<()>,
    convert: impl Fn(StoredLinks) -> Result<StoredLinks>,
    notes: &mut Vec<Note>,
) -> Result<Arc<LinkTargets>> {
    let n_classes = match task.get("num_classes")? {
        Some(stated) => Some(check_n_classes(task.path(), stated.count()?)?),
        None => None,
    };
    let mut labels: Option<EdgeLabels> = None;
    let mut part = |key: &str| -> Result<Links> {
        let Some(set) = set_of_part(task, key, notes)? else { return Ok(Links::default()) };
        check_type(&set)?;
        note_unread_data(&set, &[&PAIRS, &[LABELS]], notes)?;
        let pairs = ArrayFile::open_in_any_order(data(folder, &set, &PAIRS)?)?;
        let pairs = read_links(pairs, n_nodes, notes)?;
        let array = ArrayFile::open(data(folder, &set, &[LABELS])?)?;
        let form = EdgeLabels::new(&array, n_classes)?;
        labels.get_or_insert(form).add(&array, pairs.len())?;
        Ok(convert(StoredLinks { links: pairs, negatives: None })?.links)
    };
    let [train, val, test] = [part("train_set")?, part("validation_set")?, part("test_set")?];
    let targets = LinkTargets::of_parts(&train, &val, &test)?;
    Ok(Arc::new(match labels {
        Some(labels) => targets.with_values(labels.finish()?)?,
        None => targets,
    }))
}

/// The labels of the edges of the sets that were read so far.
struct EdgeLabels {
    values: Values,
    n_columns: usize,
    /// The number of classes that the metadata states.
    n_classes: Option<usize>,
}

enum Values {
    /// A class per edge: integers, or any whole numbers if the number of classes is stated.
    Classes(Vec<i32>),
    /// Several labels per edge: integers in several columns.
    Labels(Vec<u8>),
    /// Numbers: floats.
    Numbers(Vec<f32>),
}

impl EdgeLabels {
    /// Returns labels of the form of an array, without its values.
    fn new(array: &ArrayFile, n_classes: Option<usize>) -> Result<Self> {
        let n_columns = match *array.shape() {
            [_] => 1,
            [_, n_columns] => check_columns(array.path(), n_columns)?,
            _ => return Err(array.bad_shape("(n_edges) or (n_edges, n_columns)").into()),
        };
        if let Some(n_classes) = n_classes.filter(|_| n_columns != 1) {
            check_count(array.path(), COLUMNS, n_classes, n_columns)?;
        }
        let values = match (n_columns, is_float(array)) {
            (1, false) => Values::Classes(Vec::new()),
            (1, true) if n_classes.is_some() => Values::Classes(Vec::new()),
            (_, false) => Values::Labels(Vec::new()),
            (_, true) => Values::Numbers(Vec::new()),
        };
        Ok(Self { values, n_columns, n_classes })
    }

    /// Adds the labels of a set of `n_edges` edges, which must have the form of those for training.
    fn add(&mut self, array: &ArrayFile, n_edges: usize) -> Result<()> {
        let n_columns = array.shape().get(1).copied().unwrap_or(1);
        check_count(array.path(), COLUMNS, self.n_columns, n_columns)?;
        let n_rows = array.shape().first().copied().unwrap_or(0);
        check_count(array.path(), "the number of labels", n_edges, n_rows)?;
        match &mut self.values {
            Values::Classes(all) => {
                let read = classes::from_array(array)?;
                if let Some(position) = read.iter().position(|class| !is_class(*class, self.n_classes)) {
                    let expected = match self.n_classes {
                        Some(n_classes) if 0 <= read[position] => format!("below num_classes, {n_classes}"),
                        _ => "a class: every edge of a set needs one".to_owned(),
                    };
                    return Err(array
                        .bad_value("the label of row", position, expected, read[position])
                        .into());
                }
                all.extend(read);
                Ok(())
            }
            Values::Labels(all) if !is_float(array) => {
                array.for_each_integer_or_bool(|position, value| -> Result<()> {
                    all.push(label_bit(array, n_columns, position, value)?);
                    Ok(())
                })
            }
            Values::Numbers(all) if is_float(array) => for_each_number(array, n_columns, |numbers| {
                all.extend_from_slice(numbers);
                Ok(())
            }),
            Values::Labels(_) => Err(array.wrong_type("integers, as in the train_set").into()),
            Values::Numbers(_) => Err(array.wrong_type("floats, as in the train_set").into()),
        }
    }

    fn finish(self) -> Result<Targets<LinkId>> {
        Ok(match self.values {
            Values::Classes(of_edges) => {
                let n_classes = self.n_classes.unwrap_or_else(|| classes::n_classes(&of_edges));
                Labels::new(of_edges, n_classes).into()
            }
            Values::Labels(labels) => TargetValues::multi_label(labels, self.n_columns)?.into(),
            Values::Numbers(numbers) => TargetValues::regression(numbers, self.n_columns)?.into(),
        })
    }
}

fn is_float(array: &ArrayFile) -> bool {
    matches!(array.dtype(), DType::F16 | DType::F32 | DType::F64)
}

fn is_class(class: i32, n_classes: Option<usize>) -> bool {
    0 <= class && n_classes.is_none_or(|n_classes| (class as usize) < n_classes)
}

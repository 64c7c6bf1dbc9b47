use kiln_feature::{EdgeFeatures, Targets};
use kiln_graph::{EdgeColumn, LinkId, SharedArray};

/// What is known of links beside their nodes: their target values, their feature rows and their times, each of which may be absent.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkValues {
    /// The target values, by link.
    pub(super) targets: Option<Targets<LinkId>>,
    /// The names of the classes or columns, as many as there are outputs.
    pub(super) class_names: Vec<String>,
    /// The feature rows, by link.
    pub(super) features: Option<EdgeFeatures>,
    /// The times, by link.
    pub(super) times: Option<SharedArray<i64>>,
}

/// Compares the stored values, a missing number with a missing number.
impl PartialEq for LinkValues {
    fn eq(&self, other: &Self) -> bool {
        let rows = |values: &Self| values.features.as_ref().map(EdgeFeatures::to_column);
        self.class_names == other.class_names
            && self.times.as_deref() == other.times.as_deref()
            && same_columns(rows(self).as_ref(), rows(other).as_ref())
            && same_targets(self.targets.as_ref(), other.targets.as_ref())
    }
}

impl Eq for LinkValues {}

fn same_columns(a: Option<&EdgeColumn>, b: Option<&EdgeColumn>) -> bool {
    let form = |column: &EdgeColumn| (column.width(), column.element_type());
    a.map(form) == b.map(form) && a.map(EdgeColumn::as_bytes) == b.map(EdgeColumn::as_bytes)
}

fn same_targets(a: Option<&Targets<LinkId>>, b: Option<&Targets<LinkId>>) -> bool {
    let bits = |numbers: Option<&[f32]>| {
        numbers.map(|numbers| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>())
    };
    match (a, b) {
        (None, None) => true,
        (Some(Targets::Classes(a)), Some(Targets::Classes(b))) => {
            a.n_classes() == b.n_classes() && a.as_slice() == b.as_slice()
        }
        (Some(Targets::Values(a)), Some(Targets::Values(b))) => {
            a.n_columns() == b.n_columns()
                && a.as_labels() == b.as_labels()
                && bits(a.as_numbers()) == bits(b.as_numbers())
        }
        _ => false,
    }
}

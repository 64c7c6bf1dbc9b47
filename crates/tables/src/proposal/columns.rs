//! The transform of each column.

use super::describe::shown_number;
use super::names::{is_row_number, words};
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use crate::spec::{ColumnTransform, NgramUnit, TimePart, TimeUnit};
use crate::table::ROW_NAMES;

/// The maximum number of different texts with a column of their own.
const MAX_CATEGORIES: u64 = 64;

/// The number of columns of hashed texts and of hashed words.
const HASH_COLUMNS: usize = 32;
const TEXT_COLUMNS: usize = 64;

/// The mean number of words from which on a text is one of words.
const MIN_WORDS: f64 = 1.5;

/// The distance of the largest number from the mean in standard deviations from which on ranks take the place of numbers.
const LONG_TAIL: f64 = 20.0;

/// The names of integers that are categories, of times and of targets.
const CATEGORY_WORDS: [&str; 9] =
    ["code", "type", "kind", "class", "category", "group", "status", "zip", "cluster"];
const TIME_WORDS: [&str; 12] = [
    "ts",
    "time",
    "timestamp",
    "date",
    "datetime",
    "at",
    "on",
    "created",
    "updated",
    "joined",
    "released",
    "epoch",
];

/// The names of integers that are times, although they may be no dates.
const STEP_WORDS: [&str; 7] = ["t", "ts", "time", "timestamp", "step", "timestep", "epoch"];
const TARGET_WORDS: [&str; 9] =
    ["label", "labels", "target", "targets", "fraud", "fraudulent", "laundering", "class", "y"];

/// The names of targets that are also those of other values: a class of service, and the second coordinate.
const UNCERTAIN_TARGET_WORDS: [&str; 2] = ["class", "y"];

/// What a spec does with a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ColumnPlan {
    /// The column becomes features, with a reason if the transform is not the usual one.
    Feature(ColumnTransform, Option<String>),
    /// The column is left out, with the reason.
    LeftOut(String),
}

/// Returns true for a name such as `label`, whose column is one to predict.
pub(super) fn is_target_name(column: &str) -> bool {
    words(column).last().is_some_and(|word| TARGET_WORDS.contains(&word.as_str()))
}

/// Returns true for a name such as `is_fraud`, whose column is nothing else than a target.
pub(super) fn is_certain_target_name(column: &str) -> bool {
    let mut words = words(column);
    let Some(last) = words.pop() else { return false };
    let is_alone = words.is_empty() || ["is", "has"].contains(&words.join(" ").as_str());
    is_alone && TARGET_WORDS.contains(&last.as_str()) && !UNCERTAIN_TARGET_WORDS.contains(&last.as_str())
}

/// Returns true for the name of times.
pub(super) fn is_time_name(column: &str) -> bool {
    words(column).last().is_some_and(|word| TIME_WORDS.contains(&word.as_str()))
}

/// Returns true for the name of integers that are times, although they may be no dates.
pub(super) fn is_step_name(column: &str) -> bool {
    words(column).last().is_some_and(|word| STEP_WORDS.contains(&word.as_str()))
}

/// Returns true for the name of categories.
pub(super) fn is_category_name(column: &str) -> bool {
    words(column).last().is_some_and(|word| CATEGORY_WORDS.contains(&word.as_str()))
}

/// Returns true for a column of numbers.
pub(super) fn is_number(table: &InputTable, column: &ColumnProfile) -> bool {
    matches!(column.kind(table.has_decimal_commas), ValueKind::Integer | ValueKind::Number)
}

/// Returns the plan for a column that is neither a key nor a reference.
pub(super) fn plan_column(table: &InputTable, column: &ColumnProfile) -> ColumnPlan {
    let left_out = |why: &str| ColumnPlan::LeftOut(why.to_owned());
    let n_rows = table.profile.n_rows;
    let is_constant = column.n_missing == 0 && column.n_distinct() == 1 && n_rows > 1;
    let kind = column.kind(table.has_decimal_commas);
    if table.needs_row_names && column.name == ROW_NAMES {
        let why = "the header leaves the column out, so that a spec must read it; one hash is the same for all rows";
        return ColumnPlan::Feature(ColumnTransform::Hash { columns: 1 }, Some(why.to_owned()));
    }
    if is_row_number(&column.name) && column.is_unique() {
        return left_out("numbers the rows");
    }
    if is_constant && !matches!(kind, ValueKind::List | ValueKind::Other) {
        return left_out("the same value in each row");
    }
    match kind {
        ValueKind::Nothing if n_rows == 0 => left_out("no rows"),
        ValueKind::Nothing => left_out("no value"),
        ValueKind::Other => left_out("no transform reads these values"),
        ValueKind::Bool => ColumnPlan::Feature(ColumnTransform::Numeric, None),
        ValueKind::Time => ColumnPlan::Feature(time(column.has_clock, TimeUnit::Seconds), None),
        ValueKind::Integer | ValueKind::Number => plan_number(column, kind),
        ValueKind::List => plan_list(column),
        ValueKind::Text if column.has_huge() => left_out("numbers beyond the range of categories"),
        ValueKind::Text => plan_text(column, n_rows),
    }
}

fn time(has_clock: bool, unit: TimeUnit) -> ColumnTransform {
    let hour = has_clock.then_some(TimePart::Hour);
    let parts = hour.into_iter().chain([TimePart::DayOfWeek, TimePart::Month]).collect();
    ColumnTransform::Time { parts, unit }
}

/// Returns the unit of integers that are times by their name and their range, the years 1980 to 2100.
pub(super) fn time_unit(column: &ColumnProfile) -> Option<TimeUnit> {
    const YEARS: [f64; 2] = [315_532_800.0, 4_102_444_800.0];
    let stats = column.stats().filter(|_| is_time_name(&column.name))?;
    let units = [
        (TimeUnit::Seconds, 1.0),
        (TimeUnit::Milliseconds, 1e3),
        (TimeUnit::Microseconds, 1e6),
        (TimeUnit::Nanoseconds, 1e9),
    ];
    let mut fitting = units.into_iter();
    let fitting =
        fitting.find(|(_, factor)| YEARS[0] * factor <= stats.min && stats.max <= YEARS[1] * factor);
    fitting.map(|(unit, _)| unit)
}

fn plan_number(column: &ColumnProfile, kind: ValueKind) -> ColumnPlan {
    let Some(stats) = column.stats().filter(|_| !column.has_huge()) else {
        return ColumnPlan::LeftOut("numbers beyond the range of f32".to_owned());
    };
    if kind == ValueKind::Integer {
        if let Some(unit) = time_unit(column) {
            return ColumnPlan::Feature(time(true, unit), None);
        }
        if column.n_distinct() <= 2 && stats.min >= 0.0 && stats.max <= 1.0 {
            return ColumnPlan::Feature(ColumnTransform::Numeric, None);
        }
        if is_category_name(&column.name) && column.n_distinct() <= MAX_CATEGORIES {
            return ColumnPlan::Feature(one_hot(column), None);
        }
    }
    let distance = [stats.max - stats.mean, stats.mean - stats.min].into_iter().fold(0.0, f64::max);
    if stats.std > 0.0 && LONG_TAIL * stats.std < distance {
        let n = shown_number((distance / stats.std).round());
        let why = format!("ranks, because a value is {n} deviations from the mean");
        return ColumnPlan::Feature(ColumnTransform::Quantile, Some(why));
    }
    ColumnPlan::Feature(ColumnTransform::Standardize, None)
}

fn one_hot(column: &ColumnProfile) -> ColumnTransform {
    ColumnTransform::OneHot { max_categories: column.n_distinct().max(1) as usize }
}

fn plan_list(column: &ColumnProfile) -> ColumnPlan {
    if let Some(columns) = column.items.vector_length() {
        return ColumnPlan::Feature(ColumnTransform::Vector { columns, separator: None }, None);
    }
    match column.items.list_items() {
        Some((_, items)) => ColumnPlan::Feature(
            ColumnTransform::MultiHot { max_categories: items.len(), separator: None },
            None,
        ),
        None => ColumnPlan::LeftOut(
            "no lists of as many numbers each, or of few different items (`multi_hot` reads up to 65,536)"
                .to_owned(),
        ),
    }
}

fn plan_text(column: &ColumnProfile, n_rows: u64) -> ColumnPlan {
    if let Some((Some(separator), items)) = column.items.list_items() {
        let separator = Some(separator.to_owned());
        let transform = ColumnTransform::MultiHot { max_categories: items.len(), separator };
        return ColumnPlan::Feature(transform, None);
    }
    let n_values = column.n_values();
    let n_distinct = column.n_distinct();
    let is_mixed = 0.5 < column.number_share();
    let mixed = is_mixed.then(|| {
        let percent = 100.0 * column.number_share();
        format!("{percent:.1} % numbers: list the other values in `missing` to have numbers, or use `standardize` and `drop: [wrong_type]` to leave out \
             their rows")
    });
    if n_distinct <= MAX_CATEGORIES && 2 * n_distinct <= n_values {
        return ColumnPlan::Feature(one_hot(column), mixed);
    }
    if MIN_WORDS <= column.mean_words() && !is_mixed {
        let transform =
            ColumnTransform::Text { columns: TEXT_COLUMNS, unit: NgramUnit::Word, min_n: 1, max_n: 1 };
        return ColumnPlan::Feature(transform, None);
    }
    if n_rows > 1 && column.distinct.is_unique() {
        return ColumnPlan::LeftOut("another value in each row, like a key".to_owned());
    }
    ColumnPlan::Feature(ColumnTransform::Hash { columns: HASH_COLUMNS }, mixed)
}

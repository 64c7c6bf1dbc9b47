use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use serde_json::Value;

use crate::bad_rows::shortened;

/// A value of a table.
#[derive(Debug, Clone)]
pub(crate) enum Cell<'a> {
    Missing,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A number of 32 or 16 bits, whose shortest text is not that of the same number with 64 bits.
    Single(f32),
    Text(&'a str),
    /// Microseconds since 1970, UTC.
    Time(i64),
    List(Items<'a>),
    /// A value of another type, with the name of the type.
    Other(&'static str),
}

/// The items of a list.
#[derive(Debug, Clone)]
pub(crate) enum Items<'a> {
    Arrow(ArrayRef),
    Json(&'a [Value]),
}

/// The values of one column in a batch.
#[derive(Debug)]
pub(crate) enum BatchColumn {
    Arrow(ArrayRef),
    Text(TextColumn),
    Json { values: Vec<Value>, missing: std::sync::Arc<[String]> },
}

/// Texts, one after the other.
#[derive(Debug, Default)]
pub(crate) struct TextColumn {
    pub(crate) text: String,
    /// The end of each text, and true if it is a missing value.
    pub(crate) ends: Vec<(usize, bool)>,
}

impl BatchColumn {
    pub(crate) fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Arrow(array) => arrow_cell(&**array, row),
            Self::Text(column) => column.cell(row),
            Self::Json { values, missing } => match &values[row] {
                Value::String(text) if missing.contains(text) => Cell::Missing,
                value => json_cell(value),
            },
        }
    }
}

impl TextColumn {
    fn cell(&self, row: usize) -> Cell<'_> {
        let (end, is_missing) = self.ends[row];
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before].0);
        if is_missing { Cell::Missing } else { Cell::Text(&self.text[start..end]) }
    }
}

impl Cell<'_> {
    /// Returns the value for a message.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Missing => "missing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Single(value) => value.to_string(),
            Self::Text(text) => shortened(text),
            Self::Time(micros) => format!("a timestamp, {micros} microseconds since 1970"),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Other(name) => (*name).to_owned(),
        }
    }
}

impl Items<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Arrow(array) => array.len(),
            Self::Json(values) => values.len(),
        }
    }

    pub(crate) fn cell(&self, position: usize) -> Cell<'_> {
        match self {
            Self::Arrow(array) => arrow_cell(&**array, position),
            Self::Json(values) => json_cell(&values[position]),
        }
    }
}

/// Returns a text. An empty one is a missing value in every format, because CSV cannot tell them apart.
fn text_cell(text: &str) -> Cell<'_> {
    if text.is_empty() { Cell::Missing } else { Cell::Text(text) }
}

fn json_cell(value: &Value) -> Cell<'_> {
    match value {
        Value::Null => Cell::Missing,
        Value::Bool(value) => Cell::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Cell::Int(value.into()),
            (None, Some(value)) => Cell::Int(value.into()),
            (None, None) => number.as_f64().map_or(Cell::Other("a number"), Cell::Float),
        },
        Value::String(text) => text_cell(text),
        Value::Array(values) => Cell::List(Items::Json(values)),
        Value::Object(_) => Cell::Other("an object"),
    }
}

fn arrow_cell(array: &dyn Array, row: usize) -> Cell<'_> {
    if array.is_null(row) {
        return Cell::Missing;
    }
    macro_rules! int {
        ($t:ty) => {
            Cell::Int(array.as_primitive::<$t>().value(row).into())
        };
    }
    let in_micros = |value: i64, factor: i64| match value.checked_mul(factor) {
        Some(micros) => Cell::Time(micros),
        None => Cell::Other("a timestamp out of range"),
    };
    match array.data_type() {
        // Every value is missing; such an array has no bit per value.
        DataType::Null => Cell::Missing,
        DataType::Utf8 => text_cell(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text_cell(array.as_string::<i64>().value(row)),
        DataType::Int64 => int!(Int64Type),
        DataType::Int32 => int!(Int32Type),
        DataType::Int16 => int!(Int16Type),
        DataType::Int8 => int!(Int8Type),
        DataType::UInt64 => int!(UInt64Type),
        DataType::UInt32 => int!(UInt32Type),
        DataType::UInt16 => int!(UInt16Type),
        DataType::UInt8 => int!(UInt8Type),
        DataType::Float64 => Cell::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => Cell::Single(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float16 => Cell::Single(array.as_primitive::<Float16Type>().value(row).to_f32()),
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Binary => match std::str::from_utf8(array.as_binary::<i32>().value(row)) {
            Ok(text) => text_cell(text),
            Err(_) => Cell::Other("bytes that are not UTF-8"),
        },
        DataType::Decimal128(_, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            if *scale == 0 {
                Cell::Int(value)
            } else {
                Cell::Float(value as f64 / 10_f64.powi((*scale).into()))
            }
        }
        DataType::Date32 => in_micros(array.as_primitive::<Date32Type>().value(row).into(), 86_400_000_000),
        DataType::Timestamp(TimeUnit::Second, _) => {
            in_micros(array.as_primitive::<TimestampSecondType>().value(row), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            in_micros(array.as_primitive::<TimestampMillisecondType>().value(row), 1000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Cell::Time(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Cell::Time(array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1000))
        }
        DataType::List(_) => Cell::List(Items::Arrow(array.as_list::<i32>().value(row))),
        DataType::LargeList(_) => Cell::List(Items::Arrow(array.as_list::<i64>().value(row))),
        DataType::FixedSizeList(..) => Cell::List(Items::Arrow(array.as_fixed_size_list().value(row))),
        DataType::Struct(_) => Cell::Other("a struct"),
        DataType::Map(..) => Cell::Other("a map"),
        _ => Cell::Other("a value of a type that is not supported"),
    }
}

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
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
    /// A text that is not empty; what it stands for is [`Cell::value`].
    Text(&'a str),
    /// Microseconds since 1970, UTC.
    Time(i64),
    List(Items<'a>),
    /// A value of another type, with the name of the type.
    Other(Cow<'static, str>),
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
    Json(Vec<Value>),
    /// A text that is that of all rows; an empty one is a missing value.
    Same(String),
}

/// Texts, one after the other.
#[derive(Debug, Default)]
pub(crate) struct TextColumn {
    pub(crate) text: String,
    /// The end of each text.
    pub(crate) ends: Vec<usize>,
    /// The rows whose text is a number with a point in a file with decimal commas, ascending.
    pub(crate) points: Vec<usize>,
}

impl BatchColumn {
    pub(crate) fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Arrow(array) => arrow_cell(&**array, row),
            Self::Text(column) => column.cell(row),
            Self::Json(values) => json_cell(&values[row]),
            Self::Same(text) => text_cell(text),
        }
    }
}

impl TextColumn {
    fn cell(&self, row: usize) -> Cell<'_> {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        let text = &self.text[start..self.ends[row]];
        match self.points.binary_search(&row) {
            Ok(_) => other(format!("{}, which has a point instead of a decimal comma", shortened(text))),
            Err(_) => text_cell(text),
        }
    }
}

impl Cell<'_> {
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Returns the value for a message, with its type unless that is obvious.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Missing => "missing".to_owned(),
            Self::Bool(value) => format!("{value}, a boolean"),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}, a floating-point number"),
            Self::Single(value) => format!("{value:?}, a floating-point number"),
            Self::Text(text) => shortened(text),
            Self::Time(micros) => {
                let mut buffer = String::new();
                let text = self.text(&mut buffer).ok().flatten();
                let text = text.map(|text| format!("{text}, a date or a timestamp"));
                text.unwrap_or_else(|| format!("a timestamp, {micros} microseconds since 1970"))
            }
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Other(name) => name.to_string(),
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

/// Returns a text. An empty one is a missing value in every format, because CSV cannot tell them apart, and so is that of
/// NaN, which other programs than pandas write to CSV.
pub(crate) fn text_cell(text: &str) -> Cell<'_> {
    match text {
        "" | "nan" | "NaN" => Cell::Missing,
        _ => Cell::Text(text),
    }
}

fn other<'a>(name: impl Into<Cow<'static, str>>) -> Cell<'a> {
    Cell::Other(name.into())
}

fn json_cell(value: &Value) -> Cell<'_> {
    match value {
        Value::Null => Cell::Missing,
        Value::Bool(value) => Cell::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Cell::Int(value.into()),
            (None, Some(value)) => Cell::Int(value.into()),
            (None, None) => number.as_f64().map_or(other("a number"), Cell::Float),
        },
        Value::String(text) => text_cell(text),
        Value::Array(values) => Cell::List(Items::Json(values)),
        Value::Object(_) => other("an object"),
    }
}

fn arrow_cell(array: &dyn Array, row: usize) -> Cell<'_> {
    fn value<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
        array.as_primitive::<T>().value(row)
    }
    if array.is_null(row) {
        return Cell::Missing;
    }
    match array.data_type() {
        // Every value is missing; such an array has no bit per value.
        DataType::Null => Cell::Missing,
        DataType::Utf8 => text_cell(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text_cell(array.as_string::<i64>().value(row)),
        DataType::Utf8View => text_cell(array.as_string_view().value(row)),
        DataType::Int64 => Cell::Int(value::<Int64Type>(array, row).into()),
        DataType::Int32 => Cell::Int(value::<Int32Type>(array, row).into()),
        DataType::Int16 => Cell::Int(value::<Int16Type>(array, row).into()),
        DataType::Int8 => Cell::Int(value::<Int8Type>(array, row).into()),
        DataType::UInt64 => Cell::Int(value::<UInt64Type>(array, row).into()),
        DataType::UInt32 => Cell::Int(value::<UInt32Type>(array, row).into()),
        DataType::UInt16 => Cell::Int(value::<UInt16Type>(array, row).into()),
        DataType::UInt8 => Cell::Int(value::<UInt8Type>(array, row).into()),
        DataType::Float64 => match value::<Float64Type>(array, row) {
            value if value.is_nan() => Cell::Missing,
            value => Cell::Float(value),
        },
        DataType::Float32 => single(value::<Float32Type>(array, row)),
        DataType::Float16 => single(value::<Float16Type>(array, row).to_f32()),
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Binary => bytes_cell(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes_cell(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes_cell(array.as_binary_view().value(row)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            match arrow_cell(dictionary.keys(), row) {
                Cell::Int(key) if (0..dictionary.values().len() as i128).contains(&key) => {
                    arrow_cell(dictionary.values(), key as usize)
                }
                _ => other("a position outside of its dictionary"),
            }
        }
        DataType::Decimal32(..) => decimal::<Decimal32Type>(array, row),
        DataType::Decimal64(..) => decimal::<Decimal64Type>(array, row),
        DataType::Decimal128(..) => decimal::<Decimal128Type>(array, row),
        DataType::Decimal256(..) => decimal::<Decimal256Type>(array, row),
        DataType::Date32 => micros(value::<Date32Type>(array, row).into(), 86_400_000_000),
        DataType::Date64 => micros(value::<Date64Type>(array, row), 1000),
        DataType::Timestamp(TimeUnit::Second, _) => {
            micros(value::<TimestampSecondType>(array, row), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            micros(value::<TimestampMillisecondType>(array, row), 1000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Cell::Time(value::<TimestampMicrosecondType>(array, row))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Cell::Time(value::<TimestampNanosecondType>(array, row).div_euclid(1000))
        }
        DataType::List(_) => Cell::List(Items::Arrow(array.as_list::<i32>().value(row))),
        DataType::LargeList(_) => Cell::List(Items::Arrow(array.as_list::<i64>().value(row))),
        DataType::FixedSizeList(..) => Cell::List(Items::Arrow(array.as_fixed_size_list().value(row))),
        DataType::Struct(_) => other("a struct"),
        DataType::Map(..) => other("a map"),
        DataType::Duration(_) => other("a duration"),
        DataType::Time32(_) | DataType::Time64(_) => other("a time of day"),
        name => other(format!("a value of the type {name}")),
    }
}

fn bytes_cell(bytes: &[u8]) -> Cell<'_> {
    std::str::from_utf8(bytes).map_or_else(|_| other("bytes that are not UTF-8"), text_cell)
}

fn single<'a>(value: f32) -> Cell<'a> {
    if value.is_nan() { Cell::Missing } else { Cell::Single(value) }
}

fn micros<'a>(value: i64, factor: i64) -> Cell<'a> {
    value.checked_mul(factor).map_or_else(|| other("a timestamp out of range"), Cell::Time)
}

/// Returns a decimal number: an integer if its fraction is 0, and else the nearest floating-point number, as of its text.
fn decimal<'a, T: DecimalType>(array: &dyn Array, row: usize) -> Cell<'a> {
    let text = array.as_primitive::<T>().value_as_string(row);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    if fraction.bytes().all(|digit| digit == b'0') {
        let value = whole.parse().map(Cell::Int);
        return value.unwrap_or_else(|_| other("a decimal number of more than 128 bits"));
    }
    text.parse().map_or_else(|_| other("a decimal number"), Cell::Float)
}

use std::fmt;

/// The columns of items in a run's `test_predictions.csv` that follow the item, such as the source and the destination of an edge
/// with their keys.
///
/// ```
/// use kiln_train::ItemColumns;
/// let keys = ["anna", "ben"];
/// let columns = ItemColumns::new("name", move |csv, item| csv.push_str(keys[item as usize]));
/// let mut line = "1".to_owned();
/// columns.push_fields(&mut line, 1);
/// assert_eq!(line, "1,ben");
/// ```
pub struct ItemColumns {
    header: String,
    fields: Box<PushFields>,
}

/// Appends the fields of an item to its line.
type PushFields = dyn Fn(&mut String, u32) + Send + Sync;

impl ItemColumns {
    /// Returns columns with these names, and commas between them. `fields` appends the fields of an item, with commas between them.
    pub fn new(header: impl Into<String>, fields: impl Fn(&mut String, u32) + Send + Sync + 'static) -> Self {
        Self { header: header.into(), fields: Box::new(fields) }
    }

    /// Appends the names of the columns to the first line, each after a comma.
    pub fn push_header(&self, csv: &mut String) {
        csv.push(',');
        csv.push_str(&self.header);
    }

    /// Appends the fields of an item to its line, each after a comma.
    pub fn push_fields(&self, csv: &mut String, item: u32) {
        csv.push(',');
        (self.fields)(csv, item);
    }
}

impl fmt::Debug for ItemColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemColumns").field("header", &self.header).finish_non_exhaustive()
    }
}

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{DictionaryBatch, Message, root_as_message};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use kiln_store::SourceReader;

use super::arrow_columns::WantedColumns;
use super::arrow_messages::{MessagePlace, Messages, kind_of};
use super::batch::{BATCH_BYTES, BATCH_ROWS, TableBatch};
use super::cell::BatchColumn;
use super::files::TablePath;
use super::limit::ReadLimit;
use super::missing::MissingTexts;
use super::sizes::TableSizes;
use super::source::SourceFiles;
use super::table_source::{ColumnPlace, TableSource};
use crate::{Error, Result, TableFileError};

/// Columns of an Arrow file or stream, which is Feather of version 2, too.
pub(super) struct ArrowFile {
    path: PathBuf,
    source: SourceReader,
    messages: Messages,
    /// The wanted columns of the file.
    schema: SchemaRef,
    /// Their positions in the file, ascending.
    positions: Vec<usize>,
    places: Vec<ColumnPlace>,
    /// The number of messages that were read.
    n_read: usize,
    dictionaries: HashMap<i64, ArrayRef>,
    current: Option<CurrentBatch>,
    missing: Arc<MissingTexts>,
    sizes: TableSizes,
}

/// The batch of the file from which batches of rows are taken.
struct CurrentBatch {
    batch: RecordBatch,
    first_row: usize,
    n_slice_rows: usize,
}

impl ArrowFile {
    /// Returns the names of the columns of a file.
    pub(super) fn names(path: &Path, sources: &SourceFiles) -> Result<Vec<String>> {
        let source = sources.open(path)?;
        let messages = guarded(path, || Messages::find(&source))?;
        Ok(names_of(&messages.schema))
    }

    pub(super) fn open(table: &TableSource, file: &TablePath, columns: &[String]) -> Result<Self> {
        let path = &file.path;
        let source = table.sources.open(path)?;
        let messages = guarded(path, || Messages::find(&source))?;
        let places = table.places(file, columns, &names_of(&messages.schema))?;
        let mut positions: Vec<usize> = places.iter().filter_map(ColumnPlace::position).collect();
        positions.sort_unstable();
        for position in &positions {
            check_type(messages.schema.field(*position)).map_err(|message| bad_file(path, message))?;
        }
        let fields: Fields =
            positions.iter().map(|position| messages.schema.fields()[*position].clone()).collect();
        let mut file = Self {
            path: path.clone(),
            source,
            messages,
            schema: Arc::new(Schema::new(fields)),
            positions,
            places,
            n_read: 0,
            dictionaries: HashMap::new(),
            current: None,
            missing: table.missing.clone(),
            sizes: TableSizes::default(),
        };
        file.sizes = file.find_sizes(&table.sources)?;
        Ok(file)
    }

    /// Returns where the wanted columns are.
    pub(super) fn places(&self) -> &[ColumnPlace] {
        &self.places
    }

    /// Returns the memory for the largest batch of the file in bytes.
    pub(super) fn reading_bytes(&self) -> u64 {
        self.sizes.reading_bytes
    }

    /// Returns the number of messages of the file.
    pub(super) fn n_messages(&self) -> u64 {
        self.messages.places.len() as u64
    }

    /// Returns the number of messages that were read.
    pub(super) fn n_read_messages(&self) -> u64 {
        self.n_read as u64
    }

    /// Returns the number of rows by the metadata of the batches.
    pub(super) fn n_rows(&self) -> Result<u64> {
        let mut n_rows = 0;
        for place in &self.messages.places {
            n_rows += guarded(&self.path, || {
                self.with_message(place, |message| {
                    let length = message.header_as_record_batch().map_or(0, |batch| batch.length());
                    u64::try_from(length).map_err(|error| error.to_string())
                })
            })?;
        }
        Ok(n_rows)
    }

    /// Finds the memory for the dictionaries and the largest batch. Texts and lists count twice, because a batch of rows may copy
    /// all of them.
    fn find_sizes(&self, sources: &SourceFiles) -> Result<TableSizes> {
        if sources.limit() == ReadLimit::NONE {
            return Ok(TableSizes::default());
        }
        if let Some(sizes) = sources.sizes.get(&self.path, &self.positions) {
            return Ok(sizes);
        }
        let is_plain = self.schema.fields().iter().all(|field| field.data_type().is_primitive());
        let copies = if is_plain { 1 } else { 2 };
        let mut of_dictionaries = 0_u64;
        let mut largest = 0_u64;
        let mut first_row = 1;
        for place in &self.messages.places {
            let found =
                guarded(&self.path, || self.with_message(place, |message| self.wanted_of(place, message)))?;
            let Some((id, wanted)) = found else { continue };
            let n_bytes = wanted.n_bytes().saturating_mul(copies);
            if id.is_some() {
                of_dictionaries = of_dictionaries.saturating_add(n_bytes);
            }
            let n_bytes = if id.is_some() { 0 } else { n_bytes };
            largest = largest.max(n_bytes.saturating_add(wanted.decoding_bytes()));
            let needed_bytes = of_dictionaries.saturating_add(largest);
            if let Some(error) = sources.limit().large_batch(&self.path, first_row, needed_bytes) {
                return Err(error);
            }
            first_row += if id.is_some() { 0 } else { wanted.n_rows() };
        }
        let sizes =
            TableSizes { reading_bytes: of_dictionaries.saturating_add(largest), ..TableSizes::default() };
        sources.sizes.insert(&self.path, &self.positions, sizes);
        Ok(sizes)
    }

    pub(super) fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        loop {
            if let Some(current) = &mut self.current
                && let Some(batch) = current.next()
            {
                return Ok(Some(self.table_batch(&batch, first_row)));
            }
            self.current = None;
            let Some(place) = self.messages.places.get(self.n_read).copied() else { return Ok(None) };
            self.n_read += 1;
            let path = self.path.clone();
            guarded(&path, || self.read_message(&place))?;
        }
    }

    fn table_batch(&self, batch: &RecordBatch, first_row: u64) -> TableBatch {
        let columns = self.places.iter().map(|place| match (place.same(), place.position()) {
            (Some(same), _) => same,
            (None, position) => {
                let position = position.unwrap_or(0);
                let column = self.positions.partition_point(|other| *other < position);
                BatchColumn::Arrow(batch.column(column).clone())
            }
        });
        TableBatch::new(&self.path, first_row, batch.num_rows(), columns.collect(), &self.missing)
    }

    /// Calls a function with a message.
    fn with_message<T>(
        &self,
        place: &MessagePlace,
        run: impl FnOnce(Message<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let metadata = place.metadata(&self.source)?;
        run(root_as_message(&metadata).map_err(|error| format!("a message is damaged: {error}"))?)
    }

    /// Returns the wanted columns of a message, and its id if it is a dictionary; `None` for a dictionary that no wanted column has.
    fn wanted_of(
        &self,
        place: &MessagePlace,
        message: Message<'_>,
    ) -> Result<Option<(Option<i64>, WantedColumns)>, String> {
        if let Some(batch) = message.header_as_record_batch() {
            let fields = self.messages.schema.fields();
            return WantedColumns::find(&self.source, place, batch, fields, &self.positions)
                .map(|wanted| Some((None, wanted)));
        }
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            return Err(format!("it has a message of the kind {}", kind_of(message.header_type())));
        };
        let id = dictionary.id();
        let Some(value_type) = self.schema.fields().iter().find_map(|field| value_type_of(field, id)) else {
            return Ok(None);
        };
        let batch = dictionary.data().ok_or("a dictionary has no values")?;
        let fields = Fields::from(vec![Field::new("values", value_type.clone(), true)]);
        let wanted = WantedColumns::find(&self.source, place, batch, &fields, &[0])?;
        Ok(Some((Some(id), wanted)))
    }

    /// Reads a dictionary, or the next batch.
    fn read_message(&mut self, place: &MessagePlace) -> Result<(), String> {
        let metadata = place.metadata(&self.source)?;
        let message = root_as_message(&metadata).map_err(|error| format!("a message is damaged: {error}"))?;
        let Some((id, wanted)) = self.wanted_of(place, message)? else { return Ok(()) };
        let version = self.messages.version;
        if let Some(id) = id {
            let is_delta = message.header_as_dictionary_batch().is_some_and(|batch| batch.isDelta());
            let (dictionary, body) = wanted.read(&self.source, Some((id, is_delta)))?;
            let dictionary =
                flatbuffers::root::<DictionaryBatch<'_>>(&dictionary).map_err(|error| error.to_string())?;
            return read_dictionary(&body, dictionary, &self.schema, &mut self.dictionaries, &version)
                .map_err(|error| error.to_string());
        }
        let (batch, body) = wanted.read(&self.source, None)?;
        let batch =
            flatbuffers::root::<arrow_ipc::RecordBatch<'_>>(&batch).map_err(|error| error.to_string())?;
        let batch = read_record_batch(&body, batch, self.schema.clone(), &self.dictionaries, None, &version)
            .map_err(|error| error.to_string())?;
        let row_bytes = wanted.n_bytes() / wanted.n_rows().max(1);
        let n_slice_rows = (BATCH_BYTES as u64 / row_bytes.max(1)).clamp(1, BATCH_ROWS as u64) as usize;
        self.current = Some(CurrentBatch { batch, first_row: 0, n_slice_rows });
        Ok(())
    }
}

impl CurrentBatch {
    /// Returns the next rows; `None` if there are none.
    fn next(&mut self) -> Option<RecordBatch> {
        let n_rows = self.n_slice_rows.min(self.batch.num_rows() - self.first_row);
        let rows = (n_rows > 0).then(|| self.batch.slice(self.first_row, n_rows));
        self.first_row += n_rows;
        rows
    }
}

/// Returns the type of the values of a dictionary of a field, or of a field within it.
#[expect(
    deprecated,
    reason = "the library finds the dictionaries of a message by these ids, and has no other way yet"
)]
fn value_type_of(field: &Field, id: i64) -> Option<&DataType> {
    match field.data_type() {
        DataType::Dictionary(_, values) if field.dict_id() == Some(id) => Some(values),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => value_type_of(item, id),
        DataType::Struct(fields) => fields.iter().find_map(|field| value_type_of(field, id)),
        _ => None,
    }
}

/// Checks the type of a wanted column: integers of an extension type, such as periods of pandas, are numbers of an unknown unit.
fn check_type(field: &Field) -> Result<(), String> {
    match field.extension_type_name() {
        Some(name) if field.data_type().is_integer() => {
            Err(format!("column {:?} has the type {name}: write it as text or as a number", field.name()))
        }
        _ => Ok(()),
    }
}

fn names_of(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// Calls a function that reads a file. An error names the file, and so does a panic of the Arrow library on a damaged one.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T, String>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|message| bad_file(path, message)),
        Err(_) => Err(bad_file(path, "the file is damaged".to_owned())),
    }
}

fn bad_file(path: &Path, message: String) -> Error {
    Error::TableFile(TableFileError::Arrow { path: path.to_owned(), message })
}

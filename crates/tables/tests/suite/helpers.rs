//! Fixtures: tables in a scratch folder, and the set that an import makes of them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{Field, Schema};
use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_data::{Dataset, format};
use kiln_graph::NodeId;
use kiln_tables::{Error, ImportOptions, ImportReport, import};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// The ends of the names of tables, one for each format.
pub(crate) const FORMATS: [&str; 7] = ["csv", "csv.gz", "csv.zst", "jsonl", "jsonl.zst", "parquet", "arrow"];

/// A scratch folder with tables.
pub(crate) struct Tables {
    root: tempfile::TempDir,
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a text file, compressed if its name ends in `.gz` or `.zst`.
    pub(crate) fn put(&self, name: &str, text: &str) -> &Self {
        let path = self.path(name);
        match name.rsplit('.').next() {
            Some("gz") => {
                let mut file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
                file.write_all(text.as_bytes()).unwrap();
                file.finish().unwrap();
            }
            Some("zst") => {
                // Two frames, as programs with several threads write them.
                let parts = text.as_bytes().split_at(text.len() / 2);
                let parts = [parts.0, parts.1].map(|part| compress_to_vec(part, CompressionLevel::Fastest));
                fs::write(path, parts.concat()).unwrap();
            }
            _ => fs::write(path, text).unwrap(),
        }
        self
    }

    /// Writes a table of texts in the format of its name. An empty text is a missing value.
    pub(crate) fn put_table(&self, name: &str, header: &[&str], rows: &[&[&str]]) -> &Self {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        let column = |position: usize| -> ArrayRef {
            let texts = rows.iter().map(|row| Some(row[position]).filter(|text| !text.is_empty()));
            Arc::new(texts.collect::<StringArray>())
        };
        let columns: Vec<(&str, ArrayRef)> =
            header.iter().enumerate().map(|(position, name)| (*name, column(position))).collect();
        if name.ends_with(".parquet") {
            return self.put_parquet(name, &columns, WriterProperties::default());
        }
        if name.ends_with(".arrow") {
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let file = File::create(self.path(name)).unwrap();
            let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
            // Two batches.
            let n_first = batch.num_rows() / 2;
            writer.write(&batch.slice(0, n_first)).unwrap();
            writer.write(&batch.slice(n_first, batch.num_rows() - n_first)).unwrap();
            writer.finish().unwrap();
            return self;
        }
        if name.contains(".jsonl") {
            let object = |row: &&[&str]| {
                let fields = header.iter().zip(*row).map(|(name, text)| format!("{name:?}: {text:?}"));
                format!("{{{}}}\n", fields.collect::<Vec<_>>().join(", "))
            };
            return self.put(name, &rows.iter().map(object).collect::<String>());
        }
        let lines = [header].into_iter().chain(rows.iter().copied()).map(|row| row.join(",") + "\n");
        self.put(name, &lines.collect::<String>())
    }

    /// Writes a Parquet file.
    pub(crate) fn put_parquet(
        &self,
        name: &str,
        columns: &[(&str, ArrayRef)],
        properties: WriterProperties,
    ) -> &Self {
        let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
        let file = File::create(self.path(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        self
    }

    /// Imports the tables by a spec to the folder `out`.
    pub(crate) fn import_with(
        &self,
        spec: &str,
        out: &str,
        options: &ImportOptions,
    ) -> Result<ImportReport, Error> {
        let path = self.path(&format!("{out}.yaml"));
        fs::write(&path, spec).unwrap();
        import(path, self.path(out), options)
    }

    /// Imports the tables by a spec, verifies the set and opens it.
    pub(crate) fn import(&self, spec: &str) -> Dataset {
        self.import_with(spec, "set", &ImportOptions::default()).unwrap();
        format::verify(self.path("set")).unwrap();
        Dataset::open(self.path("set")).unwrap()
    }

    /// Returns the message of the error of an import, which must leave no files behind.
    pub(crate) fn error_of(&self, spec: &str) -> String {
        let error = self.import_with(spec, "failed", &ImportOptions::default()).unwrap_err();
        let left = fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("failed.unfinished")).collect();
        assert!(
            left.is_empty() && !self.path("failed").exists(),
            "an error should remove all files: {left:?}"
        );
        error.to_string().replace(&format!("{}/", self.root.path().display()), "")
    }
}

/// Returns the features of a node type, one row after the other.
pub(crate) fn features(data: &Dataset, node_type: usize) -> Vec<f32> {
    let store = data.features[node_type].as_ref().unwrap();
    let rows: Vec<NodeId> = (0..store.n_rows() as u32).map(NodeId).collect();
    let mut buffer = kiln_feature::FeatureBuffer::empty(store.dtype());
    store.gather(&rows, &mut buffer).unwrap();
    buffer.into_f32()
}

/// Returns the keys of a node type.
pub(crate) fn keys(data: &Dataset, node_type: usize) -> Vec<String> {
    let names = &data.names[node_type];
    (0..names.len() as u32).map(|node| names.get(NodeId(node)).unwrap().to_owned()).collect()
}

/// Returns the edges of a relation as pairs of keys, by destination.
pub(crate) fn edges(data: &Dataset, relation: usize) -> Vec<(String, String)> {
    let graph = &data.graph;
    let relation = graph.relation(relation);
    let dsts = graph.types().range(relation.dst_type);
    let mut edges = Vec::new();
    for dst in dsts.clone() {
        for src in relation.graph.in_neighbors(NodeId(dst - dsts.start)) {
            let name = |node: NodeId| data.node_name(node).unwrap().to_owned();
            edges.push((name(*src), name(NodeId(dst))));
        }
    }
    edges
}

/// Returns the content of each file of a folder.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Returns pairs of texts.
pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(src, dst)| ((*src).to_owned(), (*dst).to_owned())).collect()
}

//! Streams of Arrow that are cut off or followed by other bytes.

use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;

use crate::helpers::{Tables, keys};

const SPEC: &str = "{name: t, nodes: [{name: u, files: [u.arrow], key: id}]}";

/// A stream with one batch for each key, and its length after the schema and after each batch.
fn stream(ids: &[&str]) -> (Vec<u8>, Vec<usize>) {
    let batch = |id: &str| {
        let column: ArrayRef = Arc::new(StringArray::from(vec![id]));
        RecordBatch::try_from_iter([("id", column)]).unwrap()
    };
    let mut writer = StreamWriter::try_new(Vec::new(), &batch("").schema()).unwrap();
    let mut lengths = vec![writer.get_ref().len()];
    for id in ids {
        writer.write(&batch(id)).unwrap();
        lengths.push(writer.get_ref().len());
    }
    (writer.into_inner().unwrap(), lengths)
}

#[test]
fn a_stream_ends_with_its_marker_and_nothing_more() {
    let tables = Tables::new();
    let (bytes, lengths) = stream(&["a", "b"]);
    assert_eq!(bytes.len(), lengths[2] + 8);
    fs::write(tables.path("u.arrow"), &bytes).unwrap();
    assert_eq!(keys(&tables.import(SPEC), 0), ["a", "b"]);
    let at = "u.arrow: cannot read the Arrow file: ";
    for length in lengths {
        fs::write(tables.path("u.arrow"), &bytes[..length]).unwrap();
        let expected = format!("{at}it ends without the marker of the end: it is cut off, or was not closed");
        assert_eq!(tables.error_of(SPEC), expected, "{length}");
    }
    for length in 1..bytes.len() {
        fs::write(tables.path("u.arrow"), &bytes[..length]).unwrap();
        assert!(tables.error_of(SPEC).starts_with(at), "{length}");
    }
    let (more, _) = stream(&["c"]);
    fs::write(tables.path("u.arrow"), [&bytes[..], &more].concat()).unwrap();
    let expected = format!(
        "{at}{} bytes follow the end of the stream: write each stream to a file of its own",
        more.len()
    );
    assert_eq!(tables.error_of(SPEC), expected);
}

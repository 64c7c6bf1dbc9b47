//! Tests of the results: means, deviations, order, and files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[cfg(feature = "tables")]
use arrow_array::{cast::AsArray, types::Float64Type};
use kiln_sweep::Sweep;
#[cfg(feature = "tables")]
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::plan::parse;

/// Writes the folder of a run that has finished with these values of its metric.
pub(crate) fn write_finished(folder: &Path, validation: f64, test: f64) {
    fs::create_dir_all(folder).unwrap();
    let row = format!(
        "{{\"epoch\": 1, \"train_loss\": 1.0, \"val_loss\": 1.0, \"val_accuracy\": {validation}, \"seconds\": 2.0}}\n"
    );
    fs::write(folder.join("metrics.jsonl"), row).unwrap();
    let summary = format!(
        "{{\"test_accuracy\": {test}, \"val_accuracy\": {validation}, \"best_epoch\": 1, \"n_epochs\": 1}}"
    );
    fs::write(folder.join("summary.json"), summary).unwrap();
}

fn sweep(folder: &Path) -> Sweep {
    let text = "[sweep]\nlr = [0.1, 0.2, 0.3, 0.4]\nmodel = [\"sage\"]\nseed = [0, 1, 2]";
    let sweep = Sweep::open(parse(text).unwrap(), folder).unwrap();
    let results = [
        // Mean 0.5, sample deviation 0.1.
        ("cell-001-seed-0", 0.4, 0.5),
        ("cell-001-seed-1", 0.5, 0.5),
        ("cell-001-seed-2", 0.6, 0.5),
        ("cell-002-seed-0", 0.7, 0.25),
        // A run that has diverged has no value.
        ("cell-003-seed-0", 0.9, 0.9),
        ("cell-003-seed-1", f64::NAN, 0.9),
    ];
    for (name, validation, test) in results {
        write_finished(&folder.join(name), validation, test);
    }
    let diverged = folder.join("cell-003-seed-1");
    let row = "{\"epoch\": 1, \"train_loss\": null, \"val_loss\": null, \"val_accuracy\": null, \"seconds\": 2.0}\n";
    fs::write(diverged.join("metrics.jsonl"), row).unwrap();
    fs::write(diverged.join("summary.json"), "{\"best_epoch\": 1, \"n_epochs\": 1}").unwrap();
    sweep
}

#[test]
fn cells_have_means_and_sample_deviations_the_best_first() {
    let root = tempfile::tempdir().unwrap();
    let sweep = sweep(root.path());
    let failures = BTreeMap::from([("cell-002-seed-1".to_owned(), "exit status: 1".to_owned())]);
    let table = sweep.table(&failures);
    let expected = "\
cell  lr   model  runs    validation accuracy  test accuracy    time
2     0.2  sage   1 of 3  0.7000 ± –           0.2500 ± –       2.0 s
1     0.1  sage   3       0.5000 ± 0.1000      0.5000 ± 0.0000  2.0 s
3     0.3  sage   2 of 3  none                 none             2.0 s
4     0.4  sage   0 of 3";
    assert_eq!(table.to_string(), expected);
    let listed = table.list_runs();
    let state = |name: &str| listed.rows.iter().find(|row| row[0] == name).unwrap()[1].clone();
    assert_eq!(state("cell-001-seed-0"), "finished");
    assert_eq!(state("cell-002-seed-1"), "failed");
    assert_eq!(state("cell-004-seed-2"), "waiting");
    let files = table.write_files(root.path()).unwrap();
    let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    let expected = ["sweep.html", "sweep.parquet"];
    assert_eq!(names, expected[..if cfg!(feature = "tables") { 2 } else { 1 }]);
    let page = fs::read_to_string(&files[0]).unwrap();
    assert!(page.contains("<h2>Cells</h2>") && page.contains("0.5000 ± 0.1000"), "{page}");
    assert!(page.contains("cell-003-seed-1") && !page.contains("cell-004-seed-0"));
}

#[cfg(feature = "tables")]
#[test]
fn rows_of_runs_are_written_again() {
    let root = tempfile::tempdir().unwrap();
    let sweep = sweep(root.path());
    let path = root.path().join("sweep.parquet");
    let failures = BTreeMap::from([("cell-002-seed-1".to_owned(), "exit status: 1".to_owned())]);
    let table = sweep.table(&failures);
    table.write_rows(&path).unwrap();
    let first = fs::read(&path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&path).unwrap()).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let expected = [
        "run",
        "cell",
        "lr",
        "model",
        "seed",
        "state",
        "metric_name",
        "validation",
        "test",
        "best_epoch",
        "n_epochs",
        "seconds",
        "failure",
    ];
    assert_eq!(names, expected);
    let numbers = |name: &str| -> Vec<Option<f64>> {
        batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().iter().collect()
    };
    let texts = |name: &str| -> Vec<Option<&str>> {
        batch.column_by_name(name).unwrap().as_string::<i32>().iter().collect()
    };
    assert_eq!(texts("run")[1], Some("cell-001-seed-1"));
    assert_eq!(
        (numbers("lr")[3], texts("model")[3], numbers("seed")[5]),
        (Some(0.2), Some("sage"), Some(2.0))
    );
    assert_eq!(numbers("validation")[..5], [Some(0.4), Some(0.5), Some(0.6), Some(0.7), None]);
    assert_eq!(numbers("test")[6..9], [Some(0.9), None, None]);
    assert_eq!(texts("state")[3..5], [Some("finished"), Some("failed")]);
    assert_eq!(texts("failure")[3..5], [None, Some("exit status: 1")]);
    // What a killed process left is no obstacle.
    fs::write(root.path().join("sweep.parquet.unfinished"), "PAR1").unwrap();
    table.write_rows(&path).unwrap();
    assert!(fs::read(&path).unwrap() == first);
}

//! Writes Parquet tables of users, items and purchases with text keys, and the spec of their import, to measure imports:
//! `write_tables FOLDER N_NODES N_EDGES`. Half of the nodes are users. docs/benchmarks/results.md has the figures.

use std::path::Path;

use kiln_tables::{OutputColumn, RowWriter};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number of rows that are written at a time.
const BATCH: u64 = 1 << 16;

const SPEC: &str = "name: purchases
nodes:
  - name: user
    files: [users.parquet]
    key: key
    columns: [{column: value, transform: standardize}]
  - name: item
    files: [items.parquet]
    key: key
    columns: [{column: value, transform: standardize}]
relations:
  - name: buys
    files: [buys.parquet]
    src: {type: user, column: user}
    dst: {type: item, column: item}
";

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, n_nodes, n_edges] = &args[..] else {
        return Err("expected three arguments: the folder, the number of nodes and that of edges".into());
    };
    let (folder, n_of_type, n_edges) = (Path::new(folder), n_nodes.parse::<u64>()? / 2, n_edges.parse()?);
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("spec.yaml"), SPEC)?;
    for (prefix, file) in [("user", "users.parquet"), ("item", "items.parquet")] {
        write(&folder.join(file), n_of_type, |row, writer| {
            let keys: Vec<String> = row.clone().map(|row| key(prefix, row)).collect();
            let values: Vec<f32> = row.map(|row| (mixed(row) % 1000) as f32).collect();
            let texts: Vec<&str> = keys.iter().map(String::as_str).collect();
            Ok(writer.write(&[("key", OutputColumn::Text(&texts)), ("value", OutputColumn::F32(&values))])?)
        })?;
    }
    write(&folder.join("buys.parquet"), n_edges, |rows, writer| {
        let users: Vec<String> = rows.clone().map(|row| key("user", mixed(2 * row) % n_of_type)).collect();
        let items: Vec<String> = rows.map(|row| key("item", mixed(2 * row + 1) % n_of_type)).collect();
        let [users, items] = [&users, &items].map(|keys| keys.iter().map(String::as_str).collect::<Vec<_>>());
        Ok(writer.write(&[("user", OutputColumn::Text(&users)), ("item", OutputColumn::Text(&items))])?)
    })
}

fn write(
    path: &Path,
    n_rows: u64,
    mut batch: impl FnMut(std::ops::Range<u64>, &mut RowWriter) -> Result,
) -> Result {
    let mut writer = RowWriter::create(path)?;
    for first in (0..n_rows).step_by(BATCH as usize) {
        batch(first..n_rows.min(first + BATCH), &mut writer)?;
    }
    Ok(writer.finish()?)
}

/// Returns the key of a row: its number is scattered, so that keys are in no order.
fn key(prefix: &str, row: u64) -> String {
    format!("{prefix}-{:016x}", mixed(row))
}

/// A permutation of 64-bit numbers (the finalizer of MurmurHash3).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

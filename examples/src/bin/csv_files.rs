//! Trains GraphSAGE on an edge list and features in CSV files, on two ranks: the first program of `docs/guide.md`.
//!
//! ```text
//! cargo run --release --bin csv_files -- edges.csv nodes.csv
//! ```

use kiln::prelude::*;

kiln::use_allocator!();

const N_FEATURES: usize = 2;
const N_CLASSES: usize = 2;

/// Calls `parse` with the fields of each line of a CSV file except the header.
fn read_csv(
    path: &str,
    mut parse: impl FnMut(&[&str]) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<()> {
    let error = |text: String| Error::Other(text.into());
    let text = std::fs::read_to_string(path).map_err(|e| error(format!("{path}: {e}")))?;
    for (idx, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        parse(&fields).map_err(|e| error(format!("{path}, line {}: {e}", idx + 1)))?;
    }
    Ok(())
}

/// Reads `src,dst` per edge, and `label,split,feature,feature,...` per node, node 0 first.
fn read(edges: &str, nodes: &str) -> Result<Dataset> {
    let mut srcs = vec![];
    let mut dsts = vec![];
    read_csv(edges, |fields| {
        let [src, dst] = fields else { return Err("expected src,dst".into()) };
        srcs.push(src.parse()?);
        dsts.push(dst.parse()?);
        Ok(())
    })?;
    let mut labels = vec![];
    let mut features = vec![];
    let mut splits = [vec![], vec![], vec![]];
    read_csv(nodes, |fields| {
        let [label, split, row @ ..] = fields else { return Err("expected label,split,features".into()) };
        if row.len() != N_FEATURES {
            return Err(format!("expected {N_FEATURES} features, got {}", row.len()).into());
        }
        // Nodes of other splits are neither trained nor tested on, but are read as neighbours.
        if let Some(position) = ["train", "val", "test"].iter().position(|name| name == split) {
            splits[position].push(labels.len() as u32);
        }
        labels.push(label.parse()?);
        for value in row {
            features.push(value.parse::<f32>()?);
        }
        Ok(())
    })?;
    let [train, val, test] = splits;
    let data = Dataset::builder(labels.len())
        .edges(&srcs, &dsts)
        .symmetrize()
        .features(features, N_FEATURES)
        .labels(labels, N_CLASSES)
        .split(train, val, test)
        .build()?;
    Ok(data)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [edges, nodes] = &args[..] else {
        return Err(Error::Other("usage: csv_files edges.csv nodes.csv".into()));
    };
    let data = read(edges, nodes)?;
    let loader = NeighborLoader::new(&data, [10, 10]).batch_size(256);
    let model = SageConfig::for_data(&data).layers(2).hidden(64);
    // `launch` starts two threads as ranks, or joins the processes that srun, mpirun or torchrun started.
    launch(RankConfig::from_env_or_threads(2), |rank| {
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(3e-3)).seed(0).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(10))?;
        let test = best.evaluate(&loader, Phase::Test)?;
        if rank.is_zero() {
            println!("test accuracy {:.4}", test.accuracy());
        }
        Ok(())
    })?;
    Ok(())
}

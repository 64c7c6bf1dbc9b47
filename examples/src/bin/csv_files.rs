//! Imports CSV files and trains a GCN on them, on two ranks: the first program of the book in `docs/book`.
//!
//! ```text
//! cargo run --release --bin csv_files -- citations.yaml citations
//! ```

use kiln::prelude::*;
use kiln::tables::{ImportOptions, import};

kiln::use_allocator!();

fn main() -> Result<()> {
    kiln::print_log();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [spec, set] = &args[..] else {
        return Err(Error::Other("usage: csv_files SPEC.yaml NEW_FOLDER".into()));
    };
    println!("{}", import(spec, set, &ImportOptions::default())?);
    // A GCN reads one graph of one type of nodes: that of the only relation.
    let data = Dataset::open(set)?.to_homogeneous()?;
    let loader = NeighborLoader::new(&data, [10, 10]).batch_size(256).gcn_norm()?;
    let model = GcnConfig::for_data(&data).layers(2).hidden(64);
    // `launch` starts two threads as ranks, or joins the processes that srun, mpirun or torchrun started.
    launch(RankConfig::from_env_or_threads(2), |rank| {
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(0).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(10).out("runs/citations"))?;
        let test = best.evaluate(&loader, Phase::Test)?;
        if rank.is_zero() {
            println!("test accuracy {:.4}", test.accuracy());
        }
        Ok(())
    })?;
    let predictor = SavedModel::open("runs/citations")?.on_nodes(&data)?;
    let first = [NodeId(0), NodeId(1)];
    let scores = predictor.predict(&first, &PredictMode::default())?;
    for (node, class) in first.iter().zip(scores.classes()) {
        let class = class.map_or("no finite score", |class| &data.class_names()[class as usize]);
        println!("{}: {class}", data.node_name(*node).unwrap_or_default());
    }
    Ok(())
}

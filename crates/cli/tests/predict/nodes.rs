use std::time::Instant;

use clap::Parser;
use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;

use super::super::args::PredictArgs;
use super::*;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    predict: PredictArgs,
}

/// Pages that link to the next page, of two classes.
fn pages() -> Dataset {
    let next: Vec<u32> = (0..100).map(|page| (page + 1) % 100).collect();
    let all: Vec<u32> = (0..100).collect();
    let links = RelationEdges::new("links", "page", "page", &all, &next);
    Dataset::builder_with_types(NodeTypes::new([("page", 100)]).unwrap())
        .relation(links)
        .nodes("page")
        .features(vec![0.5; 100], 1)
        .nodes("page")
        .labels((0..100).map(|page| page % 2).collect::<Vec<i32>>(), 2)
        .split(all[..40].to_vec(), all[40..60].to_vec(), all[60..].to_vec())
        .build()
        .unwrap()
}

#[test]
fn predictions_of_heterogeneous_nodes_show_their_progress() {
    let root = tempfile::tempdir().unwrap();
    let [run, out] = ["run", "out"].map(|name| root.path().join(name));
    let data = pages();
    let loader = NeighborLoader::new(&data, [2]).batch_size(8).workers(0);
    let config = HeteroModelConfig::new(data.dims(), RsageConfig::new(1, 2).layers(1));
    let fit = FitConfig::epochs(1).out(&run).quiet();
    Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, fit).unwrap();
    let model = SavedModel::open(&run).unwrap();
    let flags = format!("kiln --run {} --out {}", run.display(), out.display());
    let args = Flags::try_parse_from(flags.split(' ')).unwrap().predict;
    let job = Job { args: &args, model, local_rank: 0, launch: None, started: Instant::now() };
    let (predictor, request) = job.node_request(&data.into(), true).unwrap();
    let bar = ProgressBar::hidden();
    launch(RankConfig::threads(1), |rank| {
        job.predict_nodes(&rank, &out, &predictor, request.clone(), &PredictMode::AsEvaluated, &bar)
    })
    .unwrap();
    assert_eq!((bar.position(), bar.length()), (40, Some(40)));
}

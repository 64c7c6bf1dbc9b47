//! Several labels per node and regression targets on partitions: metrics, weights and predictions are those of the whole
//! graph, for a plain graph and for a heterogeneous one.

use std::path::Path;

use kiln::GraphSource;
use kiln::data::DatasetTargets;
use kiln::feature::{TargetKind, TargetValues};
use kiln::nn::BlockModel;
use kiln::prelude::*;
use kiln::train::{Objective, weights_to_bytes};

use super::partitions::Parts;
use super::{N_NODES, heterogeneous, plain, wild};

const FANOUTS: [u32; 2] = [4, 3];

/// Returns the set with two target values per node of the type with targets. Every fifth value of the second column is missing.
fn set_with_values(data: Dataset, kind: TargetKind) -> Dataset {
    let all = (0..N_NODES).flat_map(|node| [(node, 0), (node, 1)]);
    let is_missing = |(node, column): (u32, u32)| column == 1 && wild(node + 800).is_multiple_of(5);
    let number = |(node, column): (u32, u32)| (wild(node + 900 * column) % 9) as f32 / 4.0 - 1.0;
    let values = match kind {
        TargetKind::MultiLabel => {
            let label = |at| if is_missing(at) { u8::MAX } else { u8::from(0.0 < number(at)) };
            TargetValues::multi_label(all.map(label).collect::<Vec<u8>>(), 2)
        }
        _ => {
            let value = |at| if is_missing(at) { f32::NAN } else { number(at) };
            TargetValues::regression(all.map(value).collect::<Vec<f32>>(), 2)
        }
    };
    let targets = data.targets.as_ref().unwrap();
    let targets = DatasetTargets::new(targets.node_type, values.unwrap().into(), targets.split.clone());
    Dataset { targets: Some(targets), ..data }
}

/// Trains on one rank, on the graph that `source` returns. Returns the best epoch, the metrics and the predictions of the test
/// nodes, and the weights.
fn results<C>(
    model: &C,
    (objective, metric): (&Objective, Metric),
    out: &Path,
    source: impl Fn(&RankHandle) -> kiln::Result<GraphSource> + Sync,
) -> (String, Vec<u8>)
where
    C: ModelConfig<Model: BlockModel>,
{
    let config = RankConfig::threads(1).threads_per_rank(1);
    let mut found = launch(config, |rank| {
        let loader = NeighborLoader::new(source(&rank)?, FANOUTS).batch_size(64);
        let loader = loader.objective(objective.clone());
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(2).out(out).quiet().metric(metric))?;
        let test = best.evaluate(&loader, Phase::Test)?;
        let text = format!("{:?} {test:?} {:?}", best.best, best.predict(&loader, Phase::Test)?);
        Ok((text, weights_to_bytes(&best.model)?))
    });
    found.as_mut().unwrap().remove(0)
}

#[test]
fn target_values_on_partitions_are_learned_as_on_the_whole_graph() {
    let folder = tempfile::tempdir().unwrap();
    let huber = Objective::Regression(kiln::nn::TargetLoss::Huber { delta: 0.5 });
    for (kind, objective, metric) in [
        (TargetKind::MultiLabel, Objective::MultiLabel, Metric::RocAuc),
        (TargetKind::Regression, huber, Metric::R2),
    ] {
        let out = |name: &str| folder.path().join(format!("{kind} {name}"));
        let learning = (&objective, metric);
        let data = set_with_values(plain(), kind);
        let model = SageConfig::new(4, 2).layers(2).hidden(8).dropout(0.3);
        let whole = results(&model, learning, &out("whole"), |_| Ok((&data).into()));
        let served = Parts::of(&data).serve();
        let joined = |rank: &RankHandle| Ok((&served.graph.join(rank)?).into());
        assert_eq!(results(&model, learning, &out("servers"), joined), whole);
        let data = set_with_values(heterogeneous(), kind);
        let model = HeteroModelConfig::new(data.dims(), model);
        let whole = results(&model, learning, &out("heterogeneous"), |_| Ok((&data).into()));
        let served = Parts::of_typed(&data).serve();
        let joined = |rank: &RankHandle| Ok((&served.graph.join(rank)?).into());
        assert_eq!(results(&model, learning, &out("heterogeneous servers"), joined), whole);
    }
}

//! Tests of thread ranks: each trains on its share of the nodes, and all have the same model.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::data::synthetic;
use kiln::prelude::*;

fn data() -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 500, num_channels: 16, ..Default::default() };
    synthetic::fake(config).unwrap()
}

fn fit(
    data: &Dataset,
    rank: &RankHandle,
    batch_size: usize,
    out: &Path,
) -> Result<TrainedModel<kiln::nn::Sage>> {
    let loader = NeighborLoader::new(data, [5, 5]).batch_size(batch_size);
    let config = SageConfig::for_data(data).layers(2).hidden(16).dropout(0.0);
    let mut trainer = Trainer::new(config, AdamConfig::new(1e-2)).rank(rank);
    let best = trainer.fit(&loader, FitConfig::epochs(2).out(out).quiet())?;
    let metrics = best.evaluate(&loader, Phase::Test)?;
    let outputs = best.predict(&loader, Phase::Test)?;
    let n_outputs = if rank.is_zero() { data.split().test.len() } else { 0 };
    assert_eq!((metrics.total as usize, outputs.predictions().len()), (data.split().test.len(), n_outputs));
    Ok(best)
}

#[test]
fn ranks_train_one_model() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let run = |n_ranks: usize, batch_size: usize| {
        let out = folder.path().join(n_ranks.to_string());
        launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
            assert_eq!(rank.world_size(), n_ranks);
            fit(&data, &rank, batch_size, &out)
        })
        .unwrap()
    };
    let (one, two) = (run(1, 64), run(2, 32));
    assert_eq!((one.len(), two.len()), (1, 2));
    assert_eq!(two[0].best, two[1].best);
    // Items, samples and dropout masks are identical, but sums round differently.
    let (one_loss, two_loss) = (one[0].best.val.loss(), two[0].best.val.loss());
    assert!((one_loss - two_loss).abs() < 1e-4 * one_loss, "{one_loss} {two_loss}");
    assert!(two[0].folder().is_some() && two[1].folder().is_none());

    // A trained model can be used after its ranks have exited, but its collectives fail.
    let error = two[0].evaluate(&NeighborLoader::new(&data, [5, 5]), Phase::Test).unwrap_err();
    assert!(matches!(error, Error::RanksEnded), "{error}");
}

#[test]
fn names_the_rank_that_failed() {
    let error = launch(RankConfig::threads(2), |rank| match rank.index() {
        0 => rank.communicator("meeting").and_then(|mut comm| Ok(comm.all_gather(&[])?)).map(drop),
        _ => Err(Error::CacheNeedsDevice),
    })
    .unwrap_err();
    assert!(matches!(error, Error::Rank(_)), "{error}");
    assert!(format!("{error:?}").contains("rank 1"), "{error:?}");
    let error = launch(RankConfig::threads(0), |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Rank(_)), "{error}");
}

//! Link prediction: loss, metrics, models that learn, ranks and workers.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use kiln_comm::{Communicator, SingleRank};
use kiln_feature::{DenseFeatures, FeatureStore, Labels, TargetKind};
use kiln_graph::{Csc, CscBuilder, LinkId, Links, NodeId};
use kiln_kernels::testing::values;
use kiln_loader::{
    Batcher, ItemSampler, ItemSamplerConfig, LinkBatcher, LinkExclusion, Loader, LoaderConfig, NodeBatcher,
    SeedBatch, Shard, StageTimes,
};
use kiln_nn::{
    ForwardContext, LinkDecoderConfig, LinkLoss, LinkModel, LinkModelConfig, Mode, ModelConfig, Sage,
    SageConfig,
};
use kiln_sample::{Fanout, Negatives, NeighborSampler, RngKey, Scratch, UniformNegatives};
use kiln_train::{
    BatchConfig, DeviceBatch, DeviceBatcher, EpochReport, Evaluation, Evaluator, ExactEvaluator, FitConfig,
    HostNodeBatcher, LayerWiseConfig, LayerWiseInference, LinkInput, LinkTask, Metric, Objective, ReportInfo,
    Run, RunFolder, RunIdentity, StepOutput, TEST, Task, TaskTrainer, ToDevice, VALIDATION, evaluate_best,
    fit, weights_to_bytes,
};

use crate::common::{config, ranks, shard};

const N_NODES: u32 = 120;
const N_NEGATIVES: usize = 4;

type LinkLoader = Loader<DeviceBatcher<LinkBatcher<NodeBatcher<NeighborSampler>>>>;
type LinkTrainer = TaskTrainer<LinkTask<Sage>>;

/// Returns the links of four communities of 30 nodes: each node has links to nodes of its community only. Every fifth
/// link is not in the graph and is for validation.
fn links() -> Links {
    let pairs =
        (0..N_NODES).flat_map(|src| [1, 4, 9, 13].map(|step| (src, src / 30 * 30 + (src + step) % 30)));
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = pairs.unzip();
    Links::new(srcs, dsts).unwrap()
}

fn train_links() -> Vec<LinkId> {
    (0..links().len() as u32).filter(|link| link % 5 != 0).map(LinkId).collect()
}

fn val_links() -> Vec<LinkId> {
    (0..links().len() as u32).step_by(5).map(LinkId).collect()
}

fn graph() -> Arc<Csc> {
    let (links, train) = (links(), train_links());
    let (srcs, dsts): (Vec<u32>, Vec<u32>) =
        train.iter().map(|link| links.pair(*link)).map(|(src, dst)| (src.0, dst.0)).unzip();
    Arc::new(CscBuilder::new(N_NODES as usize).symmetrize().build(&srcs, &dsts).unwrap())
}

/// Returns features of 8 columns, of which two correlate weakly with the community.
fn features() -> Arc<dyn FeatureStore> {
    let value = |node: u32, column: u32| {
        let noise = (node.wrapping_mul(2_654_435_769).wrapping_add(column * 40_503) >> 7) % 1000;
        let of_community = if node / 30 == column { 0.4 } else { 0.0 };
        noise as f32 / 1000.0 - 0.5 + of_community
    };
    let rows: Vec<f32> =
        (0..N_NODES).flat_map(|node| (0..8).map(move |column| value(node, column))).collect();
    Arc::new(DenseFeatures::from_f32(rows, 8).unwrap())
}

fn nodes(fanout: Fanout) -> NodeBatcher<NeighborSampler> {
    NodeBatcher::without_targets(NeighborSampler::new(graph(), [fanout; 2]).into(), features())
}

fn negatives() -> Negatives {
    Negatives::new(UniformNegatives { dsts: 0..N_NODES }, N_NEGATIVES)
}

fn batcher(fanout: Fanout) -> LinkBatcher<NodeBatcher<NeighborSampler>> {
    LinkBatcher::new(nodes(fanout), links(), negatives())
        .eval_negatives(Negatives::new(UniformNegatives { dsts: 0..N_NODES }, 20))
        .exclusion(LinkExclusion::WithReverses)
}

fn loader(links: Vec<LinkId>, batch_size: usize, shard: Shard, workers: usize, fanout: Fanout) -> LinkLoader {
    let items = ItemSamplerConfig { batch_size, seed: 1, shard, ..Default::default() };
    let batcher = DeviceBatcher::new(batcher(fanout), &Device::flex());
    let config = LoaderConfig { workers, ..Default::default() };
    Loader::new(ItemSampler::new(links, items).unwrap(), batcher, config).unwrap()
}

fn train_loader(shard: Shard, workers: usize) -> LinkLoader {
    loader(train_links(), 96 / shard.world_size, shard, workers, Fanout::UpTo(4))
}

fn model(decoder: LinkDecoderConfig, device: &Device) -> LinkModel<Sage> {
    let encoder = SageConfig { hidden: 16, n_layers: 2, dropout: 0.2, ..SageConfig::new(8, 16) };
    LinkModelConfig { encoder, decoder }.init(RngKey::new(1), device).unwrap()
}

const MLP: LinkDecoderConfig = LinkDecoderConfig::Mlp { hidden: 16, n_layers: 2, dropout: 0.1 };

fn trainer(task: LinkTask<Sage>, decoder: LinkDecoderConfig, comm: Box<dyn Communicator>) -> LinkTrainer {
    TaskTrainer::new(task, &config(), comm, |_, device| Ok(model(decoder, device))).unwrap()
}

fn train(trainer: &mut LinkTrainer, loader: &LinkLoader, n_epochs: usize) -> Vec<EpochReport> {
    (0..n_epochs).map(|_| trainer.epoch(loader, |_| ()).unwrap()).collect()
}

/// Returns a batch of these links, whose nodes repeat.
fn batch(links: &[u32]) -> DeviceBatch<LinkInput> {
    let seeds = links.iter().copied().map(LinkId).collect();
    let seeds = SeedBatch::new(TEST, 0, RngKey::new(3), seeds);
    let batch = batcher(Fanout::All).batch(seeds, &mut Scratch::default(), &mut StageTimes::default());
    batch.unwrap().to_device(&Device::flex())
}

#[test]
fn scores_are_those_of_each_pair_alone() {
    let DeviceBatch { input, n_items, .. } = batch(&[0, 1, 5, 0]);
    assert_eq!((n_items, input.srcs.len(), input.n_negatives), (4, 4 * 21, 20));
    let model = model(MLP, &Device::flex());
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    let StepOutput { outputs, loss_sum, weight } = LinkTask::new().forward(&model, &input, &[], &ctx);
    assert_eq!((outputs.dims(), weight), ([4, 21], 84.0));
    // The encoder's row of each seed, then the decoder on one pair at a time.
    let rows = kiln_nn::BlockModel::forward(
        &model.encoder,
        &input.nodes.blocks,
        input.nodes.x.only().unwrap().clone(),
        &ctx,
    );
    let ids = Tensor::from_data([0_u32], (&Device::flex(), burn::tensor::DType::U32));
    let row = |position: u32| rows.clone().narrow(0, input.nodes.seed_index[position as usize], 1);
    let scores = values(outputs);
    for (pair, (&src, &dst)) in input.srcs.iter().zip(&input.dsts).enumerate() {
        let alone = values(model.decoder.scores(row(src), row(dst), &ids, &ctx))[0];
        assert!((alone - scores[pair]).abs() < 1e-5, "pair {pair}: {alone}, expected {}", scores[pair]);
    }
    let softplus = |x: f32| f64::from(x).exp().ln_1p();
    let of_pair =
        |(pair, &score): (usize, &f32)| if pair % 21 == 0 { softplus(-score) } else { softplus(score) };
    let expected: f64 = scores.iter().enumerate().map(of_pair).sum();
    assert!((f64::from(values(loss_sum)[0]) - expected).abs() < 1e-4, "expected {expected}");
}

#[test]
fn evaluations_have_the_pairs_the_ranks_and_the_loss_of_the_batches() {
    let input = batch(&[7, 2, 9]).input;
    for loss in [LinkLoss::BinaryCrossEntropy, LinkLoss::BayesianPersonalizedRanking] {
        let task = LinkTask::with_loss(loss);
        let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
        let forward = task.forward(&model(LinkDecoderConfig::Dot, &Device::flex()), &input, &[], &ctx);
        let mut evaluation = Evaluation::new(task.objective().clone());
        let [srcs, dsts] = input.link_nodes();
        evaluation.add_links(&input.links, &srcs, &dsts, &forward);
        let scores = values(forward.outputs);
        let sums = evaluation.counts().unwrap();
        assert!((sums.loss_sum - f64::from(values(forward.loss_sum)[0])).abs() < 1e-4, "{loss:?}: {sums:?}");
        assert_eq!((sums.weight, sums.total), (forward.weight, 3));
        let predictions = evaluation.link_predictions();
        assert_eq!(predictions.iter().map(|said| said.link.0).collect::<Vec<_>>(), [2, 7, 9]);
        for said in predictions {
            assert_eq!((said.src, said.dst), links().pair(said.link));
            let row = input.links.iter().position(|link| *link == said.link).unwrap();
            let (link, negatives) = (scores[21 * row], &scores[21 * row + 1..21 * row + 21]);
            let above = negatives.iter().filter(|score| **score > link).count() as f64;
            let tied = negatives.iter().filter(|score| **score == link).count() as f64;
            assert_eq!((said.score, said.rank), (link, Some(1.0 + above + tied / 2.0)));
        }
        let names: Vec<&str> = evaluation.all_metrics().iter().map(|(metric, _)| metric.name()).collect();
        assert_eq!(names, ["roc-auc", "average-precision", "mrr", "hits@10", "hits@50", "hits@100"]);
        let split = evaluation.link_scores();
        assert_eq!((split.links.len(), split.negatives.len()), (3, 60));
    }
}

#[test]
fn every_decoder_and_loss_learns_the_communities() {
    let dist_mult = LinkDecoderConfig::DistMult;
    for (decoder, loss) in [
        (LinkDecoderConfig::Dot, LinkLoss::BinaryCrossEntropy),
        (dist_mult, LinkLoss::BinaryCrossEntropy),
        (MLP, LinkLoss::BayesianPersonalizedRanking),
    ] {
        let mut trainer = trainer(LinkTask::with_loss(loss), decoder, Box::new(SingleRank));
        let (train_links, val) =
            (train_loader(Shard::default(), 0), val_loader(&trainer, &Evaluator::Sampled));
        let validate = |trainer: &mut LinkTrainer| {
            Evaluator::Sampled.validate(trainer, &val, VALIDATION, Metric::Mrr).unwrap().value.unwrap()
        };
        let before = validate(&mut trainer);
        let epochs = train(&mut trainer, &train_links, 40);
        let after = validate(&mut trainer);
        let losses = [0, 39].map(|epoch| epochs[epoch].counts.loss());
        println!("{decoder:?} {loss:?}: loss {losses:?}, mrr {before} to {after}");
        // A quarter of the negatives is in the link's community, so a perfect model of communities has about 0.3.
        assert!(losses[1] < 0.9 * losses[0], "{losses:?}");
        assert!(before + 0.05 < after, "{before} {after}");
    }
}

fn val_loader(trainer: &LinkTrainer, evaluator: &Evaluator) -> LinkLoader {
    let config = BatchConfig { batch_size: 32, ..Default::default() };
    let items = evaluator.items(trainer, val_links(), config).unwrap();
    let batcher = DeviceBatcher::new(batcher(Fanout::All), &Device::flex());
    Loader::new(items, batcher, LoaderConfig { workers: 0, ..Default::default() }).unwrap()
}

#[test]
fn weights_do_not_depend_on_the_number_of_workers() {
    let weights = [0, 1, 4].map(|workers| {
        let mut trainer = trainer(LinkTask::new(), MLP, Box::new(SingleRank));
        train(&mut trainer, &train_loader(Shard::default(), workers), 2);
        weights_to_bytes(trainer.model()).unwrap()
    });
    assert!(weights[0] == weights[1] && weights[1] == weights[2]);
}

/// The batches of several ranks are parts of those of one, so only the order of additions differs.
#[test]
fn several_ranks_learn_and_evaluate_like_one() {
    let run = |n_ranks: usize| {
        let results = ranks(n_ranks).run(|comm| {
            let train_links = train_loader(shard(&*comm), 0);
            let mut trainer = trainer(LinkTask::new(), MLP, comm);
            let reports = train(&mut trainer, &train_links, 2);
            let val = val_loader(&trainer, &Evaluator::Sampled);
            let outputs = Evaluator::Sampled.evaluate(&mut trainer, &val, VALIDATION).unwrap();
            let mrr = outputs.stats(Metric::Mrr).unwrap().value_over(trainer.comm()).unwrap();
            let gathered = outputs.gather(trainer.comm()).unwrap();
            let weights = weights_to_bytes(trainer.model()).unwrap();
            Ok((reports[1].counts, mrr, gathered.link_predictions(), weights))
        });
        results.unwrap()
    };
    let one = run(1);
    for n_ranks in [2, 3] {
        let several = run(n_ranks);
        let (counts, mrr, predictions, weights) = &several[0];
        assert!(several.iter().all(|of_rank| of_rank.3 == *weights && of_rank.1 == *mrr));
        assert!((counts.loss() - one[0].0.loss()).abs() < 1e-5, "{n_ranks} ranks: {counts:?}");
        assert_eq!((counts.total, counts.weight), (one[0].0.total, one[0].0.weight));
        assert!((mrr.unwrap() - one[0].1.unwrap()).abs() < 0.02, "{n_ranks} ranks: {mrr:?}");
        let nodes = |predictions: &[kiln_train::LinkPrediction]| -> Vec<(LinkId, NodeId, NodeId)> {
            predictions.iter().map(|said| (said.link, said.src, said.dst)).collect()
        };
        assert_eq!(nodes(predictions), nodes(&one[0].2));
    }
}

/// With all neighbours, both evaluators read the same.
#[test]
fn exact_evaluation_equals_sampled_evaluation_with_all_neighbours() {
    let threads = Arc::new(ranks(1).machine_pool().unwrap());
    let exact = Evaluator::Exact(ExactEvaluator {
        test_inference: None,
        inference: LayerWiseInference::new(graph(), LayerWiseConfig::default()).unwrap(),
        features: features().into(),
        targets: Arc::new(Labels::new(vec![0; N_NODES as usize], 1)).into(),
        first_ends: [0; 2],
        threads,
    });
    let mut trainer = trainer(LinkTask::new(), MLP, Box::new(SingleRank));
    train(&mut trainer, &train_loader(Shard::default(), 0), 1);
    let val = val_loader(&trainer, &exact);
    let [of_exact, of_sampled] = [&exact, &Evaluator::Sampled].map(|evaluator| {
        let counted = evaluator.count(&mut trainer, &val, VALIDATION).unwrap();
        (counted, evaluator.evaluate(&mut trainer, &val, VALIDATION).unwrap().link_predictions())
    });
    assert_eq!(of_exact.0.total, of_sampled.0.total);
    assert!((of_exact.0.loss() - of_sampled.0.loss()).abs() < 1e-5, "{:?} {:?}", of_exact.0, of_sampled.0);
    for (one, other) in of_exact.1.iter().zip(&of_sampled.1) {
        assert_eq!((one.link, one.src, one.dst), (other.link, other.src, other.dst));
        assert!((one.score - other.score).abs() < 1e-4, "{one:?} {other:?}");
    }
}

/// The batcher that gathers features for a device prepares the same batches.
#[test]
fn batches_of_a_device_batcher_equal_those_of_the_host() {
    let seeds = || SeedBatch::new(TEST, 0, RngKey::new(3), vec![LinkId(3), LinkId(8)]);
    let (mut scratch, mut times) = (Scratch::default(), StageTimes::default());
    let on_device = HostNodeBatcher::new(nodes(Fanout::UpTo(4)), &Device::flex());
    let on_device = LinkBatcher::new(on_device, links(), negatives());
    let on_host = LinkBatcher::new(nodes(Fanout::UpTo(4)), links(), negatives());
    let one = on_host.batch(seeds(), &mut scratch, &mut times).unwrap().to_device(&Device::flex());
    let other = on_device.batch(seeds(), &mut scratch, &mut times).unwrap().to_device(&Device::flex());
    assert_eq!((one.key, one.n_items, one.n_bytes), (other.key, other.n_items, other.n_bytes));
    assert_eq!((&one.input.links, &one.input.srcs), (&other.input.links, &other.input.srcs));
    assert_eq!(
        values(one.input.nodes.x.only().unwrap().clone()),
        values(other.input.nodes.x.only().unwrap().clone())
    );
}

#[test]
fn objectives_of_links_reject_other_targets_and_links_without_negatives() {
    let objective = Objective::default_of(TargetKind::Links);
    assert_eq!(objective, Objective::Links(LinkLoss::BinaryCrossEntropy));
    objective.check(TargetKind::Links, 2).unwrap();
    objective.check(TargetKind::Links, 1).unwrap_err();
    objective.check(TargetKind::Classes, 2).unwrap_err();
}

#[test]
fn a_run_keeps_the_epoch_of_the_best_mrr_and_writes_scores_and_metrics() {
    let mut trainer = trainer(LinkTask::new(), MLP, Box::new(SingleRank));
    let (train_links, val) = (train_loader(Shard::default(), 0), val_loader(&trainer, &Evaluator::Sampled));
    let folder = tempfile::tempdir().unwrap();
    let mut run =
        Run::start(&mut trainer, || RunFolder::create(folder.path()), RunIdentity::default()).unwrap();
    run.write_config(&serde_json::json!({ "decoder": "mlp" })).unwrap();
    let validate = |trainer: &mut LinkTrainer| {
        Evaluator::Sampled.validate(trainer, &val, VALIDATION, Metric::default_of(TargetKind::Links))
    };
    let epochs = FitConfig { n_epochs: 3, patience: None, checkpoint_every: None };
    let report = fit(&mut trainer, &train_links, epochs, validate, &mut run, &mut ()).unwrap();
    let said =
        evaluate_best(trainer, &run, |trainer| Evaluator::Sampled.evaluate(trainer, &val, TEST)).unwrap();
    let info =
        ReportInfo { title: "links", class_names: &[], item_columns: None, elapsed: Duration::from_secs(1) };
    let summary = run.finish(&said, &report, &info).unwrap().unwrap();
    assert_eq!((summary.metric, run.best().unwrap().metric), (Metric::Mrr, Metric::Mrr));
    let printed = summary.to_string();
    assert!(printed.starts_with("test roc-auc    0.") && !printed.contains("accuracy"), "{printed}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(json["test_metrics"]["mrr"].as_f64(), said.stats(Metric::Mrr).unwrap().value());
    assert!(json.get("test_accuracy").is_none(), "{json}");
    let csv = read("test_predictions.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (1 + val_links().len(), "link,source,destination,score,rank"));
    let first = said.link_predictions()[0];
    let rank = first.rank.unwrap();
    assert_eq!(lines[1], format!("{},{},{},{},{rank}", first.link.0, first.src.0, first.dst.0, first.score));
    assert!(read("metrics.jsonl").lines().all(|line| line.contains(r#""metric":"mrr","val_metric":0."#)));
}

//! Links that are split by time.

use kiln::Messages;
use kiln::data::{LinkTargets, TimeSplit};
use kiln::graph::{EdgeColumn, EdgeColumns};
use kiln::prelude::*;
use kiln::sample::{NegativeSampler, NodeRng, PositiveLink, RngKey};
use kiln::train::RunNegatives;

use super::{N_NODES, Random, draws, out};

const PHASES: [Phase; 3] = [Phase::Train { epoch: 0 }, Phase::Validation, Phase::Test];

const N_GROUPS: u32 = 20;

/// The data of [`likes`], the split of its links, and the items.
type Likes = (Dataset, LinkSplit, std::ops::Range<u32>);

/// Users who like one item of their group each. A node of the group tells a user before the link, with the probability of 0.8
/// (`past`), or after it (`future`).
fn likes(past: bool, future: bool) -> Likes {
    likes_with(|_| 0, past, future, false)
}

/// [`likes`] whose past is at the time that `before` returns from that of the link, and whose links have times if `with_times`.
pub(super) fn likes_with(before: impl Fn(i64) -> i64, past: bool, future: bool, with_times: bool) -> Likes {
    let n_users = 13_000_u32;
    let n_items = 400;
    let items = n_users..n_users + n_items;
    let first_teller = items.end;
    let n_nodes = (first_teller + N_GROUPS) as usize;
    let groups = draws(9, n_users as usize, N_GROUPS);
    let mut edges: Vec<(u32, u32, i64, u8)> = Vec::new();
    let wrong = draws(10, n_users as usize, 5);
    let picked = draws(11, n_users as usize, n_items / N_GROUPS);
    let others = draws(12, n_users as usize, N_GROUPS - 1);
    for user in 0..n_users {
        let at = user as usize;
        let time = 1_000 + i64::from(user);
        edges.push((user, items.start + groups[at] + N_GROUPS * picked[at], time, 0));
        if past {
            let told = if wrong[at] == 0 { (groups[at] + 1 + others[at]) % N_GROUPS } else { groups[at] };
            edges.push((first_teller + told, user, before(time), 1));
        }
        if future {
            edges.push((first_teller + groups[at], user, time + 1, 1));
        }
    }
    let dim = 2 * N_GROUPS as usize;
    let mut features = vec![0.0_f32; n_nodes * dim];
    for item in 0..n_items {
        features[(items.start + item) as usize * dim + (item % N_GROUPS) as usize] = 1.0;
    }
    for group in 0..N_GROUPS {
        features[(first_teller + group) as usize * dim + (N_GROUPS + group) as usize] = 1.0;
    }
    let srcs: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let dsts: Vec<u32> = edges.iter().map(|edge| edge.1).collect();
    let types: Vec<u8> = edges.iter().map(|edge| edge.3).collect();
    let times: Vec<i64> = edges.iter().map(|edge| edge.2).collect();
    let data = Dataset::builder(n_nodes)
        .edges(&srcs, &dsts)
        .edge_types(&types)
        .edge_column(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap())
        .features(features, dim)
        .build()
        .unwrap();
    let config = LinkSplitConfig {
        direction: Some(LinkDirection::Directed),
        edge_type: Some(0),
        with_times,
        ..LinkSplitConfig::default()
    };
    let split = TimeSplit::new(Some(1_400), 3_400, 4_000).unwrap();
    let split = LinkSplit::temporal(&data, "edge", None, split, &config).unwrap();
    (data, split, items)
}

pub(super) fn auc_of_likes((data, split, items): Likes, messages: Messages) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let nodes = NeighborLoader::new(&data, [4]).batch_size(128).messages(messages);
    let negatives = |n_per_link| Negatives::new(UniformNegatives { dsts: items.clone() }, n_per_link);
    let loader =
        LinkNeighborLoader::new(nodes, &split).unwrap().negatives(negatives(1)).eval_negatives(negatives(2));
    let encoder = SageConfig::new(2 * N_GROUPS as usize, 24).layers(1).dropout(0.0);
    let model = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
    let fit = out(folder.path(), "run".to_owned(), 12).metric(Metric::RocAuc);
    let trained = Trainer::new(model, AdamConfig::new(0.02)).fit(&loader, fit).unwrap();
    let outputs = trained.predict(&loader, Phase::Test).unwrap();
    outputs.stats(Metric::RocAuc).unwrap().value().unwrap()
}

/// Returns the area under the curve of the best score of [`likes`] with a past: a link matches with the probability 0.8, and a negative
/// with 1 in 20.
pub(super) fn best_auc() -> f64 {
    let [link, negative] = [0.8, 1.0 / f64::from(N_GROUPS)];
    link * (1.0 - negative) + 0.5 * (link * negative + (1.0 - link) * (1.0 - negative))
}

#[test]
fn links_that_only_the_future_tells_are_a_leak_with_all_messages_only() {
    let (_, split, _) = likes(false, true);
    assert_eq!(split.split().parts().map(|(_, links)| links.len()), [2_000, 600, 10_000]);
    assert!(split.find_leaks().unwrap().is_empty());
    let auc = auc_of_likes(likes(false, true), Messages::Known);
    assert!((auc - 0.5).abs() < 0.02, "{auc}");
    let leak = auc_of_likes(likes(false, true), Messages::All);
    assert!(0.9 < leak, "{leak}");
    let expected = best_auc();
    let auc = auc_of_likes(likes(true, true), Messages::Known);
    assert!((auc - expected).abs() < 0.02, "{auc}, expected {expected}");
}

#[test]
fn phases_of_links_equal_those_on_graphs_without_late_edges() {
    let random = Random::new(true, false);
    let split = TimeSplit::new(Some(20), 50, 75).unwrap();
    let data = random.timed(split, false);
    let config = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..LinkSplitConfig::default() };
    let links = LinkSplit::temporal(&data, "edge", None, split, &config).unwrap();
    let encoder = SageConfig::new(2, 8).layers(2).hidden(8).dropout(0.0);
    let model = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
    let folder = tempfile::tempdir().unwrap();
    for evaluation in [EvalMode::Sampled, EvalMode::Exact { memory_bytes: None }] {
        let loader = |data: &Dataset, links: &LinkSplit| {
            let nodes = NeighborLoader::new(data, [4, 4]).batch_size(32).workers(0).evaluation(evaluation);
            LinkNeighborLoader::new(nodes, links).unwrap().exclusion(LinkExclusion::None)
        };
        let fit = |loader: &LinkNeighborLoader, name: &str| {
            let mut trainer = Trainer::new(model.clone(), AdamConfig::new(0.01));
            trainer.fit(loader, out(folder.path(), format!("{name}-{evaluation:?}"), 1)).unwrap()
        };
        let of_cut = |cut: i64| {
            let data = random.build(Some(cut), &Split::default(), false);
            let targets: LinkTargets = links.targets().clone();
            loader(&data, &LinkSplit::new(&data.graph, targets).unwrap())
        };
        let timed = loader(&data, &links);
        let trained = fit(&timed, "timed");
        let [of_train, of_val, of_test] = split.cuts().map(of_cut);
        let expected = fit(&of_train, "cut");
        for (phase, cut) in [(Phase::Validation, of_val), (Phase::Test, of_test)] {
            let got = trained.predict(&timed, phase).unwrap();
            let expected = expected.predict(&cut, phase).unwrap();
            assert_eq!(got.counts().unwrap(), expected.counts().unwrap(), "{phase:?}");
        }
    }
}

#[test]
fn negatives_were_known_before_the_time_of_their_phase() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let data = random.timed(split, false);
    let config = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..LinkSplitConfig::default() };
    let links = LinkSplit::temporal(&data, "edge", None, split, &config).unwrap();
    for (phase, cut) in PHASES.into_iter().zip(split.cuts()) {
        let known = data.times.nodes_before(data.graph.types(), cut).unwrap();
        for degree in [false, true] {
            let negatives = match degree {
                false => Negatives::new(UniformNegatives { dsts: 0..N_NODES as u32 }, 3),
                true => Negatives::new(kiln::sample::DegreeNegatives::new(data.csc().unwrap()).unwrap(), 3),
            };
            let negatives = negatives.max_draws(200).among(known.clone());
            let ids: Vec<_> = links.split().parts()[0].1.to_vec();
            let drawn = negatives.sample(links.links(), &ids, &[], RngKey::new(3)).unwrap();
            assert!(drawn.dsts.iter().all(|dst| random.node_times[dst.index()] < cut), "{phase:?}");
            assert_eq!(drawn.n_rejected, 0);
        }
    }
}

/// Draws the same destination for each link.
struct OneDestination(NodeId);

impl NegativeSampler for OneDestination {
    fn draw(&self, link: PositiveLink<'_>, _: &mut NodeRng) -> (NodeId, NodeId) {
        (link.src, self.0)
    }

    fn name(&self) -> &str {
        "one destination"
    }
}

#[test]
fn a_loader_rejects_negatives_that_are_later_than_the_phase() {
    let mut random = Random::new(true, true);
    // Known from the validation on.
    random.node_times[7] = 60;
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let data = random.timed(split, false);
    let config = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..LinkSplitConfig::default() };
    let links = LinkSplit::temporal(&data, "edge", None, split, &config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rejected = |messages: Messages| {
        let nodes = NeighborLoader::new(&data, [4]).batch_size(64).workers(0).messages(messages);
        let negatives = || Negatives::new(OneDestination(NodeId(7)), 1);
        let loader = LinkNeighborLoader::new(nodes, &links).unwrap();
        let loader = loader.negatives(negatives()).eval_negatives(negatives());
        let encoder = SageConfig::new(2, 8).layers(1).dropout(0.0);
        let model = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
        let fit = out(folder.path(), format!("{messages:?}"), 1);
        let trained = Trainer::new(model, AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        let RunNegatives { train, val, .. } = trained.report.negatives;
        [train, val].map(|counts| counts.n_rejected)
    };
    let [train, val] = links.split().parts().map(|(_, part)| part.len() as u64)[..2] else { unreachable!() };
    assert_eq!(rejected(Messages::Known), [train, val]);
    assert!(rejected(Messages::All).into_iter().zip([train, val]).all(|(got, all)| got < all / 2));
}

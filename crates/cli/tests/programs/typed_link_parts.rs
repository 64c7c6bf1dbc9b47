//! Tests of links on partitions of heterogeneous sets: training and predictions are those of the whole set.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use kiln::data::{DatasetLinks, NodeNames, format};
use kiln::prelude::*;
use kiln::train::Objective;

use crate::distributed_sage::{Learned, Server, command, text};
use crate::typed::{data, partition};

const RELATIONS: &str = "--relation rates --reverse-relation rated-by";

/// Writes a set with split links, by `kiln data split-links`.
pub(crate) fn split(root: &Path, data: &Dataset) -> String {
    let [whole, out] = ["shop", "split"].map(|name| root.join(name));
    format::write(data, &whole).unwrap();
    let flags =
        format!("split-links {} {RELATIONS} --link-split 0.1,0.1 --out {}", whole.display(), out.display());
    let output = command("data", &flags).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    out.to_str().unwrap().to_owned()
}

/// The set of [`data`] without labels, whose nodes have names.
fn without_labels() -> Dataset {
    let mut data = data();
    for (names, (n_nodes, name)) in data.names.iter_mut().zip([(90, "user"), (600, "item")]) {
        let of_type: Vec<String> = (0..n_nodes).map(|node| format!("{name} {node}")).collect();
        *names = NodeNames::new(of_type.iter().map(String::as_str)).into();
    }
    Dataset { targets: None, ..data }
}

const TRAINING: &str =
    "--task link --hidden 16 --embedding 16 --dropout 0.2 --fanouts 4,4;with=3,2 --lr 0.02";

fn output(flags: &str) -> (bool, String) {
    let output = command("train", flags).output().unwrap();
    (output.status.success(), text(&output))
}

fn run(root: &Path, flags: &str, name: &str) -> Learned {
    let out = root.join(name);
    let (is_done, text) = output(&format!("{TRAINING} {flags} --out {}", out.display()));
    assert!(is_done, "{flags}: {text}");
    Learned::of(&out)
}

/// From servers, ranks have the batches of the whole set, so the weights are bit-identical. Ranks with partitions divide the
/// links of a step by the owners of their destinations, so they sum gradients in another order, except for a single rank.
#[test]
fn links_are_learned_on_partitions_as_on_the_whole_set() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = split(root, &data());
    let of = |n_ranks: usize| {
        let batch_size = 512 / n_ranks;
        format!(
            "--eval-negatives 10 --epochs 2 --ranks {n_ranks} --batch-size {batch_size} --threads-per-rank 1"
        )
    };
    let wholes = [1, 2, 4].map(|n_ranks| {
        let flags = format!("--data {set} {}", of(n_ranks));
        (n_ranks, run(root, &flags, &format!("whole-{n_ranks}")))
    });
    // As many ranks as partitions, a multiple, and fewer.
    for (n_parts, numbers) in [(1, [1, 4]), (2, [1, 4]), (4, [2, 4])] {
        let parts = partition(root, &set, n_parts);
        let servers = Server::all(&parts, n_parts);
        for (n_ranks, whole) in wholes.iter().filter(|(n_ranks, _)| numbers.contains(n_ranks)) {
            let flags = format!("--data {set} {}", of(*n_ranks));
            let name = format!("{n_parts}-{n_ranks}");
            let from_servers = format!("{flags} {}", Server::flags(&servers));
            let learned = run(root, &from_servers, &format!("servers-{name}"));
            assert_eq!(learned.weights_hash, whole.weights_hash, "{n_parts} partitions, {n_ranks} ranks");
            assert_eq!(learned.losses, whole.losses);
            if n_ranks % n_parts == 0 {
                let of_workers = format!("{flags} --host 127.0.0.1 --parts {}", parts.display());
                let learned = run(root, &of_workers, &format!("workers-{name}"));
                learned.check_close(whole);
                if *n_ranks == 1 {
                    assert_eq!(learned.weights_hash, whole.weights_hash);
                }
            }
        }
    }
    let servers = Server::all(&root.join("parts-2"), 2);
    let on_servers = format!("--data {set} {}", Server::flags(&servers));
    // A run continues on servers.
    let flags = "--ranks 1 --batch-size 512 --threads-per-rank 1 --eval-negatives 10";
    run(root, &format!("{on_servers} {flags} --epochs 1"), "resumed");
    let folder = root.join("resumed");
    let resumed = format!("{TRAINING} {on_servers} {flags} --epochs 2 --resume {}", folder.display());
    let (is_done, text) = output(&resumed);
    assert!(is_done, "{text}");
    assert_eq!(Learned::of(&folder).weights_hash, wholes[0].1.weights_hash);
    // Other negatives, decoders and models are those of the whole set, too.
    for (name, flags) in [
        ("rgcn", "--model rgcn --negative-sampler degree --reject-edges"),
        ("hgt", "--model hgt --decoder mlp --negative-sampler uniform-pairs --negatives 2"),
        ("none", "--exclude none --loss bpr"),
    ] {
        let flags = format!("{flags} {}", of(1));
        let whole = run(root, &format!("--data {set} {flags}"), &format!("whole-{name}"));
        let learned = run(root, &format!("{on_servers} {flags}"), &format!("servers-{name}"));
        assert_eq!(learned.weights_hash, whole.weights_hash, "{name}");
        assert_ne!(learned.weights_hash, wholes[0].1.weights_hash, "{name}");
    }
}

/// Predicts into a new folder, and returns the ids and the score of each line of `links.csv`.
fn scores(root: &Path, run: &Path, flags: &str) -> Vec<(String, String, String)> {
    let out = root.join(format!("out-{}", fs::read_dir(root).unwrap().count()));
    let flags = format!("--run {} --out {} {flags}", run.display(), out.display());
    let output = command("predict", &flags).output().unwrap();
    assert!(output.status.success(), "{flags}: {}", text(&output));
    let csv = fs::read_to_string(out.join("links.csv")).unwrap();
    // Partitions do not have the names of nodes.
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let columns = ["source", "destination", "score"]
        .map(|name| header.iter().position(|column| *column == name).unwrap());
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [src, dst, score] = columns.map(|column| fields[column].to_owned());
        (src, dst, score)
    };
    csv.lines().map(line).collect()
}

/// Links need no labels. The rows of users are found by key if they have names, and otherwise by id.
#[test]
fn scores_on_partitions_are_those_of_the_whole_set() {
    for data in [without_labels(), data()] {
        let root = tempfile::tempdir().unwrap();
        check_scores(root.path(), &data);
    }
}

fn check_scores(root: &Path, data: &Dataset) {
    let set = split(root, data);
    let parts = partition(root, &set, 2);
    let servers = Server::all(&parts, 2);
    let training = "--epochs 1 --batch-size 512 --threads-per-rank 1";
    let whole = run(root, &format!("--data {set} {training}"), "of-whole");
    let of_servers = format!("--data {set} {} {training}", Server::flags(&servers));
    let learned = run(root, &of_servers, "of-servers");
    // The weights have the keys of users with names, which come from the partitions.
    assert_eq!(learned.weights_hash, whole.weights_hash);
    let pairs = root.join("pairs.csv");
    let lines: String = (0..300).map(|pair| format!("{},{}\n", pair * 7 % 90, pair * 11 % 600)).collect();
    fs::write(&pairs, lines).unwrap();
    let [of_whole, of_servers] = ["of-whole", "of-servers"].map(|run| root.join(run));
    for request in [format!("--pairs {}", pairs.display()), "--top-k 3 --nodes all".to_owned()] {
        let expected = scores(root, &of_whole, &format!("--data {set} {request}"));
        assert!(250 < expected.len());
        assert!(expected[2..].iter().any(|(_, _, score)| *score != expected[1].2));
        let on_workers = format!("--parts {} --host 127.0.0.1 --ranks 2", parts.display());
        for (run, flags) in [
            (&of_whole, on_workers.as_str()),
            (&of_whole, &Server::addresses(&servers)),
            (&of_servers, &on_workers),
        ] {
            assert!(scores(root, run, &format!("{flags} {request}")) == expected, "{flags} {request}");
        }
    }
}

/// Returns the message of a command that fails and leaves no folder.
fn message(root: &Path, name: &str, flags: &str) -> String {
    let out = root.join("none");
    let output =
        command(name, &format!("{flags} --host 127.0.0.1 --out {}", out.display())).output().unwrap();
    let text = text(&output);
    assert!(!output.status.success() && !text.contains("panicked") && !out.exists(), "{flags}: {text}");
    text
}

#[test]
fn requests_that_partitions_of_links_cannot_serve_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = split(root, &without_labels());
    let parts = partition(root, &set, 2).display().to_string();
    run(root, &format!("--data {set} --epochs 1 --batch-size 512"), "run");
    let whole = root.join("shop").display().to_string();
    let other = root.join("other-split").display().to_string();
    let flags = format!("split-links {whole} {RELATIONS} --seed 5 --out {other}");
    assert!(command("data", &flags).status().unwrap().success());
    for (flags, expected) in [
        (format!("--data {other} --ranks 2"), "are those of other data than --data"),
        (format!("--data {whole} --ranks 2"), "split the links first"),
        (format!("--data {set} --ranks 2 --eval exact"), "--eval exact needs the whole graph"),
        (format!("--data {set} --ranks 3"), "3 ranks cannot share 2 partitions equally"),
        (format!("--data {set} --ranks 2 --relation with"), "remove --relation"),
        ("--ranks 2".to_owned(), "needs --data, the data that was partitioned"),
        (format!("--data {set} --ranks 2 --hot-by degree"), "--hot-by does not apply"),
    ] {
        let message = message(root, "train", &format!("{TRAINING} --parts {parts} {flags}"));
        assert!(message.contains(expected), "{flags}: {message}");
    }
    // Training on nodes needs targets.
    let flags = format!("--parts {parts} --ranks 2 --hidden 8 --fanouts 2,2");
    let of_nodes = message(root, "train", &flags);
    assert!(of_nodes.contains("the partitions of `shop` have no targets"), "{of_nodes}");
    let other = parts_of_ring(root).display().to_string();
    for (parts, flags, expected) in [
        (&parts, "--top-k 2", "partitions have no test links"),
        (&parts, "--pairs none.csv", "none.csv"),
        (&parts, "--top-k 2 --nodes all --exclude-edges", "--exclude-edges needs the whole graph"),
        (&parts, "--top-k 2 --nodes all --mode exact", "exact mode needs the whole graph"),
        (&other, "--top-k 2 --nodes all", "the data has no relation `rates`, expected one of: next"),
    ] {
        let run = root.join("run").display().to_string();
        let message = message(root, "predict", &format!("--run {run} --parts {parts} --ranks 2 {flags}"));
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

/// Partitions another heterogeneous set, in two parts.
fn parts_of_ring(root: &Path) -> PathBuf {
    let folder = root.join("other");
    fs::create_dir(&folder).unwrap();
    let types = kiln::graph::NodeTypes::new([("node", 20)]).unwrap();
    let ring: Vec<u32> = (0..20).map(|node| (node + 1) % 20).collect();
    let nodes: Vec<u32> = (0..20).collect();
    let of_ring = kiln::graph::RelationEdges::new("next", "node", "node", &ring, &nodes);
    let data = Dataset::builder_with_types(types)
        .relation(of_ring)
        .nodes("node")
        .features(vec![0.5; 20], 1)
        .nodes("node")
        .labels(vec![0; 20], 2)
        .split(vec![0, 1], vec![2], vec![3])
        .build()
        .unwrap();
    format::write(&data, folder.join("set")).unwrap();
    partition(&folder, folder.join("set").to_str().unwrap(), 2)
}

/// Links of other formats than kiln's state no reverse, which a flag of the training names.
#[test]
fn the_reverse_relation_may_be_named_by_the_training() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut data = Dataset::open(split(root, &data())).unwrap();
    data.links.as_mut().unwrap().reverse = None;
    let set = root.join("without-reverse").display().to_string();
    format::write(&data, &set).unwrap();
    let parts = partition(root, &set, 1).display().to_string();
    let flags = format!("--data {set} --epochs 1 --batch-size 512 --threads-per-rank 1");
    let hashes = ["", "--reverse-relation rated-by"].map(|reverse| {
        let name = reverse.len();
        let whole = run(root, &format!("{flags} {reverse}"), &format!("whole-{name}"));
        let of_parts = format!("{flags} {reverse} --host 127.0.0.1 --parts {parts}");
        let learned = run(root, &of_parts, &format!("parts-{name}"));
        assert_eq!(learned.weights_hash, whole.weights_hash, "{reverse}");
        whole.weights_hash
    });
    assert_ne!(hashes[0], hashes[1]);
    // Earlier versions wrote partitions without a check of the order, in which a step would not find its links.
    let graph = |relation: &kiln::graph::Relation| {
        let (indptr, indices) = (relation.graph.indptr().to_vec(), relation.graph.indices());
        let rows = indptr.windows(2).map(|row| &indices[row[0] as usize..row[1] as usize]);
        let backwards: Vec<_> = rows.flat_map(|row| row.iter().rev().copied()).collect();
        kiln::graph::Csc::new(indptr.clone().into(), backwards.into()).unwrap()
    };
    let relations = data.graph.iter().map(|relation| kiln::graph::Relation {
        graph: std::sync::Arc::new(graph(relation)),
        ..relation.clone()
    });
    let relations = kiln::graph::Relations::new(data.graph.types().clone(), relations.collect()).unwrap();
    let unsorted = Dataset { graph: relations.into(), ..data };
    let [set, of_nodes] = ["unsorted", "of-nodes"].map(|name| root.join(name));
    format::write(&unsorted, &set).unwrap();
    format::write(&Dataset { links: None, ..unsorted }, &of_nodes).unwrap();
    let parts = root.join("unsorted-parts");
    let partition = |set: &Path| {
        let flags = format!("partition {} --parts 1 --out {}", set.display(), parts.display());
        command("data", &flags).output().unwrap()
    };
    let output = partition(&set);
    assert!(!output.status.success() && text(&output).contains("do not ascend"), "{}", text(&output));
    assert!(partition(&of_nodes).status.success());
    // These partitions are as those of an earlier version: with the hash of the data with links.
    let [hash, other] = [&set, &of_nodes].map(|set| format::hash(set).unwrap());
    let manifest = parts.join("part0/part.json");
    fs::write(&manifest, fs::read_to_string(&manifest).unwrap().replace(&other, &hash)).unwrap();
    let flags = format!("--data {} --parts {}", set.display(), parts.display());
    let message = message(root, "train", &format!("{TRAINING} {flags}"));
    assert!(message.contains("the neighbours in its graph do not ascend"), "{message}");
}

#[test]
fn numbers_of_nodes_and_links_are_learned_on_the_same_partitions() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut data = data();
    let values = (0..600).map(|item| (item % 7) as f32).collect::<Vec<f32>>();
    data.targets.as_mut().unwrap().values =
        kiln::feature::Targets::Values(kiln::feature::TargetValues::regression(values, 1).unwrap().into());
    data.targets.as_mut().unwrap().class_names.clear();
    let set = split(root, &data);
    let parts = partition(root, &set, 1);
    let parts = format!("--parts {} --host 127.0.0.1", parts.display());
    let links = format!("--data {set} --epochs 1 --batch-size 512 --threads-per-rank 1");
    let whole = run(root, &links, "links");
    assert_eq!(run(root, &format!("{links} {parts}"), "part-links").weights_hash, whole.weights_hash);
    let nodes = |source: &str, name: &str| {
        let out = root.join(name);
        let flags = format!("{source} --hidden 8 --fanouts 2,2 --epochs 1 --threads-per-rank 1");
        let (is_done, text) = output(&format!("{flags} --out {}", out.display()));
        assert!(is_done, "{text}");
        Learned::of(&out).weights_hash
    };
    assert_eq!(nodes(&parts, "part-nodes"), nodes(&format!("--data {set}"), "nodes"));
}

#[test]
fn loaders_of_partitioned_links_check_their_arguments() {
    let root = tempfile::tempdir().unwrap();
    let set = split(root.path(), &data());
    let parts: PathBuf = partition(root.path(), &set, 1);
    let data = Dataset::open(&set).unwrap();
    let links = data.links.clone().unwrap();
    let whole = NeighborLoader::new(&data, [2, 2]);
    let error = LinkNeighborLoader::new(whole, &links).unwrap_err();
    assert!(error.to_string().contains("pass their split, a LinkSplit"), "{error}");
    let graph = PartitionedGraph::open(&parts, Default::default()).unwrap();
    let texts = launch(RankConfig::threads(1), |rank| {
        let nodes = NeighborLoader::new(&graph.join(&rank)?, [2, 2]);
        let other = DatasetLinks { relation: 2, reverse: None, ..links.clone() };
        let far = DatasetLinks { relation: 7, ..links.clone() };
        let with_objective = nodes.clone().objective(Objective::MultiLabel);
        let split = LinkSplit::new(&data.graph, links.clone()).unwrap();
        Ok([
            LinkNeighborLoader::new(nodes.clone(), &other).unwrap_err(),
            LinkNeighborLoader::new(nodes.clone(), &far).unwrap_err(),
            LinkNeighborLoader::new(with_objective, &links).unwrap_err(),
            LinkNeighborLoader::new(nodes.clone(), &split).unwrap_err(),
            LinkNeighborLoader::new(nodes, &*links.targets).unwrap_err(),
        ]
        .map(|error| error.to_string()))
    });
    let texts = texts.unwrap().remove(0);
    for (text, expected) in texts.iter().zip([
        "the source of link 0 is node",
        "the relation of the links is 7",
        "has an objective",
        "needs the whole graph",
        "the split of links has other types of nodes or relations than the data",
    ]) {
        assert!(text.contains(expected), "{text}");
    }
}

//! Tests of `kiln train` on heterogeneous datasets: results that do not depend on threads, interruptions, ranks and
//! partitions, fanouts of relations, and the errors for unsuitable data and flags.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};

use kiln::data::format;
use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;

use crate::distributed_sage::{Learned, Server, command, text};

const FLAGS: &str = "--hidden 16 --dropout 0.2";

/// Users without features who rate items, and items that are bought together.
pub(crate) fn data() -> Dataset {
    let types = NodeTypes::new([("user", 90), ("item", 600)]).unwrap();
    let (mut users, mut items, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for item in 0..600_u32 {
        for rating in 0..5 {
            users.push(3 * ((item * 7 + rating * 11) % 30) + item % 3);
            items.push(item);
            others.push((item * 5 + rating * 13 + 1) % 600);
        }
    }
    let of = |name, [src_type, dst_type]: [&'static str; 2], srcs, dsts| {
        RelationEdges::new(name, src_type, dst_type, srcs, dsts)
    };
    let rows: Vec<f32> = (0..4 * 600_u32).map(|value| (value * 31 % 17) as f32 / 17.0).collect();
    let part = |parts: std::ops::Range<u32>| {
        (0..600).filter(|item| parts.contains(&(item / 3 % 10))).collect::<Vec<u32>>()
    };
    Dataset::builder_with_types(types)
        .name("shop")
        .relation(of("rates", ["user", "item"], &users, &items))
        .relation(of("rated-by", ["item", "user"], &items, &users))
        .relation(of("with", ["item", "item"], &others, &items))
        .nodes("item")
        .features(rows, 4)
        .nodes("item")
        .labels((0..600).map(|item| item % 3).collect::<Vec<i32>>(), 3)
        .split(part(0..6).clone(), part(6..8).clone(), part(8..10).clone())
        .build()
        .unwrap()
}

fn set(root: &Path) -> String {
    let path = root.join("shop");
    format::write(&data(), &path).unwrap();
    path.to_str().unwrap().to_owned()
}

fn output(flags: &str) -> (bool, String) {
    let output = command("train", flags).output().unwrap();
    (output.status.success(), text(&output))
}

fn run(root: &Path, flags: &str, name: &str) -> Learned {
    let out = root.join(name);
    let (is_done, text) = output(&format!("{FLAGS} {flags} --out {}", out.display()));
    assert!(is_done, "{flags}: {text}");
    Learned::of(&out)
}

#[test]
fn weights_do_not_depend_on_threads_and_interruptions_and_agree_on_ranks() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = set(root);
    for model in ["sage", "rgcn", "hgt"] {
        let model_flags = format!("--data {set} --model {model}");
        let flags = format!("{model_flags} --fanouts 4,4");
        let of_one = "--batch-size 64 --workers 1 --threads-per-rank 1";
        let whole = run(root, &format!("{flags} {of_one} --epochs 3"), model);
        let of_two = "--batch-size 64 --workers 2 --threads-per-rank 2";
        let threads = run(root, &format!("{flags} {of_two} --epochs 3"), &format!("{model}-threads"));
        assert_eq!(threads.weights_hash, whole.weights_hash, "{model}");
        let resumed = format!("{model}-resumed");
        run(root, &format!("{flags} {of_one} --epochs 1"), &resumed);
        let folder = root.join(&resumed);
        let more = format!("{FLAGS} {flags} {of_one} --epochs 3 --resume {}", folder.display());
        let (is_done, text) = output(&more);
        assert!(is_done, "{text}");
        let resumed = Learned::of(&folder);
        assert_eq!(
            (resumed.weights_hash, resumed.losses),
            (whole.weights_hash.clone(), whole.losses.clone())
        );
        for n_ranks in [2, 4] {
            let ranks = format!("{flags} --batch-size {} --ranks {n_ranks} --epochs 3", 64 / n_ranks);
            run(root, &ranks, &format!("{model}-{n_ranks}")).check_close(&whole);
        }
        // The samples of other fanouts are others.
        let others = format!("{model_flags} --fanouts 4,4;with=1,0 {of_one} --epochs 3");
        let others = run(root, &others, &format!("{model}-with"));
        assert_ne!(others.weights_hash, whole.weights_hash, "{model}");
    }
}

const LINKS: &str = "--task link --relation rates --reverse-relation rated-by --fanouts 4,4 --lr 0.02 \
                     --link-split 0.1,0.1 --embedding 16";

#[test]
fn links_of_a_relation_are_learned_on_threads_and_ranks_and_after_interruptions() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = set(root);
    for model in ["sage", "rgcn", "hgt"] {
        let flags = format!("--data {set} {LINKS} --eval-negatives 10 --model {model}");
        let of_one = "--batch-size 512 --workers 1 --threads-per-rank 1";
        let whole = run(root, &format!("{flags} {of_one} --epochs 3"), model);
        let of_two = "--batch-size 512 --workers 2 --threads-per-rank 2";
        let threads = run(root, &format!("{flags} {of_two} --epochs 3"), &format!("{model}-threads"));
        assert_eq!(threads.weights_hash, whole.weights_hash, "{model}");
        let resumed = format!("{model}-resumed");
        run(root, &format!("{flags} {of_one} --epochs 1"), &resumed);
        let folder = root.join(&resumed);
        let (is_done, text) =
            output(&format!("{FLAGS} {flags} {of_one} --epochs 3 --resume {}", folder.display()));
        assert!(is_done, "{text}");
        assert_eq!(Learned::of(&folder).weights_hash, whole.weights_hash, "{model}");
        let ranks = format!("{flags} --batch-size 256 --ranks 2 --epochs 3");
        run(root, &ranks, &format!("{model}-ranks")).check_close(&whole);
        let name = format!("{model}-longer");
        let longer = format!("--data {set} {LINKS} --model {model} --batch-size 256 --epochs 8");
        run(root, &longer, &name);
        let summary = std::fs::read_to_string(root.join(name).join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        // Among 100 negatives, it is 0.052 by chance, and about 0.12 if all items that a user may rate are equal.
        let mrr = summary["test_metrics"]["mrr"].as_f64().unwrap_or_else(|| panic!("{summary}"));
        assert!(0.08 < mrr, "{model}: {mrr}");
    }
}

#[test]
fn the_reverse_relation_of_links_is_found_and_popularity_is_a_baseline() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = set(root);
    let of_links =
        format!("--data {set} --task link --relation rates --fanouts 4,4 --batch-size 512 --epochs 1");
    let learn = |name: &str, reverse: &str| {
        let folder = root.join(name);
        let (is_done, text) = output(&format!("{FLAGS} {of_links} {reverse} --out {}", folder.display()));
        assert!(is_done, "{text}");
        (text, Learned::of(&folder).weights_hash)
    };
    let (text, found) = learn("found", "");
    assert!(text.contains("note: `rated-by` has the reverse of each edge of `rates`"), "{text}");
    assert!(text.contains("note: ranking the test links by the popularity of their destinations"), "{text}");
    assert_eq!(learn("named", "--reverse-relation rated-by").1, found);
    let (text, of_none) = learn("none", "--reverse-relation none");
    assert!(text.contains("have a reverse edge in the relation `rated-by`"), "{text}");
    assert_ne!(of_none, found);
}

#[test]
fn negatives_and_decoders_of_links_between_types_are_flags() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = set(root);
    let mut hashes = std::collections::BTreeSet::new();
    for (name, flags) in [
        ("uniform", ""),
        ("pairs", "--negative-sampler uniform-pairs --negatives 2"),
        ("degree", "--negative-sampler degree --reject-edges --eval-negatives 20"),
        ("in-batch", "--negative-sampler in-batch --decoder distmult"),
        ("bpr", "--loss bpr --decoder mlp --decoder-layers 2"),
        ("none", "--exclude none"),
    ] {
        let flags = format!("--data {set} {LINKS} --batch-size 512 --epochs 1 {flags}");
        assert!(hashes.insert(run(root, &flags, name).weights_hash), "{name}");
    }
}

/// Partitions the set by `kiln data partition`, and returns the folder of the partitions.
pub(crate) fn partition(root: &Path, set: &str, n_parts: usize) -> PathBuf {
    let out = root.join(format!("parts-{n_parts}"));
    let flags = format!("partition {set} --parts {n_parts} --method fennel --out {}", out.display());
    let output = command("data", &flags).output().unwrap();
    let text = text(&output);
    assert!(output.status.success() && text.contains("method: fennel"), "{text}");
    out
}

/// From servers, ranks have the batches of the whole set, so the weights are bit-identical. Ranks with partitions divide the
/// batches of a step by owner, so they sum gradients in another order, except for a single rank.
#[test]
fn training_on_partitions_matches_the_whole_set() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let set = set(root);
    let ranks = |n_ranks: usize| {
        let batch_size = 64 / n_ranks;
        format!("--ranks {n_ranks} --batch-size {batch_size} --threads-per-rank 1")
    };
    let wholes = [1, 2, 4].map(|n_ranks| {
        let flags = format!("--data {set} --fanouts 4,4;with=3,2 --epochs 2 {}", ranks(n_ranks));
        (n_ranks, run(root, &flags, &format!("whole-{n_ranks}")))
    });
    let flags = "--fanouts 4,4;with=3,2 --epochs 2";
    // As many ranks as partitions, a multiple, fewer, and more that are not a multiple.
    for (n_parts, numbers) in [(1, &[1, 4][..]), (2, &[1, 4]), (3, &[2, 4]), (4, &[4])] {
        let parts = partition(root, &set, n_parts);
        let servers = Server::all(&parts, n_parts);
        for (n_ranks, whole) in wholes.iter().filter(|(n_ranks, _)| numbers.contains(n_ranks)) {
            let name = format!("{n_parts}-{n_ranks}");
            let from_servers = format!("{flags} {} {}", ranks(*n_ranks), Server::flags(&servers));
            let learned = run(root, &from_servers, &format!("servers-{name}"));
            assert_eq!(learned.weights_hash, whole.weights_hash, "{n_parts} partitions, {n_ranks} ranks");
            assert_eq!(learned.losses, whole.losses);
            if n_ranks % n_parts == 0 {
                let of_workers = format!("{flags} {} --parts {}", ranks(*n_ranks), parts.display());
                let learned = run(root, &of_workers, &format!("workers-{name}"));
                learned.check_close(whole);
                if *n_ranks == 1 {
                    assert_eq!(learned.weights_hash, whole.weights_hash);
                }
            }
        }
    }
    // The dynamic cache changes no result.
    let parts = root.join("parts-2");
    let servers = Server::all(&parts, 2);
    let cached = format!("{flags} {} {} --cache-size 8KiB", ranks(1), Server::flags(&servers));
    assert_eq!(run(root, &cached, "cached").weights_hash, wholes[0].1.weights_hash);
    // A run continues on servers.
    let resumed = format!("--fanouts 4,4;with=3,2 {} {}", ranks(1), Server::flags(&servers));
    run(root, &format!("{resumed} --epochs 1"), "resumed");
    let folder = root.join("resumed");
    let (is_done, text) = output(&format!("{FLAGS} {resumed} --epochs 2 --resume {}", folder.display()));
    assert!(is_done, "{text}");
    assert_eq!(Learned::of(&folder).weights_hash, wholes[0].1.weights_hash);
    for model in ["rgcn", "hgt"] {
        let flags = format!("{flags} {} --model {model}", ranks(1));
        let whole = run(root, &format!("{flags} --data {set}"), &format!("whole-{model}"));
        let flags = format!("{flags} {}", Server::flags(&servers));
        assert_eq!(run(root, &flags, &format!("servers-{model}")).weights_hash, whole.weights_hash);
    }
    for (flags, expected) in [
        ("--ranks 3", "3 ranks cannot share 2 partitions equally"),
        ("--ranks 2 --fanouts 1,1;sells=1,1", "the data has no relation `sells`"),
        ("--ranks 2 --model gat", "use sage, rgcn or hgt"),
        ("--ranks 2 --eval exact", "--eval exact needs the whole graph: use --data instead of --parts"),
    ] {
        let (is_done, text) = output(&format!("--parts {} {flags}", parts.display()));
        assert!(!is_done && text.contains(expected), "{flags}: {text}");
    }
}

#[test]
fn models_of_the_other_kind_of_graph_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let set = set(root.path());
    let typed = partition(root.path(), &set, 1);
    let whole = root.path().join("ring");
    kiln::data::format::write(&kiln::data::synthetic::ring(60).unwrap(), &whole).unwrap();
    let ring = root.path().join("ring-parts");
    let flags = format!("partition {} --parts 1 --out {}", whole.display(), ring.display());
    assert!(command("data", &flags).status().unwrap().success());
    let open = |folder: &Path| PartitionedGraph::open(folder, Default::default()).unwrap();
    let (typed, ring) = (open(&typed), open(&ring));
    assert!(typed.info().is_heterogeneous && !ring.info().is_heterogeneous);
    let texts = launch(RankConfig::threads(1), |rank| {
        let of_types = NeighborLoader::new(&typed.join(&rank)?, [2]);
        let of_ring = NeighborLoader::new(&ring.join(&rank)?, [2]);
        let plain = RgcnConfig::new(4, 3, 3).layers(1);
        let config = HeteroModelConfig::new(data().dims(), plain.clone());
        let fit = || FitConfig::epochs(1).out(root.path().join("run")).quiet();
        let mut plain = Trainer::new(plain, AdamConfig::new(0.01)).rank(&rank);
        let one = plain.fit(&of_types, fit()).unwrap_err();
        let mut trainer = Trainer::new(config, AdamConfig::new(0.01)).rank(&rank);
        let other = trainer.fit(&of_ring, fit()).unwrap_err();
        // Rank 0 has the nodes of its own partition only, so it cannot evaluate for all ranks.
        let of_first = EvalMode::FirstRank { n_batches: 1 };
        let evaluated = trainer.fit(&of_types.evaluation(of_first), fit()).unwrap_err();
        Ok([one.to_string(), other.to_string(), evaluated.to_string()])
    });
    let expected = [
        "the loader's graph is heterogeneous, but the model reads one type of nodes: wrap its config, as in HeteroModelConfig::new(data.dims(), config), or load data.to_homogeneous()? if there is one type",
        "the model is for heterogeneous graphs, but the loader's graph has one type of nodes: use a model without HeteroModelConfig and relations, or a heterogeneous dataset",
        "evaluation on rank 0 needs the whole graph: open the dataset instead of its partitions, or do not use evaluation on rank 0",
    ];
    assert_eq!(texts.unwrap()[0], expected);
}

#[test]
fn unsuitable_flags_of_partitions_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let set = set(root.path());
    let out = root.path().join("parts");
    for (flags, expected) in [
        ("--standardize", "--standardize does not apply to a heterogeneous dataset: remove it"),
        ("--add-self-loops", "--add-self-loops does not apply to a heterogeneous dataset: remove it"),
        ("--cache-ratio 2", "the cache's share of the nodes is 2, expected 0 to 1"),
        ("--parts 0", "expected a whole number from 1 to 65535"),
    ] {
        let flags = format!("partition {set} --out {} {flags}", out.display());
        let output = command("data", &flags).output().unwrap();
        assert!(!output.status.success() && text(&output).contains(expected), "{}", text(&output));
        assert!(!out.exists(), "{flags}");
    }
}

#[test]
fn unsuitable_flags_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let set = set(root.path());
    for (flags, expected) in [
        ("--model gat", "--model gat reads one type of nodes, and the data has 2: use sage, rgcn or hgt"),
        ("--fanouts rates=1,1;with=1,1", "--fanouts has no list for the relation `rated-by`"),
        (
            "--fanouts 1,1;sells=1,1",
            "the data has no relation `sells`, expected one of: rates, rated-by, with",
        ),
        ("--fanouts 1,1;with=1", "the relation `with` has 1 fanouts, expected 2, one per layer"),
        ("--bases 2", "--bases requires --model rgcn: remove it"),
        ("--model hgt --heads 3", "heads"),
        ("--standardize true", "--standardize does not apply to a heterogeneous dataset: remove it"),
        ("--symmetrize", "--symmetrize does not apply to a heterogeneous dataset: remove it"),
        (
            "--feature-cache 1000",
            "--feature-cache and --hot-by need a graph with one type of nodes: remove them",
        ),
        ("--optimizer sgd", "use Adam or AdamW"),
        ("--relation rates", "--relation does not apply to training on nodes of a whole graph: remove it"),
        (
            "--task link",
            "need --relation, the name of the relation whose edges they are: add one of rates, rated-by, with",
        ),
        (
            "--task link --relation sells",
            "Error: the data has no relation `sells`, expected one of: rates, rated-by, with\n",
        ),
        (
            "--task link --relation rates --reverse-relation with",
            "the relation `with` cannot be the reverse of `rates`: expected one from `item` to `user`",
        ),
        (
            "--task link --relation rates --link-type 1",
            "--link-type does not apply to a heterogeneous dataset",
        ),
        ("--task link --reverse-relation with", "need --relation, the name"),
    ] {
        let out = root.path().join("run");
        let (is_done, text) = output(&format!("--data {set} {flags} --out {}", out.display()));
        assert!(!is_done && text.contains(expected), "{flags}: {text}");
        assert!(!out.exists(), "{flags}");
    }
    let (is_done, text) = output("--data sbm --fanouts 1,1;with=1,1");
    assert!(!is_done && text.contains("the data has no named relations"), "{text}");
    let (is_done, text) = output("--data sbm --task link --relation rates");
    assert!(
        !is_done && text.contains("--relation and --reverse-relation need a heterogeneous dataset"),
        "{text}"
    );
}

//! Tests of `kiln train --graph-mode` on heterogeneous graphs.

use kiln::data::{Dataset, LinkSplit, LinkSplitConfig};
use kiln::graph::{NodeTypes, RelationEdges};
use kiln::partition::{Method, PartitionBooks, PartitionMeta, write_parts};

use super::{device, run, text, weights_hash};

/// The relations of a heterogeneous graph are sampled on the device one by one, and joined on the host.
#[test]
fn relations_sampled_on_the_device_give_identical_weights() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("shop");
    kiln::data::format::write(&shop(), &set).unwrap();
    for task in
        ["--task node", "--task link --relation buys --embedding 8 --batch-size 128 --eval-negatives 5"]
    {
        let flags = format!("--data {} --hidden 8 --layers 2 --fanouts 3,3 --epochs 1 {task}", set.display());
        let trained = |mode: &str| {
            let out = folder.path().join(format!("{task} {mode}").replace(' ', "_"));
            let flags = format!("{flags} --device {device} --graph-mode {mode} --out {}", out.display());
            let output = run(&flags);
            assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
            weights_hash(&out)
        };
        let expected = trained("cpu");
        for mode in ["device", "zero-copy"] {
            assert_eq!(trained(mode), expected, "{task} {mode}");
        }
    }
}

/// Each rank's device samples the relations of its local partition; the remaining hops are requested from the other rank.
#[test]
fn relations_of_partitions_sampled_on_the_device_give_identical_weights() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let folder = tempfile::tempdir().unwrap();
    let [set, parts] = ["shop", "parts"].map(|name| folder.path().join(name));
    let data = with_links();
    kiln::data::format::write(&data, &set).unwrap();
    let owners: Vec<u16> = (0..160).map(|node| node % 2).collect();
    let book = PartitionBooks::from_parts(data.graph.types().clone(), &owners, 2).unwrap();
    let hash = kiln::data::format::hash(&set).unwrap();
    let meta = PartitionMeta { hash, method: Method::Random, n_cut_edges: 0 };
    write_parts(&data, &book, &meta, None, &parts).unwrap();
    let of_links =
        format!("--task link --data {} --embedding 8 --batch-size 64 --eval-negatives 5", set.display());
    for task in ["--task node", &of_links] {
        let flags =
            format!("--parts {} --ranks 2 --hidden 8 --fanouts 3,3 --epochs 1 {task}", parts.display());
        let trained = |mode: &str| {
            let out = folder.path().join(format!("{} {mode}", task.len()).replace(' ', "_"));
            let flags = format!("{flags} --device {device} --graph-mode {mode} --out {}", out.display());
            let output = run(&flags);
            assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
            (weights_hash(&out), text(&output.stdout))
        };
        let (expected, _) = trained("cpu");
        for (mode, told) in [("device", "are on the device"), ("zero-copy", "stay on the host")] {
            let (got, said) = trained(mode);
            assert_eq!(got, expected, "{task} {mode}");
            assert!(said.contains(told), "{mode}: {said}");
        }
    }
    // The index of the device needs the nodes of all rows in order, and the CPU only those of its requests.
    let rows = parts.join("part0/old_ids.1.npy");
    let mut bytes = std::fs::read(&rows).unwrap();
    let [last, other] = [bytes.len() - 4, bytes.len() - 8];
    (0..4).for_each(|byte| bytes.swap(last + byte, other + byte));
    std::fs::write(&rows, bytes).unwrap();
    for (mode, is_found) in [("cpu", false), ("device", true), ("zero-copy", true)] {
        let out = folder.path().join(format!("damaged {mode}").replace(' ', "_"));
        let flags = format!("--parts {} --ranks 2 --hidden 8 --fanouts 3,3 --epochs 1", parts.display());
        let output = run(&format!("{flags} --device {device} --graph-mode {mode} --out {}", out.display()));
        let error = text(&output.stderr);
        assert_eq!(error.contains("partition book: the node of row"), is_found, "{mode}: {error}");
        assert_ne!(output.status.success(), is_found, "{mode}: {error}");
    }
}

/// The set of [`shop`], whose purchases are split.
fn with_links() -> Dataset {
    let data = shop();
    let split =
        LinkSplit::random_relation(&data.graph, "buys", Some("bought-by"), &LinkSplitConfig::default(), 0)
            .unwrap();
    Dataset { graph: split.message().clone(), links: Some(split.dataset_links().clone()), ..data }
}

/// Users without features who buy items of two classes.
pub(super) fn shop() -> Dataset {
    let users: Vec<u32> = (0..600).map(|edge| edge * 7 % 40).collect();
    let items: Vec<u32> = (0..600).map(|edge| edge % 120).collect();
    let of = |name, src_type, dst_type, srcs, dsts| RelationEdges::new(name, src_type, dst_type, srcs, dsts);
    let part = |part: u32| (0..120).filter(|item| item % 4 == part).collect::<Vec<u32>>();
    Dataset::builder_with_types(NodeTypes::new([("user", 40), ("item", 120)]).unwrap())
        .relation(of("buys", "user", "item", &users, &items))
        .relation(of("bought-by", "item", "user", &items, &users))
        .nodes("item")
        .features((0..360).map(|value| (value % 13) as f32 / 13.0).collect::<Vec<f32>>(), 3)
        .nodes("item")
        .labels((0..120).map(|item| item % 2).collect::<Vec<i32>>(), 2)
        .split([part(0), part(1)].concat().clone(), part(2).clone(), part(3).clone())
        .build()
        .unwrap()
}

//! Tests of `kiln train` on heterogeneous datasets: results that do not depend on threads, interruptions and ranks, fanouts
//! of relations, and the errors for unsuitable data and flags.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::data::typed;
use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;

use crate::distributed_sage::{Learned, command, text};

const FLAGS: &str = "--hidden 16 --dropout 0.2";

/// Users without features who rate items, and items that are bought together.
fn data() -> TypedDataset {
    let types = NodeTypes::new([("user", 90), ("item", 600)]).unwrap();
    let (mut users, mut items, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for item in 0..600_u32 {
        for rating in 0..5 {
            users.push(3 * ((item * 7 + rating * 11) % 30) + item % 3);
            items.push(item);
            others.push((item * 5 + rating * 13 + 1) % 600);
        }
    }
    let of = |name, [src_type, dst_type]: [&'static str; 2], srcs, dsts| RelationEdges {
        name,
        src_type,
        dst_type,
        srcs,
        dsts,
        weights: None,
    };
    let rows: Vec<f32> = (0..4 * 600_u32).map(|value| (value * 31 % 17) as f32 / 17.0).collect();
    let part = |parts: std::ops::Range<u32>| {
        (0..600).filter(|item| parts.contains(&(item / 3 % 10))).collect::<Vec<u32>>()
    };
    TypedDataset::builder(types)
        .name("shop")
        .relation(of("rates", ["user", "item"], &users, &items))
        .relation(of("rated by", ["item", "user"], &items, &users))
        .relation(of("with", ["item", "item"], &others, &items))
        .features("item", rows, 4)
        .labels("item", (0..600).map(|item| item % 3).collect::<Vec<i32>>(), 3)
        .split(&part(0..6), &part(6..8), &part(8..10))
        .build()
        .unwrap()
}

fn set(root: &Path) -> String {
    let path = root.join("shop");
    typed::write(&data(), &path).unwrap();
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

#[test]
fn unsuitable_flags_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let set = set(root.path());
    for (flags, expected) in [
        ("--model gat", "--model has no layers for a heterogeneous dataset: use sage, rgcn or hgt"),
        ("--fanouts rates=1,1;with=1,1", "--fanouts has no list for the relation `rated by`"),
        (
            "--fanouts 1,1;sells=1,1",
            "the data has no relation `sells`, expected one of: rates, rated by, with",
        ),
        ("--fanouts 1,1;with=1", "the relation `with` has 1 fanouts, expected 2, one per layer"),
        ("--bases 2", "--bases requires --model rgcn: remove it"),
        ("--model hgt --heads 3", "heads"),
        ("--standardize true", "--standardize does not apply to a heterogeneous dataset: remove it"),
        ("--symmetrize", "--symmetrize does not apply to a heterogeneous dataset: remove it"),
        ("--graph-mode device", "need a graph with one type of nodes: use --graph-mode cpu"),
        (
            "--feature-cache 1000",
            "--feature-cache and --hot-by need a graph with one type of nodes: remove them",
        ),
        ("--optimizer sgd", "use Adam or AdamW"),
        ("--eval exact", "exact evaluation needs a graph with one type of nodes"),
    ] {
        let out = root.path().join("run");
        let (is_done, text) = output(&format!("--data {set} {flags} --out {}", out.display()));
        assert!(!is_done && text.contains(expected), "{flags}: {text}");
        assert!(!out.exists(), "{flags}");
    }
    let (is_done, text) = output("--data sbm --fanouts 1,1;with=1,1");
    assert!(!is_done && text.contains("the data has no named relations"), "{text}");
}

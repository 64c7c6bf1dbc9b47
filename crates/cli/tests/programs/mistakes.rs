//! The mistakes of a first-time user: each message names the mistake and the remedy, once, and the exit status tells an error in
//! the command line (2) from one in the data (1).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln::store::npy;

use crate::distributed_sage::{Learned, command, text};

/// A mistake: the arguments, the exit status, and texts of the message, each of which stands in it once.
type Mistake = (&'static str, i32, &'static [&'static str]);

/// The mistakes, with `TRAIN` for a short training on the folder `arrays`. `shop` is an imported set, `arrays` a folder of `.npy`
/// arrays, `runs/a` a finished run on `shop`, and `runs/b` one on `arrays`.
const MISTAKES: [Mistake; 46] = [
    ("train --data arays", 2, &["'arays' for '--data <DATA>'", "(did you mean `arrays`?)"]),
    ("train --data debian-pakages", 2, &["(did you mean `debian-packages`?)"]),
    ("train --data edges --out new", 1, &["edges has no features.npy", "save an array [n_nodes, n_columns]"]),
    ("TRAIN --model graphsage", 2, &["'graphsage'", "a similar value exists: 'sage'"]),
    ("TRAIN --model GATv2Conv", 2, &["'GATv2Conv'", "a similar value exists: 'gatv2'"]),
    ("TRAIN --model gatv3", 2, &["'gatv3'", "a similar value exists: 'gatv2'"]),
    (
        "TRAIN --layers 2 --fanouts 10,10,10",
        2,
        &["3 values for --layers 2", "give one per layer, or one for all"],
    ),
    (
        "TRAIN --fanouts 10 10",
        2,
        &["expected a file of flags with the extension toml, yaml or json", "with commas: '--fanouts 10,10'"],
    ),
    (
        "TRAIN --fanouts ten,ten --layers 2",
        2,
        &["'ten,ten'", "separated by commas, such as 10,10", "-1 is all"],
    ),
    ("TRAIN --batch-size 0", 2, &["'0' for '--batch-size", "a whole number from 1"]),
    ("TRAIN --lr 100", 2, &["'100' for '--lr", "at most 10, such as 0.001"]),
    ("TRAIN --lr 0", 2, &["'0' for '--lr", "a number above 0"]),
    ("train --data arrays --epochs 0", 2, &["'0' for '--epochs", "a whole number from 1"]),
    ("TRAIN --hidden 0", 2, &["'0' for '--hidden", "a whole number from 1"]),
    ("TRAIN --device cuda:x", 2, &["unknown device `cuda:x`", "(did you mean `cuda`?)"]),
    ("TRAIN --device gpu", 2, &["unknown device `gpu`", "(did you mean `cuda`?)"]),
    ("TRAIN --workers 10000", 2, &["'10000' for '--workers", "a whole number from 0 to 1024"]),
    ("TRAIN --memory 10GB", 2, &["'10GB' for '--memory", "(did you mean `10GiB`?)"]),
    ("TRAIN --metric acuracy", 2, &["'acuracy'", "a similar value exists: 'accuracy'"]),
    ("TRAIN --learning-rate 1", 2, &["unexpected argument '--learning-rate'"]),
    ("TRAIN --epoch 1", 2, &["unexpected argument '--epoch'", "a similar argument exists: '--epochs'"]),
    ("train --data arrays --out runs/a", 2, &["runs/a is not empty", "pass a new folder"]),
    ("train --data shop --resume runs/z", 2, &["runs/z does not exist", "runs beside it: runs/a, runs/b"]),
    (
        "train --data shop --epochs 1 --layers 2 --fanouts 3 --resume runs/a --hidden 32",
        2,
        &["--hidden was 8 and is 32 now", "restore the earlier value"],
    ),
    ("predict --run runs --data shop --out new", 2, &["expected a run folder", "runs in it: runs/a, runs/b"]),
    ("predict --run runs/a --data arrays --out new", 1, &["predict on a heterogeneous dataset"]),
    ("predict --run runs/b --data wide --out new", 1, &["the model reads 4", "6"]),
    (
        "predict --run runs/a --data shop --nodes 5 --out new",
        2,
        &["--nodes 5: there is no such file", "a file of ids"],
    ),
    (
        "predict --run runs/a --data shop --keys keys.txt --out new",
        1,
        &["keys.txt, line 2", "no node is named \"user-100\" (did you mean `user-10`?)", "correct the line"],
    ),
    ("predict --run runs/a --data shop --format excel --out new", 2, &["'excel'", "csv, npy, parquet"]),
    ("inspect shop", 2, &["unrecognized subcommand 'inspect'", "did you mean 'kiln data inspect'?"]),
    ("tarin --data shop", 2, &["unrecognized subcommand 'tarin'", "a similar subcommand exists: 'train'"]),
    ("data import users.parquet --out new", 2, &["this is a table", "`files: [users.parquet]`"]),
    ("data import files.yaml --out new", 1, &["files.yaml: line 4", "expected a list, such as `[VALUE]`"]),
    (
        "data import time.yaml --out new",
        1,
        &["time.yaml: line 6", "`{time: {parts: [hour, day_of_week, month]}}`"],
    ),
    ("data import column.yaml --out new", 1, &["no column is named \"agee\"", "(did you mean `age`?)"]),
    ("data import transform.yaml --out new", 1, &["`standardise`", "(did you mean `standardize`?)"]),
    ("data import key.yaml --out new", 1, &["unknown key `colums`", "(did you mean `columns`?)"]),
    ("data import type.yaml --out new", 1, &["relations[0].dst.type is \"usr\"", "(did you mean `user`?)"]),
    ("data import split.yaml --out new", 1, &["split.random is 1.1", "shares with a sum of at most 1"]),
    (
        "data import twice.yaml --out new",
        1,
        &["twice.csv, row 61", "correct them, or add `drop: [duplicate]`"],
    ),
    ("data import utf16.yaml --out new", 1, &["text in UTF-16", "`iconv -f UTF-16 -t UTF-8`"]),
    (
        "train --data mask --out new",
        1,
        &["train.npy: the number of elements of the mask is 65", "expected 60"],
    ),
    (
        "train --data nan --out new",
        1,
        &["labels.npy: the elements are <f8", "save the array with that dtype"],
    ),
    (
        "train --data far --out new",
        1,
        &["edges.npy: the source of edge 3 is 60", "expected a node id below 60"],
    ),
    ("data partition shop --parts 0 --out new", 2, &["'0' for '--parts", "a whole number from 1"]),
];

/// A short training on the folder `arrays`.
const TRAIN: &str = "train --data arrays --epochs 1 --out new";

/// The number of nodes of the folders of arrays, and of users.
const N: usize = 60;

const SPEC: &str = "name: shop
nodes:
  - name: user
    files: [users.csv]
    key: user_id
    columns: [{column: age, transform: standardize}]
    target: {class: {column: segment}}
    split: {random: {seed: 1, train: 0.7, val: 0.15, test: 0.15}}
relations:
  - name: follows
    files: [follows.csv]
    src: {type: user, column: src}
    dst: {type: user, column: dst}
";

/// Writes a folder of arrays, with the bytes of one of them instead of the right ones.
fn write_arrays(folder: &Path, n_columns: usize, other: Option<(&'static str, Vec<u8>)>) {
    fs::create_dir(folder).unwrap();
    let ids = |range: std::ops::Range<usize>| range.map(|id| id as u32).collect::<Vec<u32>>();
    let features: Vec<f32> = (0..N * n_columns).map(|i| (i % 7) as f32).collect();
    let labels: Vec<i32> = (0..N).map(|node| (node % 3) as i32).collect();
    let files = [
        ("edges.npy", ring(|_, node| node)),
        ("features.npy", npy::write(&features, &[N, n_columns])),
        ("labels.npy", npy::write(&labels, &[N])),
        ("train.npy", npy::write(&ids(0..40), &[40])),
        ("val.npy", npy::write(&ids(40..50), &[10])),
        ("test.npy", npy::write(&ids(50..60), &[10])),
    ];
    for (name, bytes) in files.into_iter().chain(other) {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Returns the edges of a ring, with another source of some edges.
fn ring(source: impl Fn(usize, u32) -> u32) -> Vec<u8> {
    let sources = (0..N).map(|edge| source(edge, edge as u32));
    let edges: Vec<u32> = sources.chain((0..N).map(|node| ((node + 1) % N) as u32)).collect();
    npy::write(&edges, &[2, N])
}

/// Writes the files that the mistakes name, and the runs.
fn prepare(root: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).unwrap();
    write_arrays(&root.join("arrays"), 4, None);
    write_arrays(&root.join("wide"), 6, None);
    write_arrays(&root.join("mask"), 4, Some(("train.npy", npy::write_mask(&[true; N + 5]))));
    write_arrays(&root.join("nan"), 4, Some(("labels.npy", npy::write(&[f64::NAN; N], &[N]))));
    let is_far = |edge, node| if edge == 3 { N as u32 } else { node };
    write_arrays(&root.join("far"), 4, Some(("edges.npy", ring(is_far))));
    fs::create_dir(root.join("edges")).unwrap();
    write("edges/edges.npy", &ring(|_, node| node));
    let mut users = "user_id,age,segment\n".to_owned();
    let mut follows = "src,dst\n".to_owned();
    for user in 0..N {
        users.push_str(&format!("user-{user},{},{}\n", 20 + user, ["a", "b", "c"][user % 3]));
        follows.push_str(&format!("user-{user},user-{}\n", (user * 7 + 1) % N));
    }
    write("users.csv", users.as_bytes());
    write("follows.csv", follows.as_bytes());
    write("twice.csv", format!("{users}user-0,1,a\n").as_bytes());
    write("semicolons.csv", users.replace(',', ";").as_bytes());
    let utf16: Vec<u8> =
        "\u{feff}".encode_utf16().chain(users.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    write("utf16.csv", &utf16);
    write("users.parquet", b"PAR1");
    write("keys.txt", "\u{feff}user-1\nuser-100\n".as_bytes());
    for (name, correct, wrong) in [
        ("spec", "", ""),
        ("files", "[users.csv]", "users.csv"),
        ("time", "transform: standardize", "transform: time"),
        ("column", "column: age", "column: agee"),
        ("transform", "standardize", "standardise"),
        ("key", "columns:", "colums:"),
        ("type", "dst: {type: user", "dst: {type: usr"),
        ("split", "train: 0.7, val: 0.15, test: 0.15", "train: 0.8, val: 0.1, test: 0.2"),
        ("twice", "users.csv", "twice.csv"),
        ("semicolons", "users.csv", "semicolons.csv"),
        ("utf16", "users.csv", "utf16.csv"),
    ] {
        write(&format!("{name}.yaml"), SPEC.replace(correct, wrong).as_bytes());
    }
    for (subcommand, flags) in [
        ("data", "import spec.yaml --out shop"),
        // The separator of a table is detected.
        ("data", "import semicolons.yaml --out semicolons"),
        ("train", "--data shop --epochs 1 --layers 2 --fanouts 3 --hidden 8 --out runs/a"),
        ("train", "--data arrays --epochs 1 --layers 2 --fanouts 3 --hidden 8 --out runs/b"),
    ] {
        let output = command(subcommand, flags).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{flags}: {}", text(&output));
    }
}

#[test]
fn each_mistake_of_a_first_time_user_has_one_message_with_its_remedy() {
    let root = tempfile::tempdir().unwrap();
    prepare(root.path());
    let of_build: [Mistake; 1] = [(
        "TRAIN --device cuda",
        2,
        &["device `cuda` needs the feature `cuda`", "build with --features cuda"],
    )];
    let of_build = of_build.into_iter().filter(|_| cfg!(not(feature = "cuda")));
    for (line, status, expected) in MISTAKES.into_iter().chain(of_build) {
        let line = line.replace("TRAIN", TRAIN);
        let (subcommand, flags) = line.split_once(' ').unwrap();
        let output = command(subcommand, flags).current_dir(root.path()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "kiln {line}: {message}");
        for part in expected {
            assert_eq!(message.matches(part).count(), 1, "kiln {line}: expected {part:?} once: {message}");
        }
        assert_eq!(message.to_lowercase().matches("error: ").count(), 1, "kiln {line}: {message}");
        assert!(!root.path().join("new").exists(), "kiln {line}");
    }
}

/// `-1` is all neighbours, as in DGL and PyG, and one value stands for all layers.
#[test]
fn fanouts_are_those_of_other_libraries() {
    let root = tempfile::tempdir().unwrap();
    write_arrays(&root.path().join("arrays"), 4, None);
    let weights = |fanouts: &str, out: &str| {
        let flags = format!("--data arrays --epochs 1 --layers 2 --hidden 8 {fanouts} --out {out}");
        let output = command("train", &flags).current_dir(root.path()).output().unwrap();
        assert!(output.status.success(), "{flags}: {}", text(&output));
        Learned::of(&root.path().join(out)).weights_hash
    };
    let all = weights("--fanouts all,all", "all");
    assert_eq!(weights("--fanouts -1,-1", "list"), all);
    assert_eq!(weights("--fanouts=-1", "one"), all);
    let flags = "--run all --data arrays --mode sampled --fanouts -1,-1 --out predicted";
    let output = command("predict", flags).current_dir(root.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let flags = "partition arrays --parts 2 --method random --fanouts -1,-1 --out parts";
    let output = command("data", flags).current_dir(root.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

//! Tests of `kiln data`, `kiln completions` and `kiln --version` as a user runs them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use kiln::data::{Dataset, format};
use kiln::graph::{NodeId, NodeTypes, RelationEdges};
use kiln::partition::{Part, part_dir};

/// Runs the command. Returns its output, and true if it succeeded.
fn run(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(args).output().unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), printed.concat())
}

fn succeed(args: &[&str]) -> String {
    let (is_success, printed) = run(args);
    assert!(is_success, "{args:?}: {printed}");
    printed
}

fn refused(args: &[&str], expected: &str) {
    let (is_success, printed) = run(args);
    assert!(!is_success && printed.contains(expected), "{args:?}: {printed}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_edge_list_is_converted_and_verified() {
    let root = tempfile::tempdir().unwrap();
    let (input, out) = (root.path().join("edges.csv"), root.path().join("out"));
    fs::write(&input, "src,dst\n0,1\n2,1\n2,1\n").unwrap();
    let (input, folder) = (text(&input), text(&out));
    let printed =
        succeed(&["data", "convert", input, "--out", folder, "--duplicates", "remove", "--symmetrize"]);
    assert!(printed.contains("3 nodes, 4 edges from a list of 3, sorted in 1 bucket, read "), "{printed}");
    let graph = format::open_graph(&out).unwrap();
    assert_eq!(graph.in_neighbors(NodeId(1)), [NodeId(0), NodeId(2)]);
    assert_eq!(graph.n_edges(), 4);
    let printed = succeed(&["data", "verify", folder]);
    assert!(printed.contains("3 nodes, 4 edges: all values are valid; the hashes of "), "{printed}");

    refused(&["data", "convert", input, "--out", folder], "exists and is not an empty folder");
    let other = root.path().join("no");
    let args = ["data", "convert", input, "--out", text(&other), "--memory", "1KiB"];
    refused(&args, "1024 are allowed: raise the limit");
    let mut bytes = fs::read(out.join("indices.npy")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(out.join("indices.npy"), bytes).unwrap();
    refused(&["data", "verify", folder], "indices.npy: its SHA-256 is");
}

#[test]
fn self_loops_are_added() {
    let root = tempfile::tempdir().unwrap();
    let (input, out) = (root.path().join("edges.csv"), root.path().join("out"));
    fs::write(&input, "0,1\n").unwrap();
    let args = ["data", "convert", text(&input), "--out", text(&out), "--nodes", "3", "--self-loops", "add"];
    succeed(&args);
    let graph = format::open_graph(&out).unwrap();
    assert_eq!((graph.n_nodes(), graph.in_neighbors(NodeId(1))), (3, &[NodeId(0), NodeId(1)][..]));
}

#[test]
fn a_dataset_is_partitioned() {
    let root = tempfile::tempdir().unwrap();
    let (set, out) = (root.path().join("ring"), root.path().join("parts"));
    format::write(&kiln::data::synthetic::ring(60).unwrap(), &set).unwrap();
    let args = ["data", "partition", text(&set), "--out", text(&out), "--parts", "3", "--method", "fennel"];
    let printed = succeed(&[&args[..], &["--fanouts", "15,10,all", "--seed", "7"]].concat());
    assert!(printed.contains("method: fennel") && printed.contains("part 2: "), "{printed}");
    let part = Part::open(part_dir(&out, 2)).unwrap();
    assert_eq!(part.hash, format::hash(&set).unwrap());
    assert_eq!((part.n_parts(), part.schema.n_nodes()), (3, 60));
    assert!(part.types[0].cache.is_some());
    Part::verify(part_dir(&out, 2)).unwrap();

    let other = root.path().join("other");
    let args = ["data", "partition", text(&set), "--out", text(&other), "--cache-ratio", "0"];
    succeed(&args);
    assert!(Part::open(part_dir(&other, 0)).unwrap().types[0].cache.is_none());
}

/// Returns a dataset of two authors and three papers.
fn papers() -> Dataset {
    let types = NodeTypes::new([("author", 2), ("paper", 3)]).unwrap();
    let writes = RelationEdges {
        name: "writes",
        src_type: "author",
        dst_type: "paper",
        srcs: &[0, 0, 1],
        dsts: &[0, 1, 1],
        weights: None,
        columns: None,
    };
    let builder = Dataset::builder_with_types(types).name("papers").relation(writes);
    let builder = builder.nodes("paper").features(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 2);
    builder
        .nodes("paper")
        .labels(vec![0, 1, -1], 2)
        .split(vec![0], vec![1], Vec::<u32>::new())
        .build()
        .unwrap()
}

#[test]
fn a_heterogeneous_dataset_is_converted_verified_and_inspected() {
    let root = tempfile::tempdir().unwrap();
    let (set, out) = (root.path().join("papers"), root.path().join("copy"));
    format::write(&papers(), &set).unwrap();
    let printed = succeed(&["data", "convert", text(&set), "--out", text(&out)]);
    assert!(printed.contains("5 nodes of 2 types, 3 edges of 1 relations\n"), "{printed}");
    assert_eq!(format::hash(&out).unwrap(), format::hash(&set).unwrap());
    let printed = succeed(&["data", "verify", text(&out)]);
    assert!(
        printed.contains("5 nodes, 3 edges: all values are valid; the hashes of 7 files match"),
        "{printed}"
    );
    let printed = succeed(&["data", "inspect", text(&out)]);
    assert!(printed.contains("writes    author  paper  3      0, 1, 2\n"), "{printed}");
    assert!(printed.contains("targets: 2 classes of paper, known for 2 of 3 nodes\n"), "{printed}");

    let other = root.path().join("other");
    let args = ["data", "convert", text(&set), "--out", text(&other), "--symmetrize"];
    refused(&args, "has several node types: --nodes, --symmetrize, --duplicates and --self-loops apply");
    refused(&["data", "convert", text(&set), "--out", text(&out)], "exists and is not an empty folder");
    let mut bytes = fs::read(out.join("indices.0.npy")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(out.join("indices.0.npy"), bytes).unwrap();
    refused(&["data", "verify", text(&out)], "indices.0.npy: its SHA-256 is");
    refused(&["data", "convert", text(&out), "--out", text(&other)], "indices.0.npy: its SHA-256 is");
    assert!(!other.exists());
}

#[test]
fn homogeneous_and_built_in_datasets_are_inspected() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("ring");
    format::write(&kiln::data::synthetic::ring(60).unwrap(), &set).unwrap();
    let printed = succeed(&["data", "inspect", text(&set)]);
    assert!(printed.starts_with("ring: 60 nodes, 120 edges\n"), "{printed}");
    assert!(printed.contains("edge      node  node  120    2, 2, 2\n"), "{printed}");
    let printed = succeed(&["data", "inspect", "debian-archive"]);
    assert!(printed.contains("split: 20036 / 6678 / 6678 nodes to train, validate, test\n"), "{printed}");
    refused(&["data", "inspect", "nowhere"], "nowhere");
    refused(&["data", "inspect", text(root.path())], "its subfolder ring is a kiln folder: open that");
}

#[test]
fn errors_of_invalid_flags_contain_the_expected_values() {
    for (args, expected) in [
        (&["convert", "a"][..], "--out"),
        (
            &["convert", "a", "--out", "b", "--memory", "1GB"],
            "expected a number of bytes, such as 1000000, 512MiB",
        ),
        (&["convert", "a", "--out", "b", "--self-loops", "double"], "possible values: keep, remove, add"),
        (
            &["partition", "sbm", "--out", "b", "--fanouts", "many"],
            "expected a number per layer, separated by commas",
        ),
        (&["partition", "/nowhere", "--out", "b"], "/nowhere"),
    ] {
        refused(&[&["data"], args].concat(), expected);
    }
}

#[test]
fn version_and_completions_are_printed() {
    let version = succeed(&["--version"]);
    assert!(version.starts_with(concat!("kiln ", env!("CARGO_PKG_VERSION"), " (commit ")), "{version}");
    assert_eq!(version.contains("mpi"), cfg!(feature = "mpi"), "{version}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = succeed(&["completions", shell]);
        assert!(script.contains("kiln") && script.contains("fanouts"), "{shell}");
    }
}

#[test]
fn a_first_spec_is_written_imported_and_inspected() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&root.path().join(name)).to_owned();
    fs::write(at("users.csv"), "id,age,plan\na,30,free\nb,,pro\nc,50,free\nd,40,pro\n").unwrap();
    fs::write(at("buys.csv"), "user,item_id\na,pen\nb,pen\nz,book\nc,book\n").unwrap();
    let tables = [at("users.csv"), at("buys.csv")];
    let args = ["data", "spec", &tables[0], &tables[1], "--out", &at("shop.yaml"), "--memory", "64MiB"];
    assert!(succeed(&args).contains("written: "));
    refused(&args, "shop.yaml exists: choose another path, existing files are kept");
    refused(&["data", "spec", &at("user.csv")], "did you mean");
    refused(&["data", "spec"], "required");
    let spec = fs::read_to_string(at("shop.yaml")).unwrap();
    assert!(spec.contains("- {name: item, from: relations}"), "{spec}");
    let spec = spec.replace("    # target: {class: {column: plan}}", "    target: {class: {column: plan}}");
    fs::write(at("plan.yaml"), spec).unwrap();
    let printed = succeed(&["data", "import", &at("plan.yaml"), "--out", &at("set")]);
    assert!(printed.contains("relation buys: 3 edges\n"), "{printed}");
    let printed = succeed(&["data", "inspect", &at("set")]);
    for expected in [
        "column of user  width  values              range     missing\n",
        "age             1      standardize         30 to 50  25.0 %\n",
        "plan            2      one_hot: free, pro  0 to 1    none\n",
        "free   2      0      0    0\n",
        "note: dropped from relation `buys`: 1 row, dangling\n",
        "note: node type `user`, column \"plan\": it is a feature and a target",
    ] {
        assert!(printed.contains(expected), "{expected}{printed}");
    }
}

/// A reader that has closed the pipe (`| head`) has what it wants; a full disk loses the answer of commands that only print.
#[cfg(unix)]
#[test]
fn printed_answers_survive_a_closed_pipe_and_report_a_full_disk() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("people.csv"), "id,age\na,1\nb,2\n").unwrap();
    let spec = "{name: people, nodes: [{name: person, files: [people.csv], key: id, columns: [{column: age, transform: numeric}]}], relations: []}";
    fs::write(root.path().join("people.yaml"), spec).unwrap();
    let only_print = [
        "data inspect debian-packages",
        "data import people.yaml --dry-run",
        "data spec people.csv",
        "device",
        "completions bash",
    ];
    let others = ["data import people.yaml --out people", "data verify people", "--help", "--version"];
    let output_of = |line: &str, stdout: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.args(line.split(' ')).current_dir(root.path()).stdout(stdout).output().unwrap()
    };
    for line in only_print.into_iter().chain(others) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = output_of(line, writer.into());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line}: {said}");
    }
    for line in only_print {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = output_of(line, full.into());
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = "the standard output could not be written: No space left on device";
        assert!(!output.status.success() && said.contains(expected), "{line}: {said}");
    }
}

/// Names in files may contain sequences that a terminal obeys.
#[test]
fn texts_of_others_are_escaped() {
    let root = tempfile::tempdir().unwrap();
    let hidden = "a\u{1b}[2Jb\u{202e}";
    let mut data = kiln::data::synthetic::ring(40).unwrap();
    data.name = hidden.to_owned();
    data.targets.as_mut().unwrap().class_names = vec![hidden.to_owned(), "b".to_owned()];
    let folder = root.path().join("set");
    format::write(&data, &folder).unwrap();
    let (folder, out) = (text(&folder), root.path().join("parts"));
    let printed = [
        run(&["data", "inspect", folder]),
        run(&["data", "partition", folder, "--out", text(&out)]),
        run(&["data", "inspect", &format!("none-{hidden}")]),
        run(&["data", "convert", &format!("none-{hidden}"), "--out", "none"]),
    ];
    assert_eq!([0, 1, 2, 3].map(|line| printed[line].0), [true, true, false, false]);
    // Events in JSON have the same texts, escaped as in JSON.
    let out = root.path().join("run");
    let flags = "--layers 1 --fanouts 2 --hidden 4 --epochs 1 --log-format json";
    let mut args = vec!["train", "--data", folder, "--out", text(&out)];
    args.extend(flags.split(' '));
    let events = succeed(&args);
    assert!(!events.contains(['\u{1b}', '\u{202e}']), "{events:?}");
    let lines = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert!(lines.into_iter().any(|event| event.to_string().contains('\u{202e}')), "{events}");
    for (_, printed) in printed {
        assert!(printed.contains("\\u{1b}[2Jb\\u{202e}"), "{printed}");
        assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{printed:?}");
    }
}

/// Sets of the kiln format open without reading the split, whose notes every command on the set has.
#[test]
fn notes_on_the_split_are_those_of_every_command() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let (plain, typed) = (kiln::data::synthetic::ring(40).unwrap(), crate::typed::data());
    for (name, mut data) in [("plain", plain), ("typed", typed)] {
        let split = &mut data.targets.as_mut().unwrap().split;
        split.val = split.train[..3].to_vec().into();
        format::write(&data, at(name)).unwrap();
        let copy = at(&format!("{name}-copy"));
        let parts = at(&format!("{name}-parts"));
        for args in [
            vec!["data", "inspect", &at(name)],
            vec!["data", "verify", &at(name)],
            vec!["data", "convert", &at(name), "--out", &copy],
            vec!["data", "partition", &at(name), "--out", &parts],
        ] {
            let printed = succeed(&args);
            let note = "note: the train and the val split share 3 nodes";
            assert_eq!(printed.matches(note).count(), 1, "{args:?}: {printed}");
        }
    }
}

/// A path need not be text: each command reads and writes it.
#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_utf_8_are_read_and_written() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("edges.csv"), "0,1\n2,1\n1,0\n").unwrap();
    fs::write(folder.join("ids.txt"), "3\n1\n").unwrap();
    let train = "train --hidden 8 --fanouts 3,3 --epochs";
    for command in [
        "data convert @edges.csv --out @converted",
        "data verify @converted",
        "data split-links sbm --out @links",
        "data inspect @links",
        "data convert @links --out @copied",
        "data partition @links --parts 2 --method random --out @parts",
        &format!("{train} 1 --data @links --task link --out @run --tensorboard"),
        &format!("{train} 2 --data @links --task link --resume @run --tensorboard"),
        "predict --run @run --data @links --nodes @ids.txt --top-k 2 --out @predicted",
    ] {
        let words = command.split(' ').map(|word| match word.strip_prefix('@') {
            Some(name) => folder.join(name).into_os_string(),
            None => OsString::from(word),
        });
        let output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(words).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(folder.join("predicted/links.csv").is_file());
}

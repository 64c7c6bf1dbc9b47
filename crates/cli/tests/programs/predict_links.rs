//! Tests of `kiln predict --pairs` and `--top-k`: scores are those of the run, and do not depend on ranks, partitions
//! and memory limits.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use kiln::data::{NodeNames, synthetic};
use kiln::prelude::*;
use kiln::store::{csv, npy};

#[cfg(target_os = "linux")]
use crate::killed;
use crate::predict::{fails, succeeds, text, train};
use crate::predict_non_finite::{DAMAGED, answer, damage, reached};
use crate::predict_ranks::{predicted, write};

/// Returns a set of 300 nodes with names and a split of links, whose first name needs quotes.
pub(crate) fn data() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: 300,
        n_classes: 3,
        degree: 10,
        homophily: 0.9,
        dim: 8,
        noise: 0.5,
        seed: 2,
    };
    let data = synthetic::sbm(config).unwrap();
    let config = LinkSplitConfig { val: 0.1, test: 0.2, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &config, 7).unwrap();
    let names: Vec<String> = (1..300).map(|node| format!("n{node}")).collect();
    let names = NodeNames::new(["a, b"].into_iter().chain(names.iter().map(String::as_str)));
    let names = vec![Arc::new(names)];
    let links = Some(split.targets().clone().into());
    Dataset { graph: split.message().clone(), links, names, ..data }
}

const FLAGS: &str =
    "--task link --hidden 16 --embedding 8 --fanouts 4,4 --epochs 2 --batch-size 200 --dropout 0";

/// Returns the lines of a file without its header, which must be `header`.
fn rows(csv: &str, header: &str) -> Vec<Vec<String>> {
    let (first, lines) = csv.split_once('\n').unwrap();
    assert_eq!(first, header);
    lines.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// Writes the pairs of a run's test links to a file, and returns its path and the scores.
fn test_pairs(root: &Path, run: &str) -> (String, Vec<String>) {
    let csv = text(&Path::new(run).join("test_predictions.csv"));
    let mut rows = csv::lines(&csv).map(|line| csv::fields(line).collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let has_names = header.contains(&"source_name");
    match has_names {
        true => assert_eq!(header.join(","), format!("link,{HEADER},rank")),
        false => assert_eq!(header.join(","), "link,source,destination,score,rank"),
    }
    let [dst, score] = if has_names { [3, 5] } else { [2, 3] };
    let rows: Vec<Vec<&str>> = rows.collect();
    if has_names {
        let name = |id: &str| if id == "0" { "\"a, b\"".to_owned() } else { format!("n{id}") };
        assert!(rows.iter().all(|row| row[2] == name(row[1]) && row[4] == name(row[3])), "{csv}");
    }
    let lines: String = rows.iter().map(|row| format!("{},{}\n", row[1], row[dst])).collect();
    let path = root.join("pairs.csv");
    std::fs::write(&path, format!("source,destination\n{lines}")).unwrap();
    (path.to_str().unwrap().to_owned(), rows.into_iter().map(|row| row[score].to_owned()).collect())
}

const HEADER: &str = "source,source_name,destination,destination_name,score";

#[test]
fn scores_of_test_pairs_are_those_of_the_run() {
    let root = tempfile::tempdir().unwrap();
    let [set, _] = write(&data(), 1, root.path(), "set");
    for (name, flags) in [
        ("exact", "--eval exact --decoder mlp --standardize true"),
        ("gcn", "--eval exact --model gcn"),
        ("gat", "--eval exact --model gat"),
        ("distmult", "--eval exact --decoder distmult"),
    ] {
        let folder = root.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let run = train(&folder, &format!("--data {set} {FLAGS} {flags}"));
        let (pairs, expected) = test_pairs(&folder, &run);
        let files = predicted(&folder, &run, &format!("--data {set} --pairs {pairs}"));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["links.csv"]);
        let csv = String::from_utf8(files["links.csv"].clone()).unwrap();
        assert_eq!(csv.lines().count(), 1 + expected.len());
        let scores = csv.lines().skip(1).map(|line| line.rsplit(',').next().unwrap());
        assert!(scores.eq(expected.iter()), "{name}: {csv}\n{expected:?}");
        assert!(csv.lines().next() == Some(HEADER) && csv.contains(",n7,"), "{csv}");
        let keys = folder.join("keys.txt");
        let name = |id: &str| if id == "0" { "a, b".to_owned() } else { format!("n{id}") };
        let pairs_text = text(Path::new(&pairs));
        let of_keys = pairs_text.lines().skip(1).map(|line| {
            let (src, dst) = line.split_once(',').unwrap();
            format!("{}\t{}\n", name(src), name(dst))
        });
        std::fs::write(&keys, of_keys.collect::<String>()).unwrap();
        let of_keys = predicted(&folder, &run, &format!("--data {set} --pair-keys {}", keys.display()));
        assert!(of_keys["links.csv"] == files["links.csv"]);
        let arrays = predicted(&folder, &run, &format!("--data {set} --pairs {pairs} --format npy"));
        assert_eq!(arrays.keys().collect::<Vec<_>>(), ["links.npy", "scores.npy"]);
        let scores: Vec<f32> =
            csv.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
        assert!(arrays["scores.npy"] == npy::write(&scores, &[scores.len()]));
    }
}

#[test]
fn links_of_1_to_4_ranks_and_partitions_are_those_of_one_rank_byte_for_byte() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let data = Dataset { names: vec![Arc::default()], ..data() };
    let [set, _] = write(&data, 1, folder, "set");
    let run = train(folder, &format!("--data {set} {FLAGS}"));
    let (pairs, _) = test_pairs(folder, &run);
    for request in [format!("--pairs {pairs}"), "--top-k 3 --nodes all".to_owned()] {
        for mode in ["as-evaluated", "sampled --fanouts all,3 --seed 5"] {
            let flags = format!("{request} --mode {mode}");
            let expected = predicted(folder, &run, &format!("--data {set} {flags}"));
            for n in 1..=4 {
                let of_ranks = format!("--data {set} --ranks {n} {flags}");
                assert!(expected == predicted(folder, &run, &of_ranks), "{flags}");
                let [_, parts] =
                    write(&data, n, folder, &format!("parts-{n}-{}-{}", &mode[..1], &request[2..5]));
                let of_parts = format!("--parts {parts} --host 127.0.0.1 --ranks {n} {flags}");
                assert!(expected == predicted(folder, &run, &of_parts), "{flags}");
            }
        }
    }
}

#[test]
fn top_k_lists_the_best_destinations_of_each_source_within_a_memory_limit() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let data = data();
    let [set, _] = write(&data, 1, folder, "set");
    let run = train(folder, &format!("--data {set} {FLAGS} --eval exact"));
    let best = |flags: &str| {
        let files = predicted(folder, &run, &format!("--data {set} --top-k 4 {flags}"));
        let csv = String::from_utf8(files["links.csv"].clone()).unwrap().replace("\"a, b\"", "a");
        rows(&csv, HEADER)
    };
    let all = best("--nodes all");
    assert_eq!(all.len(), 4 * 300);
    for (source, links) in all.chunks(4).enumerate() {
        assert!(links.iter().all(|link| link[0] == source.to_string() && link[2] != link[0]), "{links:?}");
        assert!(
            links.is_sorted_by(|a, b| b[4].parse::<f32>().unwrap() <= a[4].parse().unwrap()),
            "{links:?}"
        );
    }
    assert!(all == best("--nodes all --mode exact --ranks 2"));
    // The rows, 9,600 bytes, are written to a file. The layers are computed for smaller ranges of nodes, which changes
    // scores by rounding.
    let limited = best("--nodes all --memory 8000");
    assert_eq!(limited.len(), all.len());
    for (limited, link) in limited.iter().zip(&all) {
        let [value, expected] = [limited, link].map(|link| link[4].parse::<f32>().unwrap());
        assert!(limited[0] == link[0] && (value - expected).abs() < 1e-3, "{limited:?} and {link:?}");
    }

    // Without --nodes, the sources are those of the test links.
    let targets = data.links.as_ref().unwrap();
    let test: HashSet<String> = targets
        .targets
        .split()
        .test
        .iter()
        .map(|link| targets.targets.links().pair(*link).0.0.to_string())
        .collect();
    let sources: HashSet<String> = best("").into_iter().map(|link| link[0].clone()).collect();
    assert_eq!(sources, test);

    let has_edge = |link: &Vec<String>| {
        let [src, dst] = [0, 2].map(|column| NodeId(link[column].parse().unwrap()));
        data.csc().unwrap().in_neighbors(dst).contains(&src)
    };
    assert!(all.iter().any(has_edge), "the model should score some edges highest");
    let new = best("--nodes all --exclude-edges");
    assert!(new.len() == 4 * 300 && !new.iter().any(has_edge));
}

#[test]
fn rejects_flags_that_do_not_apply_to_models_of_links() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let [set, parts] = write(&data(), 1, folder, "set");
    let without_links = Dataset { links: None, ..data() };
    let [plain, _] = write(&without_links, 1, folder, "plain");
    let run = train(folder, &format!("--data {set} {FLAGS}"));
    std::fs::write(folder.join("large.csv"), "0,300\n").unwrap();
    let large = folder.join("large.csv");
    let (_, of_nodes) = (std::fs::create_dir(folder.join("nodes")).unwrap(), folder.join("nodes"));
    let of_nodes = train(&of_nodes, "--data sbm --hidden 8 --fanouts 4,4 --epochs 1");
    let out = folder.join("rejected");
    for (run, flags, expected) in [
        (
            &run,
            format!("--data {set}"),
            "the model scores links: add --pairs FILE, --pair-keys FILE or --top-k K",
        ),
        (&run, format!("--data {set} --top-k 2 --embeddings"), "--embeddings does not apply"),
        (&run, format!("--data {set} --top-k 2 --per-rank --ranks 2"), "--per-rank does not apply"),
        (
            &run,
            format!("--data {plain} --top-k 2 --nodes test"),
            "give --nodes all, a file of ids, or --keys",
        ),
        (&run, format!("--data {set} --pairs {}", large.display()), "expected a node id below 300"),
        (&run, format!("--data {set} --exclude-edges"), "--top-k"),
        (
            &run,
            format!("--parts {parts} --host 127.0.0.1 --top-k 2 --exclude-edges --nodes all"),
            "needs the whole graph",
        ),
        (&run, format!("--data {set} --top-k 10001"), "expected a whole number from 1 to 10000"),
        (&run, format!("--data {set} --top-k 2 --cache-size 1MiB"), "--cache-size needs a partitioned graph"),
        (&run, format!("--data {set} --top-k 2 --node-features degree"), "--node-features"),
        (&of_nodes, "--data sbm --top-k 2".to_owned(), "this is a model of nodes: remove them"),
    ] {
        let flags = format!("predict --run {run} {flags} --out {}", out.display());
        let error = fails(&flags.split_whitespace().collect::<Vec<_>>());
        assert!(error.contains(expected) && !error.contains("panicked"), "{flags}: {error}");
        assert!(!out.exists(), "{flags}");
    }
    let printed =
        succeeds(&["predict", "--run", &run, "--data", &set, "--top-k", "2", "--out", out.to_str().unwrap()]);
    assert!(printed.contains(" links predicted in "), "{printed}");
}

/// The encoder has one layer, so the rows of the damaged node and of those that have it as an in-neighbour are not finite.
#[test]
fn links_without_finite_scores_have_none_and_the_best_destinations_leave_them_out() {
    let root = tempfile::tempdir().unwrap();
    let names = (0..300).map(|node| format!("n{node}")).collect::<Vec<_>>();
    let names = vec![Arc::new(NodeNames::new(names.iter().map(String::as_str)))];
    let folder = root.path();
    let data = Dataset { names, ..data() };
    let features = damage(&**data.node_features().unwrap(), [DAMAGED].into_iter());
    let [set, _] = write(&data, 1, folder, "set");
    let [bad, parts] = write(&Dataset { features: vec![Some(features)], ..data.clone() }, 2, folder, "bad");
    let flags = FLAGS.replace("4,4", "all");
    let run = train(folder, &format!("--data {set} {flags}"));
    let left_out = reached(data.csc().unwrap(), DAMAGED);
    let is_left_out = |node: &str| left_out.contains(&node.parse().unwrap());
    let pairs: Vec<[u32; 2]> = (0..200).map(|pair| [pair * 7 % 300, (pair * 11 + 1) % 300]).collect();
    let file = folder.join("pairs.csv");
    std::fs::write(&file, pairs.iter().map(|[src, dst]| format!("{src},{dst}\n")).collect::<String>())
        .unwrap();
    let request = format!("--pairs {}", file.display());
    let (printed, expected) = answer(folder, &run, &format!("--data {set} {request}"));
    assert!(!printed.contains("not finite"), "{printed}");
    let of_bad = format!("--data {bad} {request}");
    let (printed, scored) = answer(folder, &run, &of_bad);
    let mut n_without_score = 0;
    for (row, expected) in scored["links.csv"].1.iter().zip(&expected["links.csv"].1) {
        match is_left_out(&row[0]) || is_left_out(&row[2]) {
            true => assert!(row[..4] == expected[..4] && row[4].is_empty(), "{row:?}"),
            false => assert_eq!(row, expected),
        }
        n_without_score += usize::from(row[4].is_empty());
    }
    assert!(0 < n_without_score && n_without_score < 200);
    let note = format!("the outputs of {n_without_score} items are not finite: ");
    assert!(printed.contains(&note), "{printed}");
    let of_parts = format!("--parts {parts} --host 127.0.0.1 --ranks 2 {request}");
    let (printed, of_parts) = answer(folder, &run, &of_parts);
    assert!(printed.contains(&note), "{printed}");
    let (header, rows) = &of_parts["links.csv"];
    assert_eq!(header, "source,destination,score");
    for (row, named) in rows.iter().zip(&scored["links.csv"].1) {
        assert_eq!([&row[0], &row[1], &row[2]], [&named[0], &named[2], &named[4]]);
    }
    // The best of the finite scores.
    let (printed, best) = answer(folder, &run, &format!("--data {bad} --top-k 4 --nodes all"));
    let sources: HashSet<u32> = best["links.csv"].1.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(sources.iter().all(|src| !left_out.contains(src)));
    assert_eq!(sources.len(), 300 - left_out.len());
    assert!(best["links.csv"].1.iter().all(|row| !is_left_out(&row[2]) && row[4].parse::<f32>().is_ok()));
    let n_left_out = left_out.len();
    for line in [
        format!("the outputs of {n_left_out} items are not finite: "),
        format!("the outputs of {n_left_out} destinations are not finite: "),
    ] {
        assert!(printed.contains(&line), "{line}: {printed}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_rank_that_is_lost_after_the_links_were_written_leaves_no_result() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let [set, _] = write(&data(), 1, folder, "set");
    let run = train(folder, &format!("--data {set} {FLAGS}"));
    let (pairs, _) = test_pairs(folder, &run);
    let [header, pair] = [0, 1].map(|line| text(Path::new(&pairs)).lines().nth(line).unwrap().to_owned());
    std::fs::write(&pairs, format!("{header}\n{}", format!("{pair}\n").repeat(1 << 18))).unwrap();
    let predict = killed::writer(format!("predict --run {run} --data {set} --pairs {pairs}")).of_processes(2);
    let jobs = folder.join("jobs");
    let out = jobs.join("out");
    std::fs::create_dir(&jobs).unwrap();
    predict.finish(&out);
    let n_bytes = std::fs::metadata(out.join("links.csv")).unwrap().len();
    for _ in 0..killed::MOST_TRIES {
        std::fs::remove_dir_all(&out).unwrap();
        let mut children = predict.start(&out);
        // Rank 0 writes while rank 1 waits for it.
        killed::wait(&mut children, || killed::is_writing(&jobs));
        killed::send(&children[1], "STOP");
        killed::wait(&mut children, || {
            let mut files = killed::names(&jobs).into_iter().map(|name| jobs.join(name).join("links.csv"));
            files.any(|file| std::fs::metadata(file).is_ok_and(|file| file.len() == n_bytes))
        });
        killed::send(&children[1], "KILL");
        let ends = killed::ends(children);
        if !ends[1].status.success() {
            assert_eq!(ends[0].status.code(), Some(75), "{}", ends[0].said);
            assert_eq!(killed::names(&jobs), [""; 0]);
            predict.finish(&out);
            return;
        }
    }
    panic!("the links were written before the signal came");
}

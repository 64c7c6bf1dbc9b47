//! Tests of `kiln train --task link` on several ranks and on partitions, and of its exact resumption.

use std::fs;
use std::path::Path;

use super::{FLAGS, Sets, write_fixed};
use crate::distributed_sage::{Learned, Server, command};

/// The batch size is that of a rank. Negatives and excluded edges are those of a single rank, also those drawn from the
/// links of the step.
#[test]
fn four_ranks_have_the_losses_and_negatives_of_one_rank() {
    let sets = Sets::new();
    let flags = "--epochs 3 --negative-sampler in-batch --eval-negatives 20";
    sets.train("graph", &format!("{flags} --ranks 1 --batch-size 256"), "one");
    sets.train("graph", &format!("{flags} --ranks 4 --batch-size 64"), "four");
    sets.check_close(["one", "four"]);
}

/// With servers, items are split among the ranks as on the whole graph; in worker mode, ranks take the links whose
/// destination they own, so sums round differently.
#[test]
fn one_to_four_partitions_train_the_weights_of_the_whole_graph() {
    let sets = Sets::new();
    write_fixed(&sets, &["val", "test"], "fixed");
    // The set `fixed` has no labels, and the split of its nodes is empty.
    let cases = [("fixed", ""), ("split", ""), ("fixed", "--eval-negatives 20"), ("split", "--reject-edges")];
    for ((set, flags), n_parts) in cases.into_iter().zip(1..) {
        let flags =
            format!("--epochs 2 --eval sampled --ranks {n_parts} --batch-size {} {flags}", 240 / n_parts);
        let outs = ["whole", "servers", "workers"].map(|name| format!("{name}-{n_parts}"));
        let [whole_out, servers_out, workers_out] = outs.each_ref().map(|out| &**out);
        let (whole, _) = sets.train(set, &flags, whole_out);
        let parts = sets.partition(set, &format!("--parts {n_parts}"), &format!("parts-{n_parts}"));
        let servers = Server::all(Path::new(&parts), n_parts);
        let (of_servers, printed) =
            sets.train(set, &format!("{flags} {}", Server::flags(&servers)), servers_out);
        assert!(printed.contains(&format!("server mode, {n_parts} servers")), "{printed}");
        assert_eq!(of_servers.weights_hash, whole.weights_hash, "{n_parts} servers");
        assert_eq!(of_servers.losses, whole.losses);
        let [expected, found] = [whole_out, servers_out].map(|out| sets.file(out, "test_predictions.csv"));
        assert_eq!(found, expected, "{n_parts} servers");
        let (_, printed) = sets.train(set, &format!("{flags} --parts {parts}"), workers_out);
        assert_eq!(printed.matches("  epoch   2  loss ").count(), n_parts, "{printed}");
        sets.check_close([whole_out, workers_out]);
    }
}

/// Partitions of another split have as many nodes and edges, but pass messages over links of the test.
#[test]
fn rejects_partitions_of_other_data_or_another_split() {
    let sets = Sets::new();
    sets.split(4, "other");
    let [split, graph] = ["split", "graph"].map(|set| sets.path(set));
    for set in ["other", "graph"] {
        let parts = sets.partition(set, "--parts 1", &format!("{set}-parts"));
        let error = sets.rejected(&format!("{FLAGS} --data {split} --parts {parts}"));
        assert!(
            error.contains("of other data than --data") && error.contains("partition the data of"),
            "{error}"
        );
    }
    let parts = sets.path("graph-parts");
    let error = sets.rejected(&format!("{FLAGS} --data {graph} --parts {parts}"));
    assert!(error.contains("needs --data with a split of links"), "{error}");
    assert!(error.contains("split the links first (`kiln data split-links`)"), "{error}");
    let parts = sets.partition("split", "--parts 1", "parts");
    let error = sets.rejected(&format!("{FLAGS} --data {split} --parts {parts} --eval exact"));
    assert!(error.contains("--eval exact needs the whole graph"), "{error}");
}

#[test]
fn partitions_with_scaled_features_train_the_weights_of_scaled_data() {
    let sets = Sets::new();
    let [plain, scaled] = ["", "--standardize"]
        .map(|flag| sets.partition("split", &format!("--parts 1 {flag}"), &format!("parts{flag}")));
    let (whole, _) = sets.train("split", "--epochs 1 --standardize true", "whole");
    let (of_parts, _) = sets.train("split", &format!("--epochs 1 --parts {scaled}"), "run");
    assert_eq!(of_parts.weights_hash, whole.weights_hash);
    let [data, run] = ["split", "run"].map(|name| sets.path(name));
    let flags = format!("{FLAGS} --data {data} --parts {plain} --epochs 2 --resume {run}");
    let output = command("train", &flags).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("the hash of the data was "), "{error}");
}

#[test]
fn a_resumed_run_ends_like_an_uninterrupted_one_and_keeps_its_settings() {
    let sets = Sets::new();
    let flags = "--ranks 2 --batch-size 128 --decoder mlp --negative-sampler in-batch --reject-edges";
    let (whole, _) = sets.train("graph", &format!("{flags} --epochs 3"), "whole");
    let (graph, run) = (sets.path("graph"), sets.path("run"));
    let resumed = |others: &str| {
        let flags = format!("{FLAGS} --data {graph} {flags} {others}");
        command("train", &flags).output().unwrap()
    };
    for epochs in ["1", "3"] {
        let output = resumed(&format!("--epochs {epochs} --continue {run}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let parts = Learned::of(&sets.0.path("run"));
    assert_eq!((&parts.weights_hash, &parts.losses), (&whole.weights_hash, &whole.losses));
    for name in ["test_predictions.csv", "best.safetensors"] {
        let [expected, found] = ["whole", "run"].map(|out| fs::read(sets.0.path(out).join(name)).unwrap());
        assert!(found == expected, "{name}");
    }
    for (others, expected) in [
        ("--exclude none", "--exclude was reverses and is none now"),
        ("--negatives 2", "--negatives was 1 and is 2 now"),
        ("--eval-negatives 5", "--eval-negatives was not set and is 5 now"),
        ("--link-split 0.1,0.1", "--link-split was not set and is 0.1,0.1 now"),
        ("--loss bpr", "--loss was not set and is bpr now"),
    ] {
        let output = resumed(&format!("--epochs 4 --resume {run} {others}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{others}: {error}");
    }
}

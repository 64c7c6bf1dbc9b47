//! Tests of `kiln train --graph-mode` with items that are sampled at their own times.

use kiln::data::{Dataset, TimeSplit};
use kiln::graph::{EdgeColumn, EdgeColumns};

use super::relations::shop;
use super::{device, run, text, weights_hash, with_edge_features};

/// The trees of items are the same on the host and on the device, of one relation and of several.
#[test]
fn items_sampled_at_their_times_on_the_device_give_identical_weights() {
    let device = device().unwrap_or_else(|| "cpu".into());
    let folder = tempfile::tempdir().unwrap();
    for (name, data, node_type) in [("plain", with_edge_features(), 0), ("shop", shop(), 1)] {
        let set = folder.path().join(name);
        kiln::data::format::write(&timed(data, node_type), &set).unwrap();
        let flags = format!(
            "--data {} --hidden 8 --fanouts 3,3 --batch-size 32 --epochs 1 --messages item-time --rule most-recent --time-window 60",
            set.display()
        );
        let trained = |how: &str| {
            let out = folder.path().join(format!("{name} {how}").replace(' ', "_"));
            let flags = format!("{flags} --device {device} --graph-mode {how} --out {}", out.display());
            let output = run(&flags);
            assert!(output.status.success(), "{flags}: {}", text(&output.stderr));
            weights_hash(&out)
        };
        // The features of a heterogeneous set stay on the host.
        let cache = if name == "plain" { "--feature-cache 10KiB --hot-by presampling" } else { "" };
        assert_eq!(trained(&format!("device {cache}")), trained("cpu"), "{name}");
    }
}

/// Returns a set whose edges have times, with a split by the times of the nodes of a type.
fn timed(mut data: Dataset, node_type: usize) -> Dataset {
    let time = |number: u64| (number * 37 % 101) as i64;
    for relation in 0..data.graph.n_relations() {
        let n_edges = data.graph.relation(relation).graph.n_edges();
        let times = EdgeColumn::new((0..n_edges).map(time).collect::<Vec<i64>>(), 1).unwrap();
        data = data.with_edge_column(relation, EdgeColumns::TIMES, times).unwrap();
    }
    let n_nodes = data.graph.types().range(node_type).len();
    let times: Vec<i64> = (0..n_nodes as u64).map(time).collect();
    let split = TimeSplit::new(None, 60, 80).unwrap();
    data.with_node_times(node_type, times).unwrap().with_time_split(split).unwrap()
}

//! Tests of training on a graph in two partitions on two nodes, in worker mode and in server mode.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use kiln::data::synthetic::FakeConfig;

use crate::partitioned;
use crate::run::{Learned, PROGRAM, alone, learned, succeed, until};
use crate::slurm::cluster;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/launch/servers.sbatch");

const FLAGS: &str = "--hidden 16 --epochs 2 --lr 0.01 --dropout 0.1 --threads-per-rank 1";

/// Returns the results of one process on the whole graph.
fn of_whole(folder: &Path, ranks: &str, batch_size: &str) -> Learned {
    let out = folder.join(format!("whole-{ranks}"));
    let mut command = Command::new(PROGRAM);
    command.arg("train").args(FLAGS.split(' ')).args([
        "--fanouts",
        "4,6",
        "--ranks",
        ranks,
        "--batch-size",
        batch_size,
    ]);
    succeed(command.arg("--data").arg(folder.join("whole")).arg("--out").arg(&out));
    learned(&out)
}

#[test]
fn partitioned_training_on_two_nodes_matches_the_whole_graph() {
    let _alone = alone();
    let Some(cluster) = cluster() else { return };
    partitioned::write(FakeConfig { avg_num_nodes: 2000, ..Default::default() }, None, cluster.dir());
    let (parts, out) = (cluster.dir().join("parts"), cluster.dir().join("workers"));
    let whole = of_whole(cluster.dir(), "1", "128");
    let srun =
        ["timeout", "600", "srun", "--kill-on-bad-exit=1", "--mpi=pmix", "-N2", "-n2", PROGRAM, "train"];
    let mut srun = cluster.command(&srun);
    srun.args(FLAGS.split(' ')).args(["--fanouts", "4,6", "--batch-size", "64", "--parts"]).arg(&parts);
    let said = succeed(srun.arg("--out").arg(&out));
    assert!(said.contains("1 on vnode1, 1 on vnode2; engine mpi"), "{said}");
    assert!((0..2).all(|rank| said.contains(&format!("trainer {rank}  epoch   2  loss "))), "{said}");
    let workers = learned(&out);
    for (loss, whole) in workers.losses.iter().zip(&whole.losses) {
        assert!((loss - whole).abs() < 1e-4 * whole, "{loss} {whole}");
    }
    // The script that users submit starts servers. In server mode, items are split among the ranks as on the whole
    // graph, so the weights are bit-identical to those of two thread ranks.
    let (said, out) = (cluster.dir().join("said"), cluster.dir().join("servers"));
    let mut sbatch =
        cluster.command(&["timeout", "300", "sbatch", "--parsable", "-N2", "--ntasks-per-node=1"]);
    sbatch
        .args(["--time=30", "--output"])
        .arg(&said)
        .arg(SCRIPT)
        .arg(&parts)
        .args([PROGRAM, PROGRAM, "train"]);
    sbatch.args(FLAGS.split(' ')).args(["--fanouts", "4,6", "--batch-size", "64", "--out"]).arg(&out);
    let id = succeed(&mut sbatch).trim().to_owned();
    let state = || succeed(&mut cluster.command(&["timeout", "120", "scontrol", "show", "job", &id]));
    until("the end of the job", || {
        ["COMPLETED", "FAILED", "CANCELLED"].iter().any(|end| state().contains(&format!("JobState={end}")))
    });
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("exit status 0"), "{said}");
    assert_eq!(learned(&out), of_whole(cluster.dir(), "2", "64"), "{said}");
}

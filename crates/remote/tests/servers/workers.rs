//! Worker mode: ranks hold partitions, serve them to each other and use all of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kiln_comm::{Communicator, RankInfo, Reduce, ThreadRanks};
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;
use kiln_partition::Part;
use kiln_remote::{ColocatedWorker, ColocatedWorkerConfig, DistFeatureStore, DistNeighborSampler, Error};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};

use crate::cluster::{HANGS, N_NODES, hubs, parts, token, wild};
use crate::same::gathered;

fn join(
    comm: &mut dyn Communicator,
    parts: &[Arc<Part>],
    config: ColocatedWorkerConfig,
) -> Result<ColocatedWorker, Error> {
    let part = ColocatedWorker::part_of(comm.rank_info(), parts.len()).unwrap();
    ColocatedWorker::meet(comm.duplicate("parts").unwrap(), Arc::clone(&parts[part]), config)
}

#[test]
fn ranks_with_partitions_sample_the_whole_graph() {
    let data = hubs();
    let fanouts = [Fanout::UpTo(3), Fanout::UpTo(5)];
    for (n_ranks, n_parts) in [(1, 1), (2, 1), (2, 2), (4, 2), (3, 3)] {
        let parts = parts(&data, n_parts, |node| wild(u64::from(node)) as usize % n_parts, None);
        let ranks = ThreadRanks { deadline: Duration::from_secs(120), ..ThreadRanks::of(n_ranks) };
        // Either the token is given, or rank 0 draws one.
        for given in [Some(token()), None] {
            let config = ColocatedWorkerConfig { token: given, ..ColocatedWorkerConfig::new("127.0.0.1") };
            let owned = ranks.run(|mut comm| {
                let worker = join(&mut *comm, &parts, config.clone())?;
                let (rank, graph) = (comm.rank_info().rank, Arc::clone(worker.graph()));
                let seeds: Vec<NodeId> =
                    (0..50).map(|at| NodeId(wild(at + rank as u64) as u32 % 500)).collect();
                let (seeds, key) = (Seeds::nodes(seeds), RngKey::new(rank as u64));
                let whole = NeighborSampler::new(Arc::clone(data.csc().unwrap()), fanouts);
                let expected = whole.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap();
                let sampler = DistNeighborSampler::new(Arc::clone(&graph), fanouts);
                assert_eq!(sampler.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap(), expected);
                let ids = expected.blocks[0].srcs();
                let features = DistFeatureStore::new(graph).unwrap();
                assert!(gathered(&features, ids) == gathered(&**data.node_features().unwrap(), ids));
                let owner = worker.owner();
                let owned: Vec<bool> = (0..N_NODES as u32).map(|node| owner(NodeId(node)) == rank).collect();
                drop((sampler, features));
                worker.end(Duration::from_secs(120))?;
                Ok(owned)
            });
            let owned = owned.unwrap();
            for node in (0..N_NODES as u32).map(NodeId) {
                let owners: Vec<usize> = (0..n_ranks).filter(|rank| owned[*rank][node.index()]).collect();
                let part = wild(u64::from(node.0)) as usize % n_parts;
                assert_eq!(owners.len(), 1, "{node:?}");
                assert_eq!(owners[0] / (n_ranks / n_parts), part, "{node:?}");
            }
            let shares = owned.iter().map(|owned| owned.iter().filter(|is_own| **is_own).count());
            assert!(shares.clone().max() < shares.min().map(|least| 2 * least), "{n_ranks} ranks");
        }
    }
}

#[test]
fn meet_rejects_ranks_that_cannot_share_the_partitions() {
    let parts = parts(&hubs(), 2, |node| node as usize % 2, None);
    // The cases are three ranks with two partitions, and two ranks with the same partition.
    for (n_ranks, part) in [(3, 0), (2, 0)] {
        let ranks = ThreadRanks { deadline: Duration::from_secs(120), ..ThreadRanks::of(n_ranks) };
        let outcome = ranks.run(|mut comm| {
            let (meeting, config) = (comm.duplicate("parts")?, ColocatedWorkerConfig::new("127.0.0.1"));
            Ok(ColocatedWorker::meet(meeting, Arc::clone(&parts[part]), config).map(drop)?)
        });
        let error = outcome.unwrap_err();
        let sources = std::iter::successors(Some(&error as &dyn std::error::Error), |&error| error.source());
        let text = sources.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        assert!(text.contains("start as many ranks as partitions"), "{text}");
    }
}

/// A communicator of a rank that is late after it got the addresses of the servers.
#[derive(Debug)]
struct Late(Box<dyn Communicator>);

impl Communicator for Late {
    fn rank_info(&self) -> RankInfo {
        self.0.rank_info()
    }

    fn set_step(&mut self, step: u64) {
        self.0.set_step(step);
    }

    fn all_reduce_sum(&mut self, buf: Reduce<'_>) -> kiln_comm::Result<()> {
        self.0.all_reduce_sum(buf)
    }

    fn all_gather(&mut self, send: &[u8]) -> kiln_comm::Result<Vec<Vec<u8>>> {
        let gathered = self.0.all_gather(send)?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(gathered)
    }

    fn all_to_all(&mut self, send: &[Vec<u8>]) -> kiln_comm::Result<Vec<Vec<u8>>> {
        self.0.all_to_all(send)
    }

    fn broadcast(&mut self, root: usize, bytes: &mut Vec<u8>) -> kiln_comm::Result<()> {
        self.0.broadcast(root, bytes)
    }

    fn barrier(&mut self, deadline: Duration) -> kiln_comm::Result<()> {
        self.0.barrier(deadline)
    }

    fn subgroup(&mut self, ranks: &[usize]) -> kiln_comm::Result<Box<dyn Communicator>> {
        self.0.subgroup(ranks)
    }

    fn duplicate(&mut self, name: &str) -> kiln_comm::Result<Box<dyn Communicator>> {
        self.0.duplicate(name)
    }
}

/// A rank that has nothing to do after it met the others, because its request is invalid, must not stop its server while
/// another rank still connects: that rank would wait for the server to be restarted, and fail in the end.
#[test]
fn a_rank_that_leaves_at_once_lets_the_others_connect() {
    let parts = parts(&hubs(), 2, |node| node as usize % 2, None);
    let ranks = ThreadRanks { deadline: Duration::from_secs(120), ..ThreadRanks::of(2) };
    let outcome = ranks.run(|mut comm| {
        let (info, meeting) = (comm.rank_info(), comm.duplicate("parts")?);
        let meeting = if info.rank == 1 { Box::new(Late(meeting)) as Box<dyn Communicator> } else { meeting };
        let config = ColocatedWorkerConfig::new("127.0.0.1");
        drop(ColocatedWorker::meet(meeting, Arc::clone(&parts[info.rank]), config)?);
        Ok(())
    });
    outcome.unwrap();
}

/// A rank that fails stops its server. The requests of the other rank end with the error of the job, not after their deadline.
#[test]
fn requests_to_a_rank_that_failed_end_with_the_job() {
    let parts = parts(&hubs(), 2, |node| node as usize % 2, None);
    let ranks = ThreadRanks { deadline: HANGS, ..ThreadRanks::of(2) };
    let config = ColocatedWorkerConfig { deadline: HANGS, ..ColocatedWorkerConfig::new("127.0.0.1") };
    let said = Mutex::new(String::new());
    let outcome = ranks.run(|mut comm| {
        let worker = join(&mut *comm, &parts, config.clone())?;
        if comm.rank_info().rank == 1 {
            return Err("the disk is full".into());
        }
        let features = DistFeatureStore::new(Arc::clone(worker.graph()))?;
        let mut rows = FeatureBuffer::empty(features.dtype());
        // The rows of the other rank can be read until it has ended.
        let error = loop {
            if let Err(error) = features.gather(&[NodeId(1)], &mut rows) {
                break error;
            }
        };
        *said.lock().unwrap() = kiln_comm::error_text(&error);
        Err::<(), _>(error.into())
    });
    let error = kiln_comm::error_text(&outcome.unwrap_err());
    assert!(error.contains("the disk is full"), "{error}");
    let said = said.into_inner().unwrap();
    assert!(said.contains("is no longer needed: rank 1") && said.contains("the disk is full"), "{said}");
}

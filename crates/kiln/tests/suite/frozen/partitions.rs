//! Partitions of data sets, which servers of this process or the ranks hold.

use kiln::comm::rpc::Token;
use kiln::partition::{Method, Part, PartitionBook, PartitionBooks, PartitionMeta, part_dir, write_parts};
use kiln::prelude::*;
use kiln::remote::{PartitionsConfig, ServeConfig, Server};
use tempfile::TempDir;

const N_PARTS: usize = 2;

/// A folder with two partitions: that of the even nodes and that of the odd nodes.
pub(crate) struct Parts {
    root: TempDir,
}

/// A partitioned graph whose partitions are served until this is dropped.
pub(crate) struct Served {
    pub(crate) graph: PartitionedGraph,
    _servers: Vec<Server>,
}

fn owners(n_nodes: usize) -> Vec<u16> {
    (0..n_nodes).map(|node| (node % N_PARTS) as u16).collect()
}

impl Parts {
    /// Returns the folder of the partitions.
    pub(crate) fn folder(&self) -> std::path::PathBuf {
        self.root.path().join("parts")
    }

    pub(crate) fn of(data: &Dataset) -> Self {
        let root = tempfile::tempdir().unwrap();
        let book = PartitionBook::from_parts(&owners(data.graph.n_nodes()), N_PARTS).unwrap();
        let meta = meta(data.hash().unwrap());
        write_parts(data, &book, &meta, None, root.path().join("parts")).unwrap();
        Self { root }
    }

    pub(crate) fn of_typed(data: &Dataset) -> Self {
        let root = tempfile::tempdir().unwrap();
        let types = data.graph.types().clone();
        let book = PartitionBooks::from_parts(types, &owners(data.graph.n_nodes()), N_PARTS).unwrap();
        let meta = meta(data.hash().unwrap());
        write_parts(data, &book, &meta, None, root.path().join("parts")).unwrap();
        Self { root }
    }

    /// Serves the partitions. A rank that holds none then has the batches of the whole graph.
    pub(crate) fn serve(&self) -> Served {
        let token = Token::new("a-word-of-this-test").unwrap();
        let mut servers = Vec::new();
        for part in 0..N_PARTS {
            let part = Part::open(part_dir(self.root.path().join("parts"), part)).unwrap();
            servers.push(Server::start(part, ServeConfig::new("127.0.0.1:0", token.clone())).unwrap());
        }
        let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        let config = PartitionsConfig { token: Some(token), ..PartitionsConfig::default() };
        Served { graph: PartitionedGraph::connect(addresses, config).unwrap(), _servers: servers }
    }

    /// Opens the partitions for two ranks that hold one each.
    pub(crate) fn of_workers(&self) -> PartitionedGraph {
        let config = PartitionsConfig { host: Some("127.0.0.1".into()), ..PartitionsConfig::default() };
        PartitionedGraph::open(self.root.path().join("parts"), config).unwrap()
    }
}

fn meta(hash: String) -> PartitionMeta {
    PartitionMeta { hash, method: Method::Random, n_cut_edges: 0 }
}

//! The client of a partitioned graph: which process holds which partition, connections with retries and timeouts, and the
//! samplers and feature stores that split a request by owner and merge the responses in the caller's order.

pub(crate) mod colocated_worker;
pub(crate) mod connect;
pub(crate) mod edge_features;
pub(crate) mod features;
pub(crate) mod fetch_stats;
pub(crate) mod graph;
pub(crate) mod graph_info;
pub(crate) mod health;
pub(crate) mod hetero_sampler;
pub(crate) mod listed_rows;
pub(crate) mod node_keys;
pub(crate) mod partitions;
pub(crate) mod partitions_info;
pub(crate) mod peer;
pub(crate) mod question;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod row_requests;
pub(crate) mod sampler;

use kiln_graph::NodeId;

use crate::client::connect::{bad_array, fetch};
use crate::client::peer::Owner;
use crate::wire::proto::Array;
use crate::{DistGraph, Error, Result};

/// The key of the name of a node.
type Key = [u8; 16];

impl DistGraph {
    /// Returns the key of the name of each node of a type ([`kiln_partition::PartOfType::keys`]), by its position in the type.
    /// `None` if the partitions have none. Fetches the keys of the nodes that other processes hold, 16 bytes each.
    ///
    /// # Errors
    /// Returns [`Error::Server`] or [`Error::BadParts`] if a server is lost, or has other numbers of keys and nodes.
    pub fn node_keys(&self, node_type: usize) -> Result<Option<Vec<Key>>> {
        if !self.has_keys(node_type) {
            return Ok(None);
        }
        let book = self.books().of_type(node_type);
        let mut of_parts = Vec::with_capacity(book.n_parts());
        for part in 0..book.n_parts() {
            let n_owned = book.n_owned(part);
            let keys: Vec<Key> = match self.owner(part) {
                Owner::Local(held) => held.keys(node_type)?.as_chunks().0.to_vec(),
                Owner::Remote(peer) => {
                    let bytes = fetch(self.runtime()?, peer, Array::Keys, node_type)?;
                    if bytes.len() != size_of::<Key>() * n_owned {
                        return Err(bad_array(peer, &format!("{n_owned} keys of 16 bytes"), bytes.len()));
                    }
                    bytes.as_chunks().0.to_vec()
                }
            };
            of_parts.push(keys);
        }
        let key = |node: u32| {
            let place = book.place(NodeId(node))?;
            of_parts[place.part].get(place.row.index()).copied()
        };
        let keys: Option<_> = (0..book.n_nodes() as u32).map(key).collect();
        let reason =
            format!("the new ids or the keys of node type {node_type} are invalid: verify the partitions");
        Ok(Some(keys.ok_or(Error::BadParts { reason })?))
    }
}

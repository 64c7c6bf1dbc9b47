use kiln_graph::{NodeId, SharedArray};

/// The names of all nodes; empty if the nodes have no names.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `text` | `u8` (UTF-8) | all names, one after the other | byte |
/// | `ends` | `u32` | number of names | [`NodeId`]; the end of the node's name in `text` |
///
/// Both may be mapped files; cloning shares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNames {
    text: SharedArray<u8>,
    ends: SharedArray<u32>,
}

impl NodeNames {
    /// Copies names in the order of the node ids. An empty iterator stands for nodes without names.
    ///
    /// # Panics
    /// Panics if the names together are 4 GiB or longer.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for name in names {
            text.push_str(name);
            ends.push(u32::try_from(text.len()).expect("all names together should be shorter than 4 GiB"));
        }
        Self { text: text.into_bytes().into(), ends: ends.into() }
    }

    /// Creates names from existing arrays without a copy, in constant time; see the table on [`NodeNames`].
    pub(crate) fn from_arrays(text: SharedArray<u8>, ends: SharedArray<u32>) -> Self {
        Self { text, ends }
    }

    /// Returns all names, concatenated.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the end of each name in [`NodeNames::text`].
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Returns the name of a node, or `None` if the node or the whole set has no name, or if the file of the names is
    /// damaged, which [`format::verify`](crate::format::verify) detects.
    pub fn get(&self, node: NodeId) -> Option<&str> {
        let end = *self.ends.get(node.index())? as usize;
        let start = node.index().checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        std::str::from_utf8(self.text.get(start..end)?).ok()
    }

    /// Returns the number of names: the number of nodes, or 0 if the nodes have no names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the nodes have no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

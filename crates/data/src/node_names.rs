use kiln_graph::{NodeId, SharedArray};

/// The names of the nodes, or of none of them.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `text` | `u8` (UTF-8) | all names, one after the other | byte |
/// | `ends` | `u32` | number of names | [`NodeId`]; where the node's name ends in `text` |
///
/// Both may be mapped files; cloning shares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNames {
    text: SharedArray<u8>,
    ends: SharedArray<u32>,
}

impl NodeNames {
    /// Names in the order of the node ids. An empty iterator stands for nodes without names.
    ///
    /// # Panics
    /// When the names together are 4 GiB or longer.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for name in names {
            text.push_str(name);
            ends.push(u32::try_from(text.len()).expect("names should be shorter than 4 GiB"));
        }
        Self { text: text.into_bytes().into(), ends: ends.into() }
    }

    /// Names from arrays that exist already, in constant time: see the table on [`NodeNames`].
    pub(crate) fn from_arrays(text: SharedArray<u8>, ends: SharedArray<u32>) -> Self {
        Self { text, ends }
    }

    /// All names, one after the other.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Where each name ends.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The name of a node; `None` when the node, or the whole set, has no name, and where the file of the
    /// names is damaged ([`format::verify`](crate::format::verify)).
    pub fn get(&self, node: NodeId) -> Option<&str> {
        let end = *self.ends.get(node.index())? as usize;
        let start = node.index().checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        std::str::from_utf8(self.text.get(start..end)?).ok()
    }

    /// Number of names: the number of nodes, or 0.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the nodes have no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

use kiln_graph::NodeId;

/// The names of the nodes, or of none of them.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `text` | `u8` (UTF-8) | all names, one after the other | byte |
/// | `ends` | `u32` | number of names | [`NodeId`]; where the node's name ends in `text` |
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    text: String,
    ends: Vec<u32>,
}

impl Names {
    /// Names in the order of the node ids. An empty iterator stands for nodes without names.
    ///
    /// # Panics
    /// When the names together are 4 GiB or longer.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for name in names {
            all.text.push_str(name);
            all.ends.push(u32::try_from(all.text.len()).expect("names should be shorter than 4 GiB"));
        }
        all
    }

    /// The name of a node; `None` when the node, or the whole set, has no name.
    pub fn get(&self, node: NodeId) -> Option<&str> {
        let end = *self.ends.get(node.index())? as usize;
        let start = node.index().checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.text[start..end])
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

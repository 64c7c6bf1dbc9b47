/// The numbers of nodes or edges in the parts of a split that an import has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedSplit {
    /// The name of the node type, of the relation or of the task table.
    pub name: String,
    /// The number of items for training.
    pub n_train: u64,
    /// The number of items for validation.
    pub n_val: u64,
    /// The number of items for test.
    pub n_test: u64,
}

impl ImportedSplit {
    /// Returns the name and the number of items of each part.
    pub(crate) fn parts(&self) -> [(&'static str, u64); 3] {
        [("train", self.n_train), ("val", self.n_val), ("test", self.n_test)]
    }

    /// Returns a line with the sizes of the parts, and a note for each empty part. `noun` is that of an item.
    pub(crate) fn lines(&self, noun: &str) -> Vec<String> {
        let sizes = self.parts().map(|(part, n_items)| format!("{n_items} {part}")).join(", ");
        let mut lines = vec![format!("split of {}: {sizes}", self.name)];
        for (part, _) in self.parts().into_iter().filter(|(_, n_items)| *n_items == 0) {
            let name = &self.name;
            lines.push(format!(
                "note: no {noun} of `{name}` is in the {part} part: check the split and its column"
            ));
        }
        lines
    }
}

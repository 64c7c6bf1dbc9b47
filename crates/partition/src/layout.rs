use kiln_data::Layout;

/// What the layout of a data set determines about its partitions: the keys of the manifest.
pub(crate) trait PartLayout: Copy {
    /// Returns a key of the manifest for messages, such as `dim` or `node_types[2].dim`.
    fn key(self, list: &str, position: usize, name: &str) -> String;
}

impl PartLayout for Layout {
    fn key(self, list: &str, position: usize, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Numbered => format!("{list}[{position}].{name}"),
        }
    }
}

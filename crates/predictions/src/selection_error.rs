use std::path::PathBuf;

/// An error in the selection of the items or links to predict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemSelectionError {
    /// The test split is selected, and the data has none.
    #[error("the data has no test split: give --nodes all or a file of ids")]
    NoTestSplit,
    /// The sources of the test links are selected, and the data has none.
    #[error(
        "the data has no test links, whose sources --nodes test selects: give --nodes all, a file of ids, or --keys"
    )]
    NoTestLinks,
    /// The sources of the test links are selected, and the data is partitioned.
    #[error(
        "partitions have no test links, whose sources --nodes test selects: give --nodes all or a file of ids"
    )]
    NoTestLinksOfPartitions,
    /// Edges are selected by their ids, and the data is partitioned.
    #[error("partitions have no list of edges: use --data")]
    NoEdgesOfPartitions,
    /// The appended items are selected, and no rows were appended.
    #[error(
        "no rows were appended to the data, which --nodes new selects: give the result of `kiln data import --append` to --data, \
         or --nodes all"
    )]
    NoAppendedRows,
    /// The appended items are selected, and the appended rows have none of this type.
    #[error("the rows that were appended last have no node of this type: give --keys")]
    NoAppendedItems,
    /// The items without a target are selected, and the data has no targets of such items.
    #[error(
        "the data has no targets of these items, without which --nodes unlabelled selects: give --nodes all or a file of ids"
    )]
    NoTargets,
    /// The items without a target are selected, and there is none.
    #[error("all items of the data have a target: give --nodes all or a file of ids")]
    AllHaveTargets,
    /// The file of ids does not exist.
    #[error(
        "--nodes {}: there is no such file: expected test, all, new, unlabelled, or a file of ids, one per line",
        path.display()
    )]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// Nodes are selected by names, and have none.
    #[error("{flag} needs data whose nodes have names: select nodes by their ids")]
    NoNames {
        /// The flag that names the file.
        flag: &'static str,
    },
    /// No node has a name.
    #[error(
        "{}, line {line}: no node is named {name:?}{similar}: correct the line, or remove it",
        path.display()
    )]
    UnknownName {
        /// The file of names.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The name.
        name: String,
        /// The suggestion of a similar name in parentheses, or an empty text.
        similar: String,
    },
    /// A line of a file of pairs is not two names.
    #[error("{}, line {line}: expected two names and a tab between them", path.display())]
    NotNames {
        /// The file of pairs.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A pair has an id that no node of the type has.
    #[error(
        "{}: the {end} of pair {pair}, counted from 0, is {id}: expected an id below {n_nodes}",
        path.display()
    )]
    InvalidEnd {
        /// The file of pairs.
        path: PathBuf,
        /// The end of the link: `source` or `destination`.
        end: &'static str,
        /// The position of the pair, from 0.
        pair: usize,
        /// The id.
        id: u32,
        /// The number of nodes of the type.
        n_nodes: usize,
    },
}

impl ItemSelectionError {
    /// Returns true if the request of the user is wrong, and not the content of a file.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoTestSplit
                | Self::NoTestLinks
                | Self::NoTestLinksOfPartitions
                | Self::NoAppendedRows
                | Self::NoAppendedItems
                | Self::NoTargets
                | Self::AllHaveTargets
                | Self::NoFile { .. }
                | Self::NoNames { .. }
        )
    }
}

use std::fmt;
use std::path::PathBuf;

use kiln_store::counted;

/// Information from a reader that the user should know. A note is not an error: reading has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// An array could not be mapped with its stored element type or layout and was copied to memory.
    Converted {
        /// The path of the file.
        path: PathBuf,
        /// The stored elements, such as `4 elements of <i8`.
        from: String,
        /// The elements of the copy, and how to avoid the copy.
        to: String,
    },
    /// Two parts of the split share items, so that a score on one part includes items of the other.
    SplitsOverlap {
        /// What the items are: `node` or `graph`.
        item: &'static str,
        /// The names of the two parts, such as `train` and `test`.
        parts: [&'static str; 2],
        /// The number of items that are in both parts.
        n_items: usize,
    },
    /// Items occur more than once in a part of the split, and count as often as they occur.
    RepeatedItems {
        /// What the items are: `node` or `graph`.
        item: &'static str,
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The number of entries beyond the first of their item.
        n_repeated: usize,
        /// The number of entries of the part.
        n_all: usize,
    },
    /// Items of an evaluated part have classes that no training item has.
    UntrainedClasses {
        /// What the items are: `node` or `graph`.
        item: &'static str,
        /// The name of the part: `val` or `test`.
        part: &'static str,
        /// The number of these items.
        n_items: usize,
        /// The number of items of the part.
        n_all: usize,
        /// The first of these classes, at most 5.
        classes: Vec<usize>,
    },
    /// Nearly all items of an evaluated part have the same class.
    LargestClass {
        /// What the items are: `node` or `graph`.
        item: &'static str,
        /// The name of the part: `val` or `test`.
        part: &'static str,
        /// The class.
        class: usize,
        /// The number of items of the class.
        n_items: usize,
        /// The number of items of the part.
        n_all: usize,
    },
    /// Many nodes that may be drawn as destinations of negatives are no destination of a link or an edge.
    NeverDestinations {
        /// The number of these nodes.
        n_nodes: usize,
        /// The number of nodes that may be drawn.
        n_all: usize,
    },
    /// Links of an evaluation are edges of the graph that passes messages, or their reverses are.
    LinksInGraph {
        /// The name of the part: `val` or `test`.
        part: &'static str,
        /// The number of links that are edges.
        n_links: usize,
        /// The number of links whose reverse is an edge.
        n_reversed: usize,
    },
    /// Fixed negatives are the links that they belong to, which then rank below their own copies or tie with them.
    LinksAmongNegatives {
        /// The name of the part: `val` or `test`.
        part: &'static str,
        /// The number of these negatives.
        n_negatives: usize,
        /// The number of negatives of the part.
        n_all: usize,
    },
    /// Links are edges of another relation that passes messages, or have reverses in one that was not named as the reverse relation.
    LinksInRelation {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The name of the relation.
        relation: String,
        /// The number of links that are edges of the relation.
        n_repeated: usize,
        /// The number of links whose reverse is an edge of the relation.
        n_reversed: usize,
        /// The number of links of the part.
        n_all: usize,
    },
    /// A relation that was not named has the reverse of each edge of the relation of links, and is its reverse relation.
    ReverseRelation {
        /// The relation of the links.
        relation: String,
        /// The reverse relation.
        reverse: String,
    },
    /// The reverse of each edge was added.
    ReverseEdgesAdded {
        /// The reason for adding the reverse edges.
        reason: String,
    },
    /// The reverse edges that OGB's library adds to some sets were not added, because the set could not be identified.
    ReverseEdgesNotAdded {
        /// The folder's name, which does not identify an OGB set.
        name: String,
    },
    /// A file or folder was opened whose path is also the name of a built-in or synthetic set.
    HasNameOfDataset {
        /// The path of the file or folder.
        path: PathBuf,
        /// The name, which is also that of the set.
        name: String,
    },
    /// A note that is specific to one format.
    Other(String),
}

impl Note {
    /// Returns true for a note on a split of nodes or graphs ([`Split::notes`](crate::Split::notes)), which says nothing about a
    /// run on links.
    ///
    /// ```
    /// use kiln_data::Note;
    /// let overlap = Note::SplitsOverlap { item: "node", parts: ["train", "val"], n_items: 3 };
    /// assert!(overlap.is_on_split());
    /// ```
    pub fn is_on_split(&self) -> bool {
        matches!(
            self,
            Self::SplitsOverlap { .. }
                | Self::RepeatedItems { .. }
                | Self::UntrainedClasses { .. }
                | Self::LargestClass { .. }
        )
    }
}

/// Returns a share in percent, such as `12.5 %`.
fn share(count: usize, of: usize) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of.max(1) as f64)
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Converted { path, from, to } => write!(f, "{}: {from} were copied to {to}", path.display()),
            Self::SplitsOverlap { item, parts: [a, b], n_items } => write!(
                f,
                "the {a} and the {b} split share {}: scores on {b} do not measure unseen {item}s",
                counted(*n_items as u64, item)
            ),
            Self::RepeatedItems { item, part, n_repeated, n_all } => write!(
                f,
                "the {part} split lists {} again ({}): each counts as often as it occurs; remove the repetitions",
                counted(*n_repeated as u64, &format!("{item} id")),
                share(*n_repeated, *n_all)
            ),
            Self::LinksInGraph { part, n_links, n_reversed } => write!(
                f,
                "{n_links} links of the {part} split are edges of the graph that passes messages, and {n_reversed} \
                have a reverse edge there: scores on {part} do not measure unseen links"
            ),
            Self::LinksAmongNegatives { part, n_negatives, n_all } => write!(
                f,
                "{} of the {part} split ({}) are the link that they belong to, which ties with its own copy: remove them",
                counted(*n_negatives as u64, "fixed negative"),
                share(*n_negatives, *n_all)
            ),
            Self::LinksInRelation { part, relation, n_repeated: 0, n_reversed, n_all } => write!(
                f,
                "{n_reversed} links of the {part} split ({}) have a reverse edge in the relation `{relation}`, which passes \
                messages and tells the links to the model: name it as the reverse relation, or remove it",
                share(*n_reversed, *n_all)
            ),
            Self::LinksInRelation { part, relation, n_repeated, n_reversed, n_all } => {
                write!(
                    f,
                    "{n_repeated} links of the {part} split ({}) are edges of the relation `{relation}`",
                    share(*n_repeated, *n_all)
                )?;
                if *n_reversed != 0 {
                    write!(f, ", and {n_reversed} have a reverse edge in it")?;
                }
                f.write_str(
                    ": it passes messages and tells the links to the model: remove it, or the repeated edges",
                )
            }
            Self::ReverseRelation { relation, reverse } => write!(
                f,
                "`{reverse}` has the reverse of each edge of `{relation}`, so it is the reverse relation of the links, whose \
                reverses pass messages only where the links do"
            ),
            Self::UntrainedClasses { item, part, n_items, n_all, classes } => {
                let classes = classes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                write!(
                    f,
                    "the {part} split has {} ({}) of classes that no training {item} has ({classes}): a model cannot \
                    predict them",
                    counted(*n_items as u64, item),
                    share(*n_items, *n_all)
                )
            }
            Self::LargestClass { item, part, class, n_items, n_all } => write!(
                f,
                "{} of the {part} split have class {class}: predicting it for all {item}s has this accuracy; use a metric \
                that weighs classes equally, such as f1-macro",
                share(*n_items, *n_all)
            ),
            Self::NeverDestinations { n_nodes, n_all } => write!(
                f,
                "{n_nodes} of the {n_all} nodes ({}) that are drawn as destinations of negatives are never a destination: a \
                model may tell negatives by that alone; draw them by degree, or split a relation between the types of the links",
                share(*n_nodes, *n_all)
            ),
            Self::ReverseEdgesAdded { reason } => write!(f, "the reverse of each edge was added: {reason}"),
            Self::ReverseEdgesNotAdded { name } => write!(
                f,
                "no reverse edges were added: {name} is not the name of a known OGB set; if it is ogbn-products, \
                add them (--symmetrize of `kiln train` and `kiln data convert`)"
            ),
            Self::HasNameOfDataset { path, name } => {
                let kind = if path.is_dir() { "folder" } else { "file" };
                write!(
                    f,
                    "the {kind} `{}` is used; the built-in set has the same name: rename the {kind}, or work in another \
                    folder, to use {name}",
                    path.display()
                )
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

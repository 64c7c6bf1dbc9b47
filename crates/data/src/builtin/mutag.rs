use crate::readers::files::Files;
use crate::{GraphDataset, Result, tu};

static EMBEDDED: [(&str, &[u8]); 5] = embedded![
    "mutag":
    "MUTAG_A.txt.gz",
    "MUTAG_edge_labels.txt.gz",
    "MUTAG_graph_indicator.txt.gz",
    "MUTAG_graph_labels.txt.gz",
    "MUTAG_node_labels.txt.gz",
];

/// Returns the built-in set `mutag`: 188 molecules, of which 125 are mutagenic to a bacterium (class `1`) and 63 are
/// not (class `-1`).
///
/// Debnath, Lopez de Compadre, Debnath, Shusterman, Hansch, "Structure-activity relationship of mutagenic
/// aromatic and heteroaromatic nitro compounds", Journal of Medicinal Chemistry 34(2), 1991, in the version of the TU
/// collection.
///
/// - *Graphs*: a node is an atom, an edge a bond, in both directions: 3,371 nodes and 7,442 edges.
/// - *Node labels*: the 7 kinds of atoms; hydrogen atoms are omitted. There are no features.
/// - *Edge types*: the 4 kinds of bonds.
///
/// The set is embedded in the program (22 kB). `crates/data/datasets/mutag/README.md` describes its source.
///
/// # Errors
/// Returns an error only if the embedded files are damaged; see [`tu::read`].
pub fn mutag() -> Result<GraphDataset> {
    let mut data = tu::load(Files::Embedded(&EMBEDDED), "MUTAG")?;
    data.name = "mutag".to_owned();
    data.node_label_names = ["C", "N", "O", "F", "I", "Cl", "Br"].map(str::to_owned).into();
    data.edge_type_names = ["aromatic", "single", "double", "triple"].map(str::to_owned).into();
    Ok(data)
}

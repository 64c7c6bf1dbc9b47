//! The reader of OGB folders with several node types or edge types, such as `ogbn_mag`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_feature::FeatureStore;
use kiln_graph::{NodeTypes, Relations};
use kiln_store::Error as StoreError;
use kiln_store::paths::{find, is_there, required};

use super::heterogeneous_raw::{self, LabelsOfType, RawTypes, flagged_types};
use super::{OF_SEVERAL_TYPES, read_split, the_split};
use crate::check::{Place, check_split};
use crate::limits::MEMORY_BYTES;
use crate::readers::name_of;
use crate::readers::relation_files::check_offsets;
use crate::readers::stored::read_features;
use crate::{Dataset, DatasetTargets, Error, Note, Result};

/// The files that state which node types have a split.
const HAS_SPLIT: [&str; 2] = ["nodetype-has-split.csv.gz", "nodetype-has-split.csv"];

/// The way to choose a split scheme.
const ONE_SCHEME: &str = "and remove the others from the folder";

/// Opens an OGB folder with several node types, such as `ogbn_mag`. The text files are `.csv.gz` or `.csv`:
///
/// | file | content |
/// |---|---|
/// | `raw/num-node-dict` | a line with the names of the node types, and a line with their numbers of nodes |
/// | `raw/triplet-type-list` | a line `SOURCE,RELATION,DESTINATION` for each relation |
/// | `raw/relations/SOURCE___RELATION___DESTINATION/edge` | a line `src,dst` for each edge of the relation |
/// | `…/num-edge-list` | one line: the number of edges of the relation |
/// | `raw/node-feat/TYPE/node-feat` | a line of numbers for each node of the type; a type may have no features |
/// | `raw/nodetype-has-label` | a line with the names of node types, and a line with `True` or `False` for each |
/// | `raw/node-label/TYPE/node-label` | a line for each node of the type with labels, as for [`ogb::open`](super::open) |
/// | `split/SCHEME/nodetype-has-split` | as `nodetype-has-label`: the type with labels has a split |
/// | `split/SCHEME/TYPE/{train,valid,test}` | a line for each node of the part |
///
/// Instead of the text files in `raw`, the archives `num_nodes_dict.npz`, `num_edges_dict.npz`, `edge_index_dict.npz`,
/// `node_feat_dict.npz` and `node-label.npz` have an array for each node type, or for each relation, which is named
/// `SOURCE___RELATION___DESTINATION`.
///
/// Everything is read into memory. The limit for edges holds for compressed text (`.csv.gz`), whose size does not
/// follow from that of its file. The arrays of an archive are read as a whole, and so is text that is not compressed:
/// neither counts for the limit, so open archives from a trusted source only. Ids count from 0 within their type. Types
/// and relations are in the order of their names, as in OGB's library. The name of a relation is the part `RELATION`,
/// or `SOURCE:RELATION:DESTINATION` if this part occurs several times. The reverse of relations is not added: OGB's
/// library does not add it to these sets either. A folder without labels of nodes, such as `ogbl_biokg`, is a set
/// without targets, which a note states. Edge features, years, types of relations (`edge_reltype`) and
/// other files of `raw` are not read, which a note states.
///
/// # Errors
/// Returns [`Error::WrongKind`] for an OGB folder with one node type, [`kiln_store::Error::Missing`] if the folder lacks
/// a file or has several split schemes, [`Error::Unsupported`] for labels of several node types or a pickled split,
/// [`kiln_store::Error::Metadata`] or [`kiln_store::Error::BadLine`] for invalid names and lines,
/// [`kiln_store::Error::Inconsistent`], [`kiln_store::Error::BadValue`] or [`kiln_store::Error::Npy`] for invalid counts and
/// arrays, [`Error::EdgeListTooLarge`] if edges in `.csv.gz` files would take more than 1 GiB, and [`Error::Memory`] if the offsets
/// of nodes that no file confirms would take more than 1 GiB and more than all features, as for
/// [`graphbolt::open_heterogeneous`](crate::graphbolt::open_heterogeneous).
pub fn open_heterogeneous(folder: impl AsRef<Path>) -> Result<Dataset> {
    open_heterogeneous_within(folder, MEMORY_BYTES)
}

/// Opens a folder as [`open_heterogeneous`] does, with another limit for edges in compressed text and for nodes without features. Archives are
/// not limited.
///
/// # Errors
/// Returns the errors of [`open_heterogeneous`].
pub fn open_heterogeneous_within(folder: impl AsRef<Path>, memory_bytes: u64) -> Result<Dataset> {
    let folder = folder.as_ref();
    let raw_folder = folder.join("raw");
    if !has_types(folder) && super::is_one(folder) {
        return Err(Error::WrongKind {
            path: folder.to_owned(),
            kind: "an OGB folder with one node type (open it with Dataset::open or ogb::open)".into(),
            expected: "a heterogeneous set",
        });
    }
    let mut notes = Vec::new();
    let RawTypes { stated_in, types, relations, features: sources, labels } =
        match is_there(&raw_folder.join(heterogeneous_raw::EDGE_ARCHIVE)) {
            true => heterogeneous_raw::read_npz(&raw_folder, &mut notes)?,
            false => heterogeneous_raw::read_text(&raw_folder, &mut notes)?,
        };
    let types = Arc::new(types);
    let mut features = Vec::<Option<Arc<dyn FeatureStore>>>::new();
    for (node_type, source) in sources.iter().enumerate() {
        let n_nodes = types.range(node_type).len();
        let rows = source.as_ref().map(|source| read_features(source, n_nodes, &mut notes)).transpose()?;
        features.push(rows.map(|rows| Arc::new(rows) as Arc<dyn FeatureStore>));
    }
    let dst_types: Vec<usize> = relations.iter().map(|relation| relation.dst_type).collect();
    let labelled = labels.as_ref().map(|labels| labels.node_type);
    let is_confirmed: Vec<bool> = features
        .iter()
        .enumerate()
        .map(|(node_type, features)| features.is_some() || labelled == Some(node_type))
        .collect();
    check_offsets(&stated_in, &types, &dst_types, &is_confirmed, &features, memory_bytes)?;
    let (mut graphs, mut left_bytes) = (Vec::new(), memory_bytes);
    for relation in relations {
        graphs.push(relation.read(&types, &mut left_bytes, &mut notes)?);
    }
    let graph = Arc::new(Relations::new(types.clone(), graphs)?);
    let targets = match labels {
        Some(LabelsOfType { node_type, values }) => {
            let nodes = types.range(node_type);
            let split_folder = split_of(&the_split(folder, ONE_SCHEME)?, &types, node_type)?;
            let split = read_split(&split_folder, nodes.len(), &mut notes)?;
            check_split(Place::Set(&split_folder), &split, &values, &mut notes)?;
            Some(DatasetTargets::new(node_type, values, split.shifted(nodes.start)))
        }
        None => {
            let raw = raw_folder.display();
            notes.push(Note::Other(format!("no node type in {raw} has labels: the set has no targets")));
            None
        }
    };
    Ok(Dataset { targets, notes, ..Dataset::heterogeneous(name_of(folder), graph, features) })
}

/// Returns true if an OGB folder has several node types or edge types.
pub(crate) fn has_types(folder: &Path) -> bool {
    find(&folder.join("raw"), &OF_SEVERAL_TYPES).is_some()
}

/// Returns the folder with the split of the nodes of a type, which must be the only type with a split.
fn split_of(scheme: &Path, types: &NodeTypes, node_type: usize) -> Result<PathBuf> {
    let pickled = scheme.join("split_dict.pt");
    if is_there(&pickled) && find(scheme, &HAS_SPLIT).is_none() {
        let what = "a pickled split, which only Python can read,".into();
        let instead = "save it as nodetype-has-split.csv.gz and TYPE/train.csv.gz, valid.csv.gz and \
                       test.csv.gz, one node per line"
            .into();
        return Err(Error::Unsupported { path: pickled, what, instead });
    }
    let path = required(scheme, &HAS_SPLIT, "the node types with a split")?;
    let name = &types.names()[node_type];
    let found = flagged_types(&path, types)?;
    if found != [node_type] {
        let found = found
            .first()
            .map_or("none", |&other| if other == node_type { "several" } else { &types.names()[other] });
        let (key, expected) =
            ("the node type with a split".into(), format!("`{name}`, the type with labels"));
        return Err(StoreError::Metadata { path, key, expected, found: found.to_owned() }.into());
    }
    Ok(scheme.join(name))
}

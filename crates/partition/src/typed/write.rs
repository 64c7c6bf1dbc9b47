use std::path::Path;
use std::sync::Arc;

use kiln_data::graph_folder::{FEATURES, check_class_names, class_names_to_write, numbered};
use kiln_data::{Dataset, DatasetTargets, NodeNames, Split};
use kiln_feature::{Labels, Targets};
use kiln_graph::{NodeId, Relation};
use kiln_store::array_folder::{ElementType, FolderWriter};
use kiln_store::name_key;

use super::book::TypedPartitionBook;
use super::manifest::{KEY_BYTES, KEYS, Manifest, RelationEntry, TypeEntry, VERSION};
use crate::hotness::{CacheConfig, CacheList, Presampler};
use crate::manifest::{CACHE, FILE_NAME};
use crate::rows::put_rows;
use crate::write::{labels_expected, put_cache, put_edges, put_split, written};
use crate::{Error, PartitionMeta, Result, WriteReport, part_dir};

/// Writes the partitions of a heterogeneous set to a new folder. Each is a subfolder, `part0` and so on, that opens as a
/// [`TypedPart`](crate::TypedPart). If `cache` is given, each also stores the remote feature rows, of all types, that an epoch
/// of its training nodes reads most often.
///
/// A set that has links and no class labels is partitioned without labels; the links themselves are not in the partitions.
///
/// The folder is written atomically, like that of [`kiln_data::format::write`]. The same set and book give identical
/// files.
///
/// # Memory
/// In addition to the set and the book: 4 bytes per node, and with a cache 12 more, as in
/// [`write_parts`](crate::write_parts). Mapped arrays are streamed.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`], before anything is written, if the folder exists and is not empty;
/// [`Error::BadParameter`] if the set has neither class labels nor links, if its parts or the book do not have the numbers of
/// nodes of its types, or if a node of the split is not of the type with labels; [`Error::UnsortedNeighbors`] if the set has
/// links and the neighbours in their relation or its reverse do not ascend, or in one that may be the reverse if the links name
/// none; [`Error::BadBook`] if the book is invalid; [`Error::Data`] if the links are not those of the graph; [`Error::Graph`] or
/// [`Error::Feature`] if the set is damaged; and [`Error::Store`] if the number of columns or classes is invalid, or if files
/// cannot be written.
pub fn write_typed_parts(
    data: &Dataset,
    book: &TypedPartitionBook,
    meta: &PartitionMeta,
    cache: Option<&CacheConfig>,
    out: impl AsRef<Path>,
) -> Result<Vec<WriteReport>> {
    let targets = labels_of(data)?;
    check_set(data, book, &targets, out.as_ref())?;
    if let Some(cache) = cache {
        cache.check()?;
    }
    let whole = FolderWriter::create(out)?;
    data.graph.validate()?;
    check_sorted(data)?;
    let n_types = data.graph.types().n_types();
    let rows = (0..n_types).map(|node_type| book.of_type(node_type).old_ids()).collect::<Result<_>>()?;
    let presampler = cache.map(|config| Presampler::of_types(data, config)).transpose()?;
    let set = Set { data, targets, book, meta, rows };
    let mut written = Vec::with_capacity(book.n_parts());
    for part in 0..book.n_parts() {
        let list = match &presampler {
            Some(presampler) => set.cache_list(presampler, part)?,
            None => CacheList::default(),
        };
        let folder = FolderWriter::create(part_dir(whole.folder(), part))?;
        written.push(set.write_part(part, &list, folder)?);
    }
    whole.commit()?;
    Ok(written)
}

/// The inputs from which partitions are written.
struct Set<'a> {
    data: &'a Dataset,
    targets: LabelsOfType<'a>,
    book: &'a TypedPartitionBook,
    meta: &'a PartitionMeta,
    /// The nodes of each type, counted from 0 within the type, in the order of their new ids.
    rows: Vec<Vec<NodeId>>,
}

impl Set<'_> {
    /// Returns the nodes of a type that a partition owns, counted from 0 within the type.
    fn rows(&self, node_type: usize, part: usize) -> &[NodeId] {
        let owned = self.book.of_type(node_type).owned(part);
        &self.rows[node_type][owned.start as usize..owned.end as usize]
    }

    fn cache_list(&self, presampler: &Presampler<'_>, part: usize) -> Result<CacheList> {
        let types = self.data.graph.types();
        let is_own = |node| self.book.place(node).is_some_and(|place| place.part == part);
        let has_features =
            |node| types.type_of(node).is_some_and(|node_type| self.data.features[node_type].is_some());
        presampler.cache_list(is_own, has_features)
    }

    fn write_part(&self, part: usize, list: &CacheList, mut folder: FolderWriter) -> Result<WriteReport> {
        let Self { data, targets, book, .. } = self;
        let types = data.graph.types();
        let mut n_owned = 0;
        for (node_type, features) in data.features.iter().enumerate() {
            let (rows, first) = (self.rows(node_type, part), types.range(node_type).start);
            let name = |file| numbered(file, node_type);
            folder.put(name("new_ids.npy"), ElementType::U32, book.of_type(node_type).new_ids())?;
            let nodes: Vec<NodeId> = rows.iter().map(|row| NodeId(first + row.0)).collect();
            folder.put(name("old_ids.npy"), ElementType::U32, &nodes)?;
            if let Some(features) = features {
                put_rows(&mut folder, &FEATURES.of_type(node_type), &**features, rows)?;
                let list = list.within(types.range(node_type));
                let files = CACHE.of_type(node_type);
                put_cache(&mut folder, &list, &**features, &files, |file| name(file).into())?;
            } else if let Some(names) = names_of_rows(data, node_type) {
                let mut keys = folder.rows(name(KEYS), ElementType::U8, KEY_BYTES)?;
                for row in rows {
                    keys.push(&name_key(names.get(*row).unwrap_or_default()))?;
                }
                folder.add(keys)?;
            }
            n_owned += rows.len();
        }
        for (position, relation) in data.graph.iter().enumerate() {
            let rows = self.rows(relation.dst_type, part);
            put_edges(&mut folder, &relation.graph, rows, |file| numbered(file, position).into())?;
        }
        folder.put("labels.npy", ElementType::I32, targets.labels.as_slice())?;
        put_split(&mut folder, &targets.split)?;
        let manifest = Manifest { files: folder.entries().clone(), ..self.manifest(part) };
        folder.commit_with(FILE_NAME, &manifest)?;
        Ok(written(&manifest.files, n_owned, list))
    }

    /// Returns the manifest of a partition, without files.
    fn manifest(&self, part: usize) -> Manifest {
        let Self { data, targets, book, meta, .. } = self;
        let of_type = |(position, name): (usize, &String)| TypeEntry {
            name: name.clone(),
            n_nodes: book.of_type(position).n_nodes(),
            dim: data.features[position].as_ref().map(|features| features.dim()),
            offsets: book.of_type(position).offsets().to_vec(),
        };
        let relations = data.graph.schema().relations().iter();
        let has_keys = (0..data.features.len()).any(|node_type| names_of_rows(data, node_type).is_some());
        Manifest {
            format: if has_keys { VERSION } else { 1 },
            name: data.name.clone(),
            hash: meta.hash.clone(),
            node_types: data.graph.types().names().iter().enumerate().map(of_type).collect(),
            relations: relations
                .map(|relation| RelationEntry {
                    name: relation.name.clone(),
                    src_type: relation.src_type,
                    dst_type: relation.dst_type,
                    n_edges: relation.n_edges,
                })
                .collect(),
            target_type: targets.node_type,
            n_classes: targets.labels.n_classes(),
            class_names: targets.class_names(),
            method: meta.method,
            n_cut_edges: meta.n_cut_edges,
            part,
            files: Default::default(),
        }
    }
}

/// Returns the names of the nodes of a type without features, by which a model finds their trained rows; `None` if there are none.
fn names_of_rows(data: &Dataset, node_type: usize) -> Option<&NodeNames> {
    let names = data.names.get(node_type).filter(|names| !names.is_empty())?;
    data.features[node_type].is_none().then_some(names)
}

/// The labels of the nodes of one type, and their split.
struct LabelsOfType<'a> {
    node_type: usize,
    labels: Arc<Labels>,
    split: Split,
    names: &'a [String],
}

impl LabelsOfType<'_> {
    /// Returns the names of the classes for the manifest.
    fn class_names(&self) -> Vec<String> {
        class_names_to_write(self.names, self.labels.n_classes())
    }
}

/// Returns the class labels of a set. Those of a set with links and other targets, or none, are no class for each node of the
/// first type, because each partition has labels.
fn labels_of(data: &Dataset) -> Result<LabelsOfType<'_>> {
    let targets = data.targets.as_ref();
    match targets.map(|targets| (targets, &targets.values)) {
        Some((DatasetTargets { node_type, split, class_names, .. }, Targets::Classes(labels))) => {
            let (labels, split) = (Arc::clone(labels), split.clone());
            Ok(LabelsOfType { node_type: *node_type, labels, split, names: class_names })
        }
        _ if data.links.is_some() => {
            let n_nodes = data.graph.types().range(0).len();
            let labels = Arc::new(Labels::new(vec![-1; n_nodes], 0));
            Ok(LabelsOfType { node_type: 0, labels, split: Split::default(), names: &[] })
        }
        Some((_, values)) => Err(labels_expected(values.kind())),
        None => Err(labels_expected("none")),
    }
}

/// Checks that the neighbours ascend in the relations from which training steps exclude edges: the relation of the links and its
/// reverse. If the links name none, a run may name any relation between their types in the other order.
fn check_sorted(data: &Dataset) -> Result<()> {
    let Some(links) = &data.links else { return Ok(()) };
    links.check(data.graph.schema())?;
    let of_links = data.graph.relation(links.relation);
    let is_excluded = |position: usize, relation: &Relation| {
        let may_be_reverse = (relation.src_type, relation.dst_type) == (of_links.dst_type, of_links.src_type);
        position == links.relation || links.reverse.map_or(may_be_reverse, |reverse| position == reverse)
    };
    let mut relations = data.graph.iter().enumerate();
    match relations
        .all(|(position, relation)| !is_excluded(position, relation) || relation.graph.has_sorted_neighbors())
    {
        true => Ok(()),
        false => Err(Error::UnsortedNeighbors),
    }
}

/// Checks that the parts of a set and the book are consistent.
fn check_set(
    data: &Dataset,
    book: &TypedPartitionBook,
    targets: &LabelsOfType<'_>,
    out: &Path,
) -> Result<()> {
    let (types, labels) = (data.graph.types(), &targets.labels);
    let require = |what, expected: usize, got: usize| match expected == got {
        true => Ok(()),
        false => Err(Error::BadParameter { what, expected: expected.to_string(), got: got.to_string() }),
    };
    require("the number of node types in the partition book", types.n_types(), book.types().n_types())?;
    require("the number of node types with or without features", types.n_types(), data.features.len())?;
    for (node_type, features) in data.features.iter().enumerate() {
        let n_nodes = types.range(node_type).len();
        let of_type = book.of_type(node_type);
        require("the number of nodes of a type in the partition book", n_nodes, of_type.n_nodes())?;
        let n_rows = features.as_ref().map_or(n_nodes, |features| features.n_rows());
        require("the number of feature rows of a node type", n_nodes, n_rows)?;
    }
    let Some(nodes) = (targets.node_type < types.n_types()).then(|| types.range(targets.node_type)) else {
        let expected = format!("below {}, the number of node types", types.n_types());
        let got = targets.node_type.to_string();
        return Err(Error::BadParameter { what: "the node type with labels", expected, got });
    };
    require("the number of labels", nodes.len(), labels.len())?;
    let mut split = targets.split.parts().into_iter().flat_map(|(_, nodes)| nodes.iter());
    if let Some(node) = split.find(|node| !nodes.contains(&node.0)) {
        let expected = format!("a node of the type with labels, which are {nodes:?}");
        return Err(Error::BadParameter { what: "a node of the split", expected, got: node.0.to_string() });
    }
    Ok(check_class_names(out, None, labels.n_classes(), &targets.class_names())?)
}

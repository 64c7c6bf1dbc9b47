//! An opened folder in the kiln format: its manifest and its mapped arrays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_graph::{Csc, Relation, Relations};
use kiln_store::array_folder::{ArrayFolder, bad_key};

use super::attachment;
use super::contents::{Contents, TargetContents, TimesEntry};
use super::edges_by_time;
use super::location::path_in;
use super::manifest::Manifest;
use super::numbered_manifest::NumberedManifest;
use super::plain_manifest::PlainManifest;
use crate::graph_folder::{
    FEATURES, NODE_TIMES, TaskFiles, class_names_of, read_csc, read_link_targets, read_link_values,
    read_rows, read_split, read_targets,
};
use crate::ignored_files::{is_data, note_unread_files};
use crate::layout::Layout;
use crate::{Dataset, DatasetLinks, DatasetTargets, DatasetTimes, Error, NodeNames, Note, Result, TaskTable};

/// A set in the kiln format. The headers and lengths of its files match the manifest; values are not checked.
#[derive(Debug)]
pub(super) struct Set {
    folder: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) arrays: ArrayFolder,
}

impl Set {
    /// Reads the manifest and maps each file.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        let arrays = ArrayFolder::open(&path_in(folder), manifest.files())?;
        Ok(Self { folder: folder.to_owned(), manifest, arrays })
    }

    /// Returns the manifest of a homogeneous set, which may be a graph without node data.
    pub(super) fn plain(&self) -> Result<&PlainManifest> {
        match &self.manifest {
            Manifest::Plain(manifest) => Ok(manifest),
            Manifest::Numbered(_) => Err(Error::WrongKind {
                path: self.folder.clone(),
                kind: "a heterogeneous set (open it with format::open)".into(),
                expected: "a homogeneous set, with nodes of one type",
            }),
        }
    }

    /// Returns the topology of a homogeneous set, which may be a graph without node data.
    pub(super) fn csc(&self) -> Result<Csc> {
        self.plain()?;
        read_csc(&self.arrays, Layout::Plain, 0)
    }

    /// Returns the set, or an error for a graph without node data.
    pub(super) fn dataset(&self) -> Result<Dataset> {
        let (layout, graph, contents) = match &self.manifest {
            Manifest::Plain(manifest) => {
                let contents = manifest.contents().ok_or_else(|| self.no_node_data())?;
                (Layout::Plain, Relations::of_graph(read_csc(&self.arrays, Layout::Plain, 0)?), contents)
            }
            Manifest::Numbered(manifest) => {
                let graph = self.relations(manifest)?;
                let contents = manifest.contents(&graph)?;
                (Layout::Numbered, graph, contents)
            }
        };
        let Contents {
            name,
            dims,
            feature_columns,
            targets,
            links,
            tasks,
            link_outputs,
            edge_type_names,
            first_new,
            times,
            preparation,
        } = contents;
        let arrays = &self.arrays;
        let graph_types = graph.types().n_types();
        let mut features = Vec::new();
        let mut names = Vec::new();
        for (position, dim) in dims.into_iter().enumerate() {
            let rows = dim.map(|dim| read_rows(arrays, &layout.rows(&FEATURES, position), dim));
            features.push(rows.transpose()?);
            names.push(Arc::new(self.names(layout, position)?));
        }
        let orders = match &self.manifest {
            Manifest::Plain(manifest) => &manifest.orders,
            Manifest::Numbered(manifest) => &manifest.orders,
        };
        let mut times = self.times(times, layout, graph_types)?;
        times.orders = edges_by_time::open(arrays, orders, layout, &graph, &times)?;
        let links = match links {
            Some((relation, reverse)) => match read_link_targets(|name| arrays.array(name))? {
                Some(targets) => {
                    let targets = Arc::new(read_link_values(arrays, targets, link_outputs)?);
                    Some(DatasetLinks { relation, reverse, targets })
                }
                None => None,
            },
            None => None,
        };
        Ok(Dataset {
            name,
            graph: Arc::new(graph),
            features,
            feature_columns,
            edge_type_names,
            targets: targets.map(|targets| self.targets(targets)).transpose()?,
            links,
            tasks: self.tasks(tasks)?,
            names,
            first_new,
            times,
            preparation,
            notes: self.notes()?,
            layout,
        })
    }

    /// Returns a note about the arrays and tables in the folder that the manifest does not list.
    pub(super) fn notes(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        let files = self.manifest.files();
        note_unread_files(&self.folder, |name| is_data(name) && !files.contains_key(name), &mut notes)?;
        Ok(notes)
    }

    fn no_node_data(&self) -> Error {
        Error::WrongKind {
            path: self.folder.clone(),
            kind: "a graph without features, labels and split (open it with format::open_graph)".into(),
            expected: "a node classification set",
        }
    }

    fn relations(&self, manifest: &NumberedManifest) -> Result<Relations> {
        let path = path_in(&self.folder);
        let types = manifest.types(&path)?;
        let mut relations = Vec::new();
        for (position, relation) in manifest.relations.iter().enumerate() {
            let graph = Arc::new(read_csc(&self.arrays, Layout::Numbered, position)?);
            let [src_type, dst_type] = manifest.types_of(&path, position)?;
            relations.push(Relation { name: relation.name.clone(), src_type, dst_type, graph });
        }
        let bad = |error| bad_key(&path, "relations", "at most 256 with different names", error);
        Ok(Relations::new(types, relations).map_err(bad)?)
    }

    fn names(&self, layout: Layout, position: usize) -> Result<NodeNames> {
        let Some(ends) = self.arrays.optional(&layout.file("names_ends.npy", position))? else {
            return Ok(NodeNames::default());
        };
        let text = self.arrays.values(&layout.file("names_text.npy", position))?;
        Ok(NodeNames::from_arrays(text, ends))
    }

    fn times(&self, entry: TimesEntry, layout: Layout, n_types: usize) -> Result<DatasetTimes> {
        let mut nodes = Vec::with_capacity(n_types);
        for position in 0..n_types {
            nodes.push(self.arrays.optional(&layout.file(NODE_TIMES, position))?);
        }
        Ok(entry.with_nodes(nodes))
    }

    fn targets(&self, targets: TargetContents) -> Result<DatasetTargets> {
        let TargetContents { node_type, n_outputs, class_names } = targets;
        Ok(DatasetTargets {
            node_type,
            values: read_targets(&self.arrays, n_outputs)?,
            split: read_split(&self.arrays)?,
            class_names: class_names_of(class_names, n_outputs),
        })
    }

    fn tasks(&self, tasks: Vec<(String, TargetContents)>) -> Result<Vec<TaskTable>> {
        let tables = tasks.into_iter().enumerate().map(|(position, (name, targets))| {
            TaskFiles::new(position).read(&self.arrays, name, targets.node_type, targets.class_names)
        });
        tables.collect()
    }

    /// Returns the number of arrays and attachments.
    pub(super) fn n_files(&self) -> usize {
        match &self.manifest {
            Manifest::Plain(manifest) => manifest.files.len(),
            Manifest::Numbered(manifest) => manifest.files.len() + manifest.attachments.len(),
        }
    }

    /// Compares the hashes of all files with the manifest.
    pub(super) fn verify_hashes(&self) -> Result<()> {
        self.arrays.verify_hashes()?;
        match &self.manifest {
            Manifest::Plain(_) => Ok(()),
            Manifest::Numbered(manifest) => attachment::verify(&self.folder, &manifest.attachments),
        }
    }
}

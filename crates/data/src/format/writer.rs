use std::path::Path;

use kiln_feature::FeatureColumn;
use kiln_graph::{EdgeColumns, NodeTypes};
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter, bad_entry};

use super::attachment::{self, check_name};
use super::contents::TimesEntry;
use super::links_entry::{LinkTargetsEntry, LinksEntry};
use super::location::path_in;
use super::numbered_manifest::{NumberedManifest, RelationEntry};
use super::tasks_entry::TaskEntry;
use crate::convert::{ConvertOptions, ConvertReport, CscRows, EdgeSource, write_csc};
use crate::error::require;
use crate::graph_folder::{
    FEATURES, LABELS, LINK_FILES, LINK_VALUES, NODE_TIMES, TARGETS, TaskFiles, check_class_names,
    class_names_to_write, numbered,
};
use crate::{Result, TimeKind, TimeSplit};

/// Writes a heterogeneous set in the kiln format part by part, for sets that do not fit in memory. The folder appears when
/// it is committed; without a commit, all written files are removed.
///
/// ```
/// use kiln_data::format::{self, SetWriter};
/// use kiln_graph::{EdgeColumns, NodeTypes};
/// use kiln_store::array_folder::{ElementType, FolderWriter};
/// let root = tempfile::tempdir()?;
/// let types = NodeTypes::new([("user", 2), ("item", 1)])?;
/// let mut set = SetWriter::new(FolderWriter::create(root.path().join("set"))?, "shop", &types);
/// let mut rows = set.feature_rows(0, ElementType::F32, 2)?;
/// rows.push(&[0.0_f32, 0.5])?;
/// rows.push(&[1.0_f32, 1.5])?;
/// set.add_features(0, rows, 2)?;
/// set.commit()?;
/// assert_eq!(format::open(root.path().join("set"))?.dims(), [Some(2), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "call .commit() to write the manifest"]
pub struct SetWriter {
    set: FolderWriter,
    types: NodeTypes,
    manifest: NumberedManifest,
}

/// The arrays of the targets of a node type and of their split, which a [`SetWriter`] starts and finishes.
#[derive(Debug)]
pub struct TargetWriters {
    /// The class of each node (`i32`), or its target values: `u8` for several labels, `f32` for regression.
    pub values: ArrayWriter,
    /// The nodes for training, validation and test, as node ids of the graph (`u32`).
    pub split: [ArrayWriter; 3],
}

/// The arrays of the links of a relation that have targets, which a [`SetWriter`] starts and finishes.
#[derive(Debug)]
pub struct LinkWriters {
    /// The source and the destination of each link, as node ids of the graph (`u32`).
    pub ends: [ArrayWriter; 2],
    /// The class of each link (`i32`), or its target values: `u8` for several labels, `f32` for regression.
    pub values: ArrayWriter,
    /// The feature rows of the links; `None` if they have none.
    pub features: Option<ArrayWriter>,
    /// The time of each link (`i64`); `None` if they have none.
    pub times: Option<ArrayWriter>,
    /// The positions of the links for training, validation and test (`u32`).
    pub split: [ArrayWriter; 3],
}

/// The arrays of a task table, which a [`SetWriter`] starts and finishes.
#[derive(Debug)]
pub struct TaskWriters {
    /// The node of each row, as a node id of the graph (`u32`).
    pub nodes: ArrayWriter,
    /// The time of each row (`i64`).
    pub times: ArrayWriter,
    /// The class of each row (`i32`), or its target values: `u8` for several labels, `f32` for regression.
    pub values: ArrayWriter,
    /// The positions of the rows for training, validation and test (`u32`).
    pub split: [ArrayWriter; 3],
}

/// The name and the node types of a relation that a [`SetWriter`] writes.
#[derive(Debug, Clone, Copy)]
pub struct RelationTypes<'a> {
    /// The name, which is unique among the relations.
    pub name: &'a str,
    /// The position of the sources' type.
    pub src_type: usize,
    /// The position of the destinations' type.
    pub dst_type: usize,
}

impl SetWriter {
    /// Starts a set with nodes of these types.
    pub fn new(set: FolderWriter, name: &str, types: &NodeTypes) -> Self {
        Self { set, types: types.clone(), manifest: NumberedManifest::of_types(name, types) }
    }

    /// Returns the folder that contains the files until the commit. Temporary files in it must be removed before that.
    pub fn folder(&self) -> &Path {
        self.set.folder()
    }

    /// Starts the features of the node type at a position: an array of `f32`, `f16` or `bf16` rows.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if the file cannot be created.
    pub fn feature_rows(&self, node_type: usize, dtype: ElementType, dim: usize) -> Result<ArrayWriter> {
        Ok(self.set.rows(FEATURES.of_type(node_type).dense, dtype, dim)?)
    }

    /// Finishes the features of a node type, `dim` columns wide.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if the file cannot be written, and [`Error::BadParameter`](crate::Error::BadParameter) for another node type.
    pub fn add_features(&mut self, node_type: usize, rows: ArrayWriter, dim: usize) -> Result<()> {
        self.check_type(node_type)?;
        self.manifest.node_types[node_type].dim = Some(dim);
        Ok(self.set.add(rows)?)
    }

    /// States what the feature columns of a node type mean.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) for another node type. [`SetWriter::commit`] returns an error
    /// unless their widths are those of the features.
    pub fn describe_features(&mut self, node_type: usize, columns: Vec<FeatureColumn>) -> Result<()> {
        self.check_type(node_type)?;
        self.manifest.node_types[node_type].feature_columns = columns;
        Ok(())
    }

    fn check_type(&self, node_type: usize) -> Result<()> {
        let n_types = self.types.n_types();
        require(node_type < n_types, "the node type of the features", "the position of a type", node_type)
    }

    /// Starts the names of the nodes of a type: the array of their concatenated texts (`u8`), and the array of the end of
    /// each (`u32`). [`SetWriter::add`] finishes them.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be created.
    pub fn names(&self, node_type: usize) -> Result<[ArrayWriter; 2]> {
        let text = self.set.vector(numbered("names_text.npy", node_type), ElementType::U8)?;
        Ok([text, self.set.vector(numbered("names_ends.npy", node_type), ElementType::U32)?])
    }

    /// Starts the times of the nodes of a type (`i64`). [`SetWriter::add`] finishes them.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if the file cannot be created.
    pub fn node_times(&self, node_type: usize) -> Result<ArrayWriter> {
        Ok(self.set.vector(numbered(NODE_TIMES, node_type), ElementType::I64)?)
    }

    /// Sets the meaning of the times, and the split by time. [`SetWriter::commit`] returns an error for borders that are not in
    /// order.
    pub fn set_times(&mut self, kind: TimeKind, split: Option<TimeSplit>) {
        self.manifest.times = TimesEntry { kind, split };
    }

    /// Finishes an array.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if the file cannot be written.
    pub fn add(&mut self, array: ArrayWriter) -> Result<()> {
        Ok(self.set.add(array)?)
    }

    /// Starts the targets of a node type with `n_outputs` classes or columns: classes for `i32`, several labels for `u8`,
    /// and regression targets for `f32`.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be created.
    pub fn targets(&self, dtype: ElementType, n_outputs: usize) -> Result<TargetWriters> {
        let values = match dtype {
            ElementType::I32 => self.set.vector(LABELS, dtype)?,
            _ => self.set.rows(TARGETS, dtype, n_outputs)?,
        };
        let part = |name| self.set.vector(name, ElementType::U32);
        Ok(TargetWriters { values, split: [part("train.npy")?, part("val.npy")?, part("test.npy")?] })
    }

    /// Finishes the targets of a node type. `class_names` has the name of each class or column, or is empty.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be written, [`Error::BadParameter`](crate::Error::BadParameter) for another node type, and
    /// [`kiln_store::Error::Metadata`] for another number of names.
    pub fn add_targets(
        &mut self,
        node_type: usize,
        targets: TargetWriters,
        n_outputs: usize,
        class_names: &[String],
    ) -> Result<()> {
        require(
            node_type < self.types.n_types(),
            "the node type of the targets",
            "the position of a type",
            node_type,
        )?;
        let class_names = class_names_to_write(class_names, n_outputs);
        check_class_names(&path_in(self.folder()), None, n_outputs, &class_names)?;
        self.manifest.target_type = Some(self.types.names()[node_type].clone());
        (self.manifest.n_classes, self.manifest.class_names) = (Some(n_outputs), class_names);
        self.set.add(targets.values)?;
        for part in targets.split {
            self.set.add(part)?;
        }
        Ok(())
    }

    /// Starts the links of a relation with `n_outputs` classes or columns each: classes for `i32`, several labels for `u8`, and
    /// numbers for `f32`; with `dim` feature columns, if it is not `None`, and with times if `has_times`.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be created.
    pub fn links(
        &self,
        dtype: ElementType,
        n_outputs: usize,
        dim: Option<usize>,
        has_times: bool,
    ) -> Result<LinkWriters> {
        let [labels, targets, features, times] = LINK_VALUES;
        let ids = |name| self.set.vector(name, ElementType::U32);
        let [srcs, dsts, train, val, test] = LINK_FILES;
        Ok(LinkWriters {
            ends: [ids(srcs)?, ids(dsts)?],
            values: match dtype {
                ElementType::I32 => self.set.vector(labels, dtype)?,
                _ => self.set.rows(targets, dtype, n_outputs)?,
            },
            features: dim.map(|dim| self.set.rows(features, ElementType::F32, dim)).transpose()?,
            times: has_times.then(|| self.set.vector(times, ElementType::I64)).transpose()?,
            split: [ids(train)?, ids(val)?, ids(test)?],
        })
    }

    /// Finishes the links of a relation that was written, and names the relation with their reverses. `class_names` has the name of
    /// each class or column, or is empty.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be written, and [`kiln_store::Error::Metadata`] for another number of
    /// names. [`SetWriter::commit`] returns an error for the name of a relation that the set does not have.
    pub fn add_links(
        &mut self,
        relation: &str,
        reverse: Option<&str>,
        links: LinkWriters,
        n_outputs: usize,
        class_names: &[String],
    ) -> Result<()> {
        let class_names = class_names_to_write(class_names, n_outputs);
        check_class_names(&path_in(self.folder()), None, n_outputs, &class_names)?;
        self.manifest.links =
            Some(LinksEntry { relation: relation.to_owned(), reverse: reverse.map(str::to_owned) });
        self.manifest.link_targets = Some(LinkTargetsEntry { n_classes: n_outputs, class_names });
        let LinkWriters { ends, values, features, times, split } = links;
        for array in ends.into_iter().chain([values]).chain(features).chain(times).chain(split) {
            self.set.add(array)?;
        }
        Ok(())
    }

    /// Starts the next task table, with `n_outputs` classes or columns: classes for `i32`, several labels for `u8`, and numbers for
    /// `f32`.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be created.
    pub fn task_table(&self, dtype: ElementType, n_outputs: usize) -> Result<TaskWriters> {
        let files = TaskFiles::new(self.manifest.tasks.len());
        let [train, val, test] = files.split.map(|part| self.set.vector(part, ElementType::U32));
        Ok(TaskWriters {
            nodes: self.set.vector(files.nodes, ElementType::U32)?,
            times: self.set.vector(files.times, ElementType::I64)?,
            values: match dtype {
                ElementType::I32 => self.set.vector(files.values.labels, dtype)?,
                _ => self.set.rows(files.values.values, dtype, n_outputs)?,
            },
            split: [train?, val?, test?],
        })
    }

    /// Finishes a task table of `n_rows` rows, whose nodes are those of a type. `class_names` has the name of each class or column.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if a file cannot be written, and [`Error::BadParameter`](crate::Error::BadParameter) for
    /// another node type. [`SetWriter::commit`] returns an error for a name that another table has.
    pub fn add_task_table(
        &mut self,
        name: &str,
        node_type: usize,
        table: TaskWriters,
        n_rows: usize,
        class_names: &[String],
    ) -> Result<()> {
        let expected = "the position of a type";
        require(node_type < self.types.n_types(), "the node type of a task table", expected, node_type)?;
        self.manifest.tasks.push(TaskEntry {
            name: name.to_owned(),
            node_type: self.types.names()[node_type].clone(),
            n_rows,
            n_classes: class_names.len(),
            class_names: class_names_to_write(class_names, class_names.len()),
        });
        let TaskWriters { nodes, times, values, split } = table;
        for array in [nodes, times, values].into_iter().chain(split) {
            self.set.add(array)?;
        }
        Ok(())
    }

    /// Sorts the edges of a source within the memory limit and writes them as the next relation. Ids of the source count
    /// from 0 within their type. The graph is the one that [`Relations::from_edges`](kiln_graph::Relations::from_edges)
    /// builds. [`ConvertOptions::symmetrize`] applies to a relation between nodes of one type. [`ConvertOptions::n_nodes`] is
    /// ignored; edge types and added or removed self loops are rejected.
    ///
    /// # Errors
    /// Returns [`Error::Memory`](crate::Error::Memory) if the limit is too small, [`Error::BadParameter`](crate::Error::BadParameter) for a type that does not exist or an
    /// option that is not supported, and the errors of the source.
    pub fn write_relation(
        &mut self,
        relation: RelationTypes<'_>,
        source: &dyn EdgeSource,
        options: &ConvertOptions,
    ) -> Result<ConvertReport> {
        let RelationTypes { name, src_type, dst_type } = relation;
        for node_type in [src_type, dst_type] {
            let expected = "the position of a type";
            require(node_type < self.types.n_types(), "the node type of a relation", expected, node_type)?;
        }
        let kept = ConvertOptions {
            memory_bytes: options.memory_bytes,
            n_nodes: options.n_nodes,
            duplicates: options.duplicates,
            symmetrize: options.symmetrize && src_type == dst_type,
            ..ConvertOptions::default()
        };
        let expected =
            "no change of the edges except of duplicates, and reverse edges only between nodes of one type";
        require(*options == kept, "the options of a relation", expected, name)?;
        let expected = "none: the position of the relation is the type of its edges";
        require(
            source.columns().iter().all(|format| format.name != EdgeColumns::TYPES),
            "the edge types of a relation",
            expected,
            name,
        )?;
        let (srcs, position) = (self.types.range(src_type), self.manifest.relations.len());
        let n_dsts = self.types.range(dst_type).len();
        let rows = CscRows { n_dsts, n_srcs: srcs.len(), first_src: srcs.start, relation: Some(position) };
        let written = write_csc(source, 0, rows, options, &mut self.set)?;
        let type_name = |node_type: usize| self.types.names()[node_type].clone();
        self.manifest.relations.push(RelationEntry {
            name: name.to_owned(),
            src_type: type_name(src_type),
            dst_type: type_name(dst_type),
            n_edges: written.n_edges,
        });
        Ok(ConvertReport {
            n_nodes: n_dsts,
            n_coo_edges: written.n_coo_edges,
            n_edges: written.n_edges,
            n_duplicates: written.n_duplicates,
            n_buckets: written.n_buckets,
            n_readings: written.n_readings,
            notes: Vec::new(),
        })
    }

    /// Sets the first row of each node type, `[n_types]`, that was appended to an earlier set, so that
    /// [`Dataset::new_rows`](crate::Dataset::new_rows) returns the new ones.
    /// [`SetWriter::commit`] returns an error unless each type has a number, at most that of its nodes.
    pub fn set_first_new(&mut self, first_new: Vec<u32>) {
        self.manifest.first_new = Some(first_new);
    }

    /// Writes a JSON file beside the arrays, for another crate to read. Its hash becomes a part of the manifest.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Io`] if the file cannot be written, and [`kiln_store::Error::Metadata`] if the name is
    /// not one of lower-case letters, digits and `_` with the extension `.json`, if it is that of the manifest, or if there
    /// are more than 256 MiB.
    pub fn attach(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = path_in(self.folder());
        check_name(&path, name)?;
        if self.manifest.attachments.contains_key(name) {
            return Err(bad_entry(&path, name, "", "one attachment of this name", "two").into());
        }
        let hash = attachment::write(self.folder(), name, bytes)?;
        self.manifest.attachments.insert(name.to_owned(), hash);
        Ok(())
    }

    /// Writes the manifest and renames the folder to its target.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Metadata`] if a part is missing or has another length than its type, and
    /// [`kiln_store::Error::Io`] if writing fails.
    pub fn commit(self) -> Result<()> {
        self.manifest.check_counts(&path_in(self.set.folder()))?;
        self.manifest.commit(self.set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn rejects_attachments_with_other_names_or_that_are_too_large() {
        let root = tempfile::tempdir().unwrap();
        let types = NodeTypes::new([("node", 0)]).unwrap();
        let folder = FolderWriter::create(root.path().join("set")).unwrap();
        let mut set = SetWriter::new(folder, "set", &types);
        for name in ["kiln.json", "../a.json", "a/b.json", ".json", "A.json", "a.npy", ""] {
            let error = set.attach(name, b"{}").unwrap_err();
            assert!(matches!(error, Error::Store(kiln_store::Error::Metadata { .. })), "{name}: {error}");
        }
        // The pages of the zeros are never touched.
        let error = set.attach("large.json", &vec![0; (256 << 20) + 1]).unwrap_err();
        assert!(matches!(error, Error::Store(kiln_store::Error::Metadata { .. })), "{error}");
        assert!(error.to_string().contains("268435457 bytes"), "{error}");
        set.attach("import.json", b"{}").unwrap();
        assert!(set.attach("import.json", b"{}").unwrap_err().to_string().contains("two"));
    }
}

//! The set to which an import appends rows: its nodes keep their numbers, their features, targets and split, and their edges.

use std::ops::Range;
use std::path::{Path, PathBuf};

use kiln_data::{Dataset, TimeSplit, format};
use kiln_feature::{FeatureArray, TargetKind};
use kiln_graph::{EdgeColumns, Relation, check_mapped_files};

use crate::feature_columns::width_of;
use crate::known_nodes::KnownNodes;
use crate::spec::RelationSpec;
use crate::table::{relation_of, table_of};
use crate::{EarlierImportError, Error, FittedColumn, FittedRelation, FittedTarget, Import, Result};

/// The manifests of a partition and of the first partition of a set.
const PARTITIONS: [&str; 2] = ["part.json", "part0/part.json"];

/// A set that an import has written, and its record.
#[derive(Debug)]
pub(crate) struct KnownSet {
    path: PathBuf,
    data: Dataset,
    import: Import,
}

impl KnownSet {
    /// Opens a set and its record, and checks that it has the parts that the record states. Values are not checked.
    ///
    /// # Errors
    /// Returns [`EarlierImportError::Partitioned`], [`EarlierImportError::HasLinks`] or [`EarlierImportError::Changed`] for
    /// a set to which rows cannot be appended, and the errors of [`Import::open`] and [`format::open`].
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let set = || path.to_owned();
        if PARTITIONS.iter().any(|file| path.join(file).is_file()) {
            return Err(Error::EarlierImport(EarlierImportError::Partitioned { set: set() }));
        }
        let import = Import::open(path)?;
        let data = format::open(path)?;
        if data.links.is_some() {
            return Err(Error::EarlierImport(EarlierImportError::HasLinks { set: set() }));
        }
        if !data.tasks.is_empty() {
            return Err(Error::EarlierImport(EarlierImportError::HasTaskTables { set: set() }));
        }
        let known = Self { path: set(), data, import };
        known.check().map_err(|what| known.changed(what))?;
        Ok(known)
    }

    /// Checks the hashes and the values of all files.
    ///
    /// # Errors
    /// Returns the errors of [`format::verify`].
    pub(crate) fn verify(&self) -> Result<()> {
        format::verify(&self.path)?;
        Ok(())
    }

    /// Checks, after all values were read, that they are those that were verified.
    ///
    /// # Errors
    /// Returns [`EarlierImportError::Changed`] if a file of the set was replaced, and the errors of [`check_mapped_files`].
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let replaced = check_mapped_files()?;
        match replaced.iter().find(|file| file.parent() == Some(&self.path)) {
            None => Ok(()),
            Some(file) => Err(self.changed(format!("{} was replaced during the import", file.display()))),
        }
    }

    /// Returns the record of the import.
    pub(crate) fn import(&self) -> &Import {
        &self.import
    }

    /// Returns the nodes of the type at a position.
    pub(crate) fn nodes(&self, node_type: usize) -> KnownNodes<'_> {
        KnownNodes {
            names: &self.data.names[node_type],
            features: f32_rows(&self.data, node_type).unwrap_or_default(),
            targets: self.data.targets.as_ref().filter(|targets| targets.node_type == node_type),
            times: self.data.times.node_times(node_type).map(|times| &times[..]),
            first: self.range(node_type).start,
        }
    }

    /// Returns the split by time; `None` for another split.
    pub(crate) fn time_split(&self) -> Option<TimeSplit> {
        self.data.times.split
    }

    /// Returns the relation at a position, and the id of the first node of its sources' type.
    pub(crate) fn edges(&self, relation: usize) -> (&Relation, u32) {
        let relation = self.data.graph.relation(relation);
        (relation, self.range(relation.src_type).start)
    }

    /// Returns the error of a set that was changed.
    pub(crate) fn changed(&self, what: String) -> Error {
        Error::EarlierImport(EarlierImportError::Changed { set: self.path.clone(), what })
    }

    fn range(&self, node_type: usize) -> Range<u32> {
        self.data.graph.types().range(node_type)
    }

    /// Checks that the set has the node types, features, targets and relations of the record; the error is the difference.
    fn check(&self) -> Result<(), String> {
        let spec = self.import.spec();
        let types = spec.nodes.iter().map(|node_type| node_type.name.as_str());
        expect_names("node types", self.data.graph.types().names().iter().map(String::as_str), types)?;
        for position in 0..spec.nodes.len() {
            self.check_type(position)?;
        }
        let relations: Vec<(&str, &RelationSpec, bool)> = spec.relations.iter().flat_map(both).collect();
        let names = self.data.graph.iter().map(|relation| relation.name.as_str());
        expect_names("relations", names, relations.iter().map(|(name, ..)| *name))?;
        for (found, (name, spec, is_reversed)) in self.data.graph.iter().zip(relations) {
            let [src, dst] = [found.src_type, found.dst_type].map(|of| &self.data.graph.types().names()[of]);
            let (src, dst) = if is_reversed { (dst, src) } else { (src, dst) };
            if (src, dst) != (&spec.src.node_type, &spec.dst.node_type) {
                return Err(format!("{} is between `{src}` and `{dst}`", relation_of(name)));
            }
            check_columns(name, found.graph.columns(), spec, self.import.relation(&spec.name))?;
        }
        Ok(())
    }

    fn check_type(&self, position: usize) -> Result<(), String> {
        let name = &self.import.spec().nodes[position].name;
        let label = table_of(name);
        let fitted = self.import.node_type(name);
        let columns = fitted.map_or(&[][..], |fitted| &fitted.columns);
        let dim: usize = columns.iter().map(FittedColumn::width).sum();
        let n_nodes = self.range(position).len();
        if self.data.names[position].len() != n_nodes {
            return Err(format!("{label} has nodes without names"));
        }
        let n_values = match &self.data.features[position] {
            Some(_) => f32_rows(&self.data, position).map(<[f32]>::len),
            None => Some(0),
        };
        let described: Vec<_> = columns.iter().flat_map(FittedColumn::feature_columns).collect();
        if n_values != Some(n_nodes * dim) || self.data.feature_columns[position] != described {
            return Err(format!("{label} has other feature columns"));
        }
        let targets = self.data.targets.as_ref().filter(|targets| targets.node_type == position);
        let is_same = match (targets, fitted.and_then(|fitted| fitted.target.as_ref())) {
            (None, None) => true,
            (Some(found), Some(fitted)) => {
                found.values.kind() == kind_of(fitted) && found.class_names == fitted.names()
            }
            _ => false,
        };
        if is_same { Ok(()) } else { Err(format!("{label} has other targets")) }
    }
}

/// Returns the features of a node type if they are dense rows of `f32`.
fn f32_rows(data: &Dataset, node_type: usize) -> Option<&[f32]> {
    match data.features[node_type].as_ref()?.as_dense()?.rows() {
        FeatureArray::F32(rows) => Some(rows),
        _ => None,
    }
}

fn kind_of(target: &FittedTarget) -> TargetKind {
    match target {
        FittedTarget::Class { .. } => TargetKind::Classes,
        FittedTarget::Regression { .. } => TargetKind::Regression,
        FittedTarget::MultiLabel { .. } => TargetKind::MultiLabel,
    }
}

/// Returns a relation and its reverse: the name, and true for the reverse.
fn both(spec: &RelationSpec) -> Vec<(&str, &RelationSpec, bool)> {
    let reverse = spec.reverse.iter().map(|name| (name.as_str(), spec, true));
    [(spec.name.as_str(), spec, false)].into_iter().chain(reverse).collect()
}

fn expect_names<'a>(
    what: &str,
    found: impl Iterator<Item = &'a str>,
    expected: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let found: Vec<&str> = found.collect();
    let expected: Vec<&str> = expected.collect();
    if found == expected {
        return Ok(());
    }
    Err(format!("its {what} are {}, expected {}", found.join(", "), expected.join(", ")))
}

/// Checks that the edges have the columns of the spec: numbers of 32 bits, one per edge, the features of the record, and times.
fn check_columns(
    name: &str,
    found: &EdgeColumns,
    spec: &RelationSpec,
    fitted: Option<&FittedRelation>,
) -> Result<(), String> {
    let mut expected: Vec<(&str, usize)> =
        spec.columns_of_edges().into_iter().map(|(name, _)| (name, 1)).collect();
    let dim = fitted.map_or(0, |fitted| width_of(&fitted.columns));
    expected.extend((dim > 0).then_some((EdgeColumns::FEATURES, dim)));
    expected.extend(spec.time_column().map(|_| (EdgeColumns::TIMES, 1)));
    expected.sort_unstable();
    let mut columns: Vec<(&str, usize)> = found.iter().map(|(name, column)| (name, column.width())).collect();
    columns.sort_unstable();
    // The element type of times is always the same.
    let mut others =
        found.iter().filter(|(name, column)| *name != EdgeColumns::TIMES && column.element_type() != "f32");
    match columns == expected && others.next().is_none() {
        true => Ok(()),
        false => Err(format!("{} has other columns of edges", relation_of(name))),
    }
}

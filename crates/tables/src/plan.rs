//! A dry run: what an import would do, from the spec and the headers of the tables.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kiln_feature::MAX_DIM;
use kiln_store::counted;

use crate::appended_spec::read_appended;
use crate::known_set::KnownSet;
use crate::spec::{ColumnSpec, ColumnTransform, ImportSpec};
use crate::table::{ReadLimit, SourceFiles, Table, TableSource};
use crate::{Error, FittedColumn, Result};

/// What an import would do.
#[derive(Debug)]
pub struct ImportPlan {
    /// The name of the set.
    pub name: String,
    /// The tables of the node types.
    pub node_types: Vec<PlannedNodeType>,
    /// The relations, with their reverse relations.
    pub relations: Vec<PlannedRelation>,
    /// The task tables.
    pub tasks: Vec<PlannedTask>,
    /// The errors in the files: missing files and columns, codecs that are not built in. Rows are not read.
    pub errors: Vec<Error>,
}

/// A node type that an import would write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedNodeType {
    /// The name.
    pub name: String,
    /// The number of rows of its table; `None` if the files do not state it.
    pub n_rows: Option<u64>,
    /// The number of nodes of the set to which the rows are appended; `None` for a new set.
    pub n_known: Option<u64>,
    /// The columns that become features.
    pub columns: Vec<PlannedColumn>,
    /// True if the type has targets.
    pub has_target: bool,
}

/// A column that would become features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedColumn {
    /// The name of the column.
    pub column: String,
    /// The smallest possible number of feature columns.
    pub min_width: usize,
    /// The largest possible number, with the one for missing values.
    pub max_width: usize,
}

/// A relation that an import would write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRelation {
    /// The name.
    pub name: String,
    /// The name of the sources' type.
    pub src_type: String,
    /// The name of the destinations' type.
    pub dst_type: String,
    /// The number of rows of its table; `None` if the files do not state it.
    pub n_rows: Option<u64>,
    /// The number of edges of the set to which the rows are appended; `None` for a new set.
    pub n_known: Option<u64>,
    /// True if the edges have weights.
    pub has_weights: bool,
    /// The columns that become features of the edges.
    pub columns: Vec<PlannedColumn>,
    /// The names of the other columns of the edges.
    pub edge_columns: Vec<String>,
    /// True if the reverse of each edge is added.
    pub is_undirected: bool,
    /// True if edges have targets.
    pub has_target: bool,
}

/// A task table that an import would write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTask {
    /// The name.
    pub name: String,
    /// The name of the type of the keys.
    pub node_type: String,
    /// The number of rows of its files; `None` if they do not state it.
    pub n_rows: Option<u64>,
}

/// Reads a spec and the headers of its tables, and returns what [`import`](crate::import()) would do. Nothing is written.
///
/// # Errors
/// Returns [`crate::SpecError::SpecSyntax`] or [`crate::SpecError::Spec`] for an invalid spec. Errors in the tables are
/// in the plan.
pub fn plan(spec: impl AsRef<Path>) -> Result<ImportPlan> {
    let path = spec.as_ref();
    Ok(plan_tables(path, ImportSpec::read(path)?))
}

/// Reads a spec of new rows, the headers of its tables and those of a set, and returns what an import with
/// [`ImportOptions::append_to`](crate::ImportOptions::append_to) would do. Nothing is written.
///
/// # Errors
/// Returns the errors of [`plan()`], [`EarlierImportError`](crate::EarlierImportError) for a set to which these rows cannot be
/// appended, and the errors of opening the set. Its values are not checked.
pub fn plan_append(spec: impl AsRef<Path>, set: impl AsRef<Path>) -> Result<ImportPlan> {
    let path = spec.as_ref();
    let known = KnownSet::open(set.as_ref())?;
    let (spec, _) = read_appended(path, known.import().spec())?;
    let mut plan = plan_tables(path, spec);
    for (position, node_type) in plan.node_types.iter_mut().enumerate() {
        node_type.n_known = Some(known.nodes(position).len().into());
        let fitted = known.import().node_type(&node_type.name);
        set_widths(&mut node_type.columns, fitted.map_or(&[][..], |fitted| &fitted.columns));
    }
    for (position, relation) in plan.relations.iter_mut().enumerate() {
        relation.n_known = Some(known.edges(position).0.graph.n_edges());
    }
    for relation in plan.relations.iter_mut().filter(|relation| !relation.columns.is_empty()) {
        let specs = &known.import().spec().relations;
        let spec = specs
            .iter()
            .find(|spec| spec.name == relation.name || spec.reverse.as_ref() == Some(&relation.name));
        let fitted = spec.and_then(|spec| known.import().relation(&spec.name));
        set_widths(&mut relation.columns, fitted.map_or(&[][..], |fitted| &fitted.columns));
    }
    Ok(plan)
}

/// Sets the widths of columns to those of an earlier import.
fn set_widths(columns: &mut [PlannedColumn], earlier: &[FittedColumn]) {
    for (column, fitted) in columns.iter_mut().zip(earlier) {
        column.min_width = fitted.width();
        column.max_width = fitted.width();
    }
}

/// Returns what an import of the tables of a spec at a path would do.
fn plan_tables(path: &Path, spec: ImportSpec) -> ImportPlan {
    let sources = SourceFiles::new(path.parent().unwrap_or(Path::new("")), ReadLimit::NONE);
    let mut errors = Vec::new();
    let node_types = spec.nodes.iter().map(|node_type| PlannedNodeType {
        name: node_type.name.clone(),
        n_rows: match node_type.from {
            None => {
                let source = TableSource::find_nodes(node_type, &sources);
                n_rows_of(source, node_type.columns_of_table(), &mut errors)
            }
            Some(_) => None,
        },
        n_known: None,
        columns: planned_columns(&node_type.columns),
        has_target: node_type.target.is_some(),
    });
    let node_types = node_types.collect();
    let mut relations = Vec::new();
    for relation in &spec.relations {
        let source = TableSource::find_relation(relation, &sources);
        let n_rows = n_rows_of(source, relation.columns_of_table(), &mut errors);
        let planned = |name: &String, src: &str, dst: &str| PlannedRelation {
            name: name.clone(),
            src_type: src.to_owned(),
            dst_type: dst.to_owned(),
            n_rows,
            n_known: None,
            has_weights: relation.weight.is_some(),
            columns: planned_columns(&relation.columns),
            edge_columns: relation.edge_columns.iter().map(|spec| spec.name().to_owned()).collect(),
            is_undirected: relation.undirected,
            has_target: relation.target.is_some() && *name == relation.name,
        };
        let src = &relation.src.node_type;
        let dst = &relation.dst.node_type;
        relations.push(planned(&relation.name, src, dst));
        relations.extend(relation.reverse.as_ref().map(|name| planned(name, dst, src)));
    }
    let mut tasks = Vec::new();
    for task in &spec.tasks {
        let mut n_rows = Some(0);
        let parts = TableSource::find_task(task, &sources).map_err(|error| errors.push(error));
        for (_, source) in parts.into_iter().flatten() {
            let of_part = n_rows_of(Ok(source), task.columns_of_table(), &mut errors);
            n_rows = n_rows.zip(of_part).map(|(sum, n_rows): (u64, u64)| sum + n_rows);
        }
        tasks.push(PlannedTask { name: task.name.clone(), node_type: task.key.node_type.clone(), n_rows });
    }
    ImportPlan { name: spec.name, node_types, relations, tasks, errors }
}

/// Returns the number of rows that the files of a table state, and collects their errors.
fn n_rows_of(source: Result<Arc<TableSource>>, columns: Vec<String>, errors: &mut Vec<Error>) -> Option<u64> {
    let source = source.map_err(|error| errors.push(error)).ok()?;
    let table = Table { source, columns };
    let mut n_rows = Some(0);
    for file in &table.source.files {
        let of_file = table.n_rows_of(file).map_err(|error| errors.push(error));
        n_rows = n_rows.zip(of_file.ok().flatten()).map(|(sum, n_rows)| sum + n_rows);
    }
    n_rows
}

fn planned_columns(columns: &[ColumnSpec]) -> Vec<PlannedColumn> {
    let planned = columns.iter().map(|column| {
        let [min_width, max_width] = match &column.transform {
            ColumnTransform::Numeric
            | ColumnTransform::Standardize
            | ColumnTransform::Quantile
            | ColumnTransform::Ordinal { .. } => [1, 1],
            ColumnTransform::OneHot { max_categories } | ColumnTransform::MultiHot { max_categories, .. } => {
                [0, max_categories + 1]
            }
            ColumnTransform::Time { parts, .. } => [parts.iter().map(|part| part.width()).sum(); 2],
            ColumnTransform::Hash { columns }
            | ColumnTransform::Text { columns, .. }
            | ColumnTransform::Vector { columns, .. } => [*columns; 2],
        };
        PlannedColumn { column: column.column.clone(), min_width, max_width: (max_width + 1).min(MAX_DIM) }
    });
    planned.collect()
}

impl fmt::Display for PlannedColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, min_width, max_width } = self;
        let width = match min_width == max_width {
            true => counted(*max_width as u64, "feature column"),
            false => format!("{min_width} to {max_width} feature columns"),
        };
        write!(f, "column {column:?}: {width}")
    }
}

impl fmt::Display for ImportPlan {
    /// Writes a line for the set, and one for each node type, column, relation and error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = |n_rows: Option<u64>| match n_rows {
            Some(n_rows) => counted(n_rows, "row"),
            None => "an unknown number of rows".to_owned(),
        };
        let known = |n_known: Option<u64>, noun: &str| {
            n_known.map_or_else(String::new, |n_known| format!(", and {} of the set", counted(n_known, noun)))
        };
        let types = counted(self.node_types.len() as u64, "node type");
        let relations = counted(self.relations.len() as u64, "relation");
        write!(f, "{}: {types}, {relations}", self.name)?;
        for node_type in &self.node_types {
            let of_set = known(node_type.n_known, "node");
            write!(f, "\nnode type `{}`: {}{of_set}", node_type.name, rows(node_type.n_rows))?;
            if node_type.has_target {
                f.write_str(", with targets")?;
            }
            node_type.columns.iter().try_for_each(|column| write!(f, "\n  {column}"))?;
        }
        for relation in &self.relations {
            let PlannedRelation {
                name,
                src_type,
                dst_type,
                n_rows,
                n_known,
                has_weights,
                columns,
                edge_columns,
                ..
            } = relation;
            let of_set = known(*n_known, "edge");
            write!(f, "\nrelation `{name}` from `{src_type}` to `{dst_type}`: {}{of_set}", rows(*n_rows))?;
            if *has_weights {
                f.write_str(", with weights")?;
            }
            if !edge_columns.is_empty() {
                write!(f, ", with the edge columns {}", edge_columns.join(", "))?;
            }
            if relation.is_undirected {
                f.write_str(", undirected")?;
            }
            if relation.has_target {
                f.write_str(", with targets")?;
            }
            columns.iter().try_for_each(|column| write!(f, "\n  {column}"))?;
        }
        for PlannedTask { name, node_type, n_rows } in &self.tasks {
            write!(f, "\ntask table `{name}` of `{node_type}`: {}", rows(*n_rows))?;
        }
        for error in &self.errors {
            write!(f, "\nerror: {error}")?;
        }
        Ok(())
    }
}

//! The topology of a relation in a folder, with all columns of its edges. Files and entries follow from the names of the
//! columns, so that nothing here depends on which columns there are.

use std::borrow::Cow;
use std::path::Path;

use kiln_feature::MAX_DIM;
use kiln_graph::{ColumnValues, Csc, EdgeColumn, EdgeColumns, NodeId, SharedArray};
use kiln_store::array_folder::{
    ArrayFolder, ArrayWriter, ElementType, Entries, Entry, FolderWriter, Known, bad_entry,
};

use crate::check::{Place, check_edge_data};
use crate::layout::Layout;
use crate::{Error, Result};

/// Returns the name of the file of a column: `weights.npy`, and `edge_NAME.npy` for any other.
///
/// ```
/// use kiln_data::graph_folder::column_file;
/// assert_eq!(["weights", "types", "time"].map(column_file), ["weights.npy", "edge_types.npy", "edge_time.npy"]);
/// ```
pub fn column_file(name: &str) -> Cow<'static, str> {
    match name {
        EdgeColumns::WEIGHTS => Cow::Borrowed("weights.npy"),
        EdgeColumns::TYPES => Cow::Borrowed("edge_types.npy"),
        EdgeColumns::FEATURES => Cow::Borrowed("edge_features.npy"),
        _ => Cow::Owned(format!("edge_{name}.npy")),
    }
}

/// Returns the name of the column in a file of a relation; `None` for any other file.
pub(crate) fn column_in_file(layout: Layout, position: usize, file: &str) -> Option<&str> {
    let stem = file.strip_suffix(".npy")?;
    let stem = match layout {
        Layout::Plain => stem,
        Layout::Numbered => stem.strip_suffix(&format!(".{position}"))?,
    };
    match stem {
        "weights" => Some(EdgeColumns::WEIGHTS),
        // The weights have a name of their own.
        _ => stem
            .strip_prefix("edge_")
            .filter(|name| EdgeColumns::is_name(name) && *name != EdgeColumns::WEIGHTS),
    }
}

/// Returns the names and entries of the columns of a relation.
fn columns_in(
    entries: &Entries,
    layout: Layout,
    position: usize,
) -> impl Iterator<Item = (&str, &str, &Entry)> {
    entries.iter().filter_map(move |(file, entry)| {
        column_in_file(layout, position, file).map(|name| (name, file.as_str(), entry))
    })
}

/// Returns the files that the columns of the edges of a relation may have: weights, types if the layout has them, features,
/// and those of the other columns that are among the entries.
///
/// # Errors
/// Returns [`kiln_store::Error::Metadata`] for rows of an unsupported number of values.
pub fn column_entries(
    path: &Path,
    entries: &Entries,
    layout: Layout,
    position: usize,
    n_edges: usize,
) -> Result<Vec<Known>> {
    let mut names = vec![EdgeColumns::WEIGHTS, EdgeColumns::FEATURES];
    // The position of a relation is the type of its edges.
    names.extend((layout == Layout::Plain).then_some(EdgeColumns::TYPES));
    for (name, ..) in columns_in(entries, layout, position) {
        if !names.contains(&name) && name != EdgeColumns::TYPES {
            names.push(name);
        }
    }
    let mut known = Vec::with_capacity(names.len());
    for name in names {
        let file = layout.file(column_file(name), position);
        let (types, shape): (&'static [ElementType], _) = match name {
            EdgeColumns::WEIGHTS => (&[ElementType::F32], vec![n_edges]),
            EdgeColumns::TYPES => (&[ElementType::U8], vec![n_edges]),
            EdgeColumns::TIMES => (&[ElementType::I64], vec![n_edges]),
            _ => {
                let width = entries.get(&*file).and_then(|entry| entry.shape.get(1).copied()).unwrap_or(1);
                if !(1..=MAX_DIM).contains(&width) {
                    let expected = format!("1 to {MAX_DIM} columns");
                    return Err(bad_entry(path, &file, ".shape", expected, width).into());
                }
                (&[ElementType::F32, ElementType::F16, ElementType::BF16], vec![n_edges, width])
            }
        };
        known.push(Known { name: file, types, shape: Some(shape), is_needed: false });
    }
    Ok(known)
}

/// Returns the adjacency of the relation at a position with the columns of its edges: for [`Layout::Plain`] that in
/// `indptr.npy`, `indices.npy`, `weights.npy`, `edge_types.npy` and so on, for [`Layout::Numbered`] that in `indptr.2.npy`,
/// `indices.2.npy` and so on for position 2.
///
/// # Errors
/// Returns [`kiln_store::Error::Inconsistent`] or [`kiln_store::Error::BadValue`] if the offsets do not start at 0 or
/// do not end at the number of edges, and [`Error::Graph`] for a column that is not allowed.
pub fn read_csc(arrays: &ArrayFolder, layout: Layout, position: usize) -> Result<Csc> {
    let place = Place::relation(arrays.folder(), layout, position);
    let indptr = arrays.values(&layout.file("indptr.npy", position))?;
    let indices = arrays.values(&layout.file("indices.npy", position))?;
    let mut columns = Vec::new();
    for (name, file, entry) in columns_in(arrays.entries(), layout, position) {
        columns.push((name, read_column(arrays, file, entry)?));
    }
    csc_with_columns(place, indptr, indices, columns)
}

fn read_column(arrays: &ArrayFolder, file: &str, entry: &Entry) -> Result<EdgeColumn> {
    let values: ColumnValues = match entry.dtype {
        ElementType::U8 => arrays.values::<u8>(file)?.into(),
        ElementType::I64 => arrays.values::<i64>(file)?.into(),
        ElementType::F16 => ColumnValues::F16(arrays.values(file)?),
        ElementType::BF16 => ColumnValues::BF16(arrays.values(file)?),
        _ => arrays.values::<f32>(file)?.into(),
    };
    Ok(EdgeColumn::new(values, entry.shape.get(1).copied().unwrap_or(1))?)
}

/// Returns the graph of the given arrays. `place` is the location of the arrays for error messages.
pub(crate) fn csc_with_columns<'a>(
    place: Place<'_>,
    indptr: SharedArray<u64>,
    indices: SharedArray<NodeId>,
    columns: impl IntoIterator<Item = (&'a str, EdgeColumn)>,
) -> Result<Csc> {
    let located = |error: kiln_graph::Error| place.located(error.into());
    let mut graph = Csc::new(indptr, indices).map_err(located)?;
    for (name, column) in columns {
        graph = match (name, column.values()) {
            (EdgeColumns::WEIGHTS, ColumnValues::F32(weights)) => graph.with_weights(weights.clone()),
            (EdgeColumns::TYPES, ColumnValues::U8(types)) => graph.with_edge_types(types.clone()),
            _ => graph.with_column(name, column),
        }
        .map_err(located)?;
    }
    Ok(graph)
}

/// Checks that the values of all columns of the edges of the relation at a position are finite, and that all types have names
/// if any type has a name. `graph` was opened from the folder.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] with the first invalid value.
pub fn verify_columns(
    graph: &Csc,
    folder: &Path,
    layout: Layout,
    position: usize,
    edge_type_names: &[String],
) -> Result<()> {
    check_edge_data(graph, edge_type_names, Place::relation(folder, layout, position))
}

/// Starts the file of a column of the edges of the relation at a position.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`] if the file cannot be created.
pub fn start_column(
    set: &FolderWriter,
    layout: Layout,
    position: usize,
    name: &str,
    element: ElementType,
    width: usize,
) -> Result<ArrayWriter> {
    let file = layout.file(column_file(name), position);
    Ok(match name {
        EdgeColumns::WEIGHTS | EdgeColumns::TYPES | EdgeColumns::TIMES => set.vector(file, element)?,
        _ => set.rows(file, element, width)?,
    })
}

/// Returns the element type of a column in a file.
///
/// # Errors
/// Returns [`Error::BadParameter`] for a type that the format does not have.
pub fn column_element(column: &EdgeColumn) -> Result<ElementType> {
    match column.values() {
        ColumnValues::U8(_) => Ok(ElementType::U8),
        ColumnValues::I64(_) => Ok(ElementType::I64),
        ColumnValues::F32(_) => Ok(ElementType::F32),
        ColumnValues::F16(_) => Ok(ElementType::F16),
        ColumnValues::BF16(_) => Ok(ElementType::BF16),
        _ => Err(Error::BadParameter {
            what: "the element type of an edge column",
            expected: "u8, i64, f32, f16 or bf16",
            got: column.element_type().to_owned(),
        }),
    }
}

/// Writes all columns of the edges of the relation at a position.
pub(crate) fn write_columns(
    set: &mut FolderWriter,
    layout: Layout,
    position: usize,
    columns: &EdgeColumns,
) -> Result<()> {
    for (name, column) in columns.iter() {
        let element = column_element(column)?;
        let mut array = start_column(set, layout, position, name, element, column.width())?;
        array.push_bytes(column.as_bytes())?;
        set.add(array)?;
    }
    Ok(())
}

/// Returns the names of the files in a folder that have the form of a column's file.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`] if the folder cannot be read.
pub fn column_files(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(kiln_store::io_error(folder))? {
        let name = entry.map_err(kiln_store::io_error(folder))?.file_name();
        names.extend(
            name.to_str()
                .filter(|name| name.starts_with("edge_") && name.ends_with(".npy"))
                .map(str::to_owned),
        );
    }
    names.sort_unstable();
    Ok(names)
}

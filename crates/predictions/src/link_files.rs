//! The files of scored links.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kiln_data::NodeNames;
use kiln_graph::NodeId;
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter, TextWriter};
use kiln_store::csv::{finite, quoted};
#[cfg(feature = "tables")]
use kiln_tables::{OutputColumn, RowWriter};
use kiln_train::ScoredLink;

use crate::{PredictionFormat, PredictionTotals, Result};

/// The nodes of links: all nodes of a homogeneous graph, or those of the types of a relation. Files number nodes from 0
/// within their type.
#[derive(Debug, Clone)]
pub struct LinkNodes {
    /// The node ids of the sources and of the destinations in the graph.
    pub ids: [Range<u32>; 2],
    /// The names of the sources and of the destinations; `None` for nodes without names.
    pub names: [Option<Arc<NodeNames>>; 2],
}

/// The file of scored links, or the two arrays: `links.csv`, `links.parquet`, or `links.npy` and `scores.npy`. The source and the destination of a link are its first columns: the
/// number within its type, and the name if the nodes of the type have names. They are in a temporary folder beside the
/// target until they are complete; dropping this value removes them.
#[derive(Debug)]
pub struct LinkPredictionFiles {
    folder: FolderWriter,
    nodes: LinkNodes,
    rows: LinkRows,
    totals: PredictionTotals,
}

#[derive(Debug)]
enum LinkRows {
    Csv(TextWriter),
    Npy {
        links: Box<ArrayWriter>,
        scores: Box<ArrayWriter>,
    },
    #[cfg(feature = "tables")]
    Parquet(Box<RowWriter>),
}

impl LinkNodes {
    /// Returns the number of a node within its type. `end` is 0 for sources, 1 for destinations.
    pub(crate) fn number(&self, end: usize, node: NodeId) -> u32 {
        node.0 - self.ids[end].start
    }

    pub(crate) fn has_names(&self, end: usize) -> bool {
        self.names[end].as_ref().is_some_and(|names| !names.is_empty())
    }

    /// Returns the name of a node, or an empty text.
    pub(crate) fn name(&self, end: usize, node: NodeId) -> &str {
        let number = NodeId(self.number(end, node));
        self.names[end].as_ref().and_then(|names| names.get(number)).unwrap_or_default()
    }

    /// Returns the first line of `links.csv`.
    fn header(&self) -> String {
        self.columns() + "score\n"
    }

    /// Returns the names of the columns of both ends, each with a comma.
    pub(crate) fn columns(&self) -> String {
        let mut csv = String::new();
        for (end, column) in ["source", "destination"].into_iter().enumerate() {
            csv.push_str(column);
            csv.push(',');
            if self.has_names(end) {
                let _ = write!(csv, "{column}_name,");
            }
        }
        csv
    }

    /// Appends the fields of both ends of a link to its line, each with a comma.
    pub(crate) fn push_ends(&self, csv: &mut String, ends: [NodeId; 2]) {
        for (end, node) in ends.into_iter().enumerate() {
            let _ = write!(csv, "{},", self.number(end, node));
            if self.has_names(end) {
                let _ = write!(csv, "{},", quoted(self.name(end, node)));
            }
        }
    }

    /// Returns the lines of `links.csv`. Scores are read back to the same f32, and empty if they are not finite.
    fn lines(&self, links: &[ScoredLink]) -> String {
        let mut csv = String::new();
        for link in links {
            self.push_ends(&mut csv, [link.src, link.dst]);
            let _ = writeln!(csv, "{}", finite(Some(link.score)));
        }
        csv
    }
}

impl LinkPredictionFiles {
    /// Starts the files of a folder, which must be new or empty.
    ///
    /// # Errors
    /// Returns an error if the folder is not empty, or if a file cannot be created.
    pub fn create(target: impl AsRef<Path>, format: PredictionFormat, nodes: LinkNodes) -> Result<Self> {
        let folder = FolderWriter::create(target)?;
        let rows = match format {
            PredictionFormat::Csv => {
                let mut file = folder.text("links.csv")?;
                file.write(&nodes.header())?;
                LinkRows::Csv(file)
            }
            PredictionFormat::Npy => LinkRows::Npy {
                links: Box::new(folder.rows("links.npy", ElementType::U32, 2)?),
                scores: Box::new(folder.vector("scores.npy", ElementType::F32)?),
            },
            #[cfg(feature = "tables")]
            PredictionFormat::Parquet => {
                LinkRows::Parquet(Box::new(RowWriter::create(folder.folder().join("links.parquet"))?))
            }
        };
        let mut files = Self { folder, nodes, rows, totals: PredictionTotals::default() };
        // The file has its columns also without rows.
        files.write(&[])?;
        Ok(files)
    }

    /// Appends links, whose nodes have ids of the graph. A score that is not finite is empty in text and in tables.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&mut self, links: &[ScoredLink]) -> Result<()> {
        let Self { nodes, rows, totals, .. } = self;
        totals.n_items += links.len() as u64;
        for ScoredLink { src, dst, .. } in links.iter().filter(|link| !link.score.is_finite()) {
            totals.add_non_finite(format_args!("{} to {}", nodes.number(0, *src), nodes.number(1, *dst)));
        }
        match rows {
            LinkRows::Csv(file) => Ok(file.write(&nodes.lines(links))?),
            LinkRows::Npy { links: pairs, scores } => {
                let mut ids: Vec<u32> = Vec::with_capacity(2 * links.len());
                for link in links {
                    ids.extend([nodes.number(0, link.src), nodes.number(1, link.dst)]);
                }
                pairs.push(&ids)?;
                Ok(scores.push(&links.iter().map(|link| link.score).collect::<Vec<f32>>())?)
            }
            #[cfg(feature = "tables")]
            LinkRows::Parquet(writer) => write_parquet(writer, nodes, links),
        }
    }

    /// Returns the nodes of the links.
    pub fn nodes(&self) -> &LinkNodes {
        &self.nodes
    }

    /// Counts a source that has no links, because its outputs are not finite.
    pub fn add_source_without_links(&mut self, src: NodeId) {
        self.totals.add_non_finite(self.nodes.number(0, src));
    }

    /// Completes the files. Returns the unfinished folder, which [`FolderWriter::commit`] renames to the target, and the number of
    /// links.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn complete(self) -> Result<(FolderWriter, PredictionTotals)> {
        let Self { mut folder, rows, totals, .. } = self;
        match rows {
            LinkRows::Csv(file) => file.finish()?,
            LinkRows::Npy { links, scores } => {
                folder.add(*links)?;
                folder.add(*scores)?;
            }
            #[cfg(feature = "tables")]
            LinkRows::Parquet(writer) => writer.finish()?,
        }
        Ok((folder, totals))
    }
}

/// Appends links to a Parquet file.
#[cfg(feature = "tables")]
fn write_parquet(writer: &mut RowWriter, nodes: &LinkNodes, links: &[ScoredLink]) -> Result<()> {
    let ends = [0, 1].map(|end| {
        let of_end = links.iter().map(|link| [link.src, link.dst][end]);
        let ids: Vec<u32> = of_end.clone().map(|node| nodes.number(end, node)).collect();
        let names: Vec<&str> = of_end.map(|node| nodes.name(end, node)).collect();
        (ids, names)
    });
    let scores: Vec<Option<f32>> =
        links.iter().map(|link| Some(link.score).filter(|score| score.is_finite())).collect();
    let mut columns = Vec::new();
    let column_names = [("source", "source_name"), ("destination", "destination_name")];
    for (end, ((ids, names), (id, name))) in ends.iter().zip(column_names).enumerate() {
        columns.push((id, OutputColumn::U32(ids)));
        if nodes.has_names(end) {
            columns.push((name, OutputColumn::Text(names)));
        }
    }
    columns.push(("score", OutputColumn::OptionalF32(&scores)));
    Ok(writer.write(&columns)?)
}

#[cfg(test)]
#[path = "../tests/files/link_files.rs"]
mod tests;

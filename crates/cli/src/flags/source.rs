//! The data flags of `kiln train`, and the datasets that they open.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use kiln::data::{
    Dataset, DatasetFormat, DatasetLocation, DatasetName, GraphDataset, NodeFeatures, Split, recorded_hash,
};
use kiln::graph::GraphId;
use kiln_usage::{bail, ensure};

use crate::dataset::OpenedDataset;
use crate::flags::model::ModelArgs;
use crate::flags::parse;
use crate::output::{print_note_lines, print_notes, print_rank_zero};

/// The source of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataSource {
    /// A built-in or synthetic set.
    Named(DatasetName),
    /// A folder or a file, whose format is detected.
    Path(PathBuf),
}

impl DataSource {
    /// Returns the parser of `--data`: of an existing path, or of the name of a built-in or synthetic dataset.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| Self::parse(&text))
    }

    /// Parses an existing path, or the name of a dataset.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let numbered = text.to_str().and_then(|text| text.strip_prefix("fake:"));
        match (kiln::data::locate(text), numbered) {
            (DatasetLocation::Name(name), _) => Ok(DataSource::Named(name)),
            (DatasetLocation::Path(path), _) if path.exists() => Ok(DataSource::Path(path)),
            // A number of nodes in this range would be a name.
            (_, Some(_)) => Err(parse::describe_range(DatasetName::FAKE_NODES)),
            (_, None) => {
                let expected = "expected debian-packages, debian-tags, debian-archive, mutag, sbm, fake:NODES or a path that exists";
                Err(format!("{expected}{}", kiln::data::suggest_location(text)))
            }
        }
    }

    /// Returns true if the data is a set of graphs.
    pub(crate) fn has_graphs(&self) -> anyhow::Result<bool> {
        Ok(match self {
            DataSource::Named(name) => *name == DatasetName::Mutag,
            DataSource::Path(path) => {
                let kind = kiln::data::detect_format(path)?;
                matches!(kind, DatasetFormat::Gin | DatasetFormat::Tu | DatasetFormat::OgbGraphs)
            }
        })
    }

    /// Returns the hash that the manifest of data in the kiln format records; `None` for other data.
    pub(crate) fn recorded_hash(&self) -> anyhow::Result<Option<String>> {
        if let DataSource::Path(path) = self { Ok(recorded_hash(path)?) } else { Ok(None) }
    }

    /// Returns true for the built-in sets whose features are scaled by default.
    fn is_debian(&self) -> bool {
        matches!(self, DataSource::Named(DatasetName::DebianPackages | DatasetName::DebianTags))
    }

    /// Opens or generates a graph as it is stored. `seed` is that of synthetic data.
    pub(crate) fn load(&self, seed: u64) -> anyhow::Result<Dataset> {
        Ok(match self {
            DataSource::Named(name) => name.open(seed).with_context(|| format!("loading {name}"))?,
            DataSource::Path(path) => open_timed(path, |kind| {
                let mut data = kiln::data::open(path)?;
                // The readers of other formats validate the split. The kiln format opens in constant time, without
                // reading the split, so the split is checked here.
                if kind == DatasetFormat::Kiln {
                    data.notes.extend(data.check_split().context("the split could not be checked")?);
                }
                Ok(data)
            })?,
        })
    }

    /// Returns true if the data has several types of nodes, or relations with names.
    pub(crate) fn is_heterogeneous(&self) -> anyhow::Result<bool> {
        Ok(match self {
            DataSource::Named(name) => *name == DatasetName::DebianArchive,
            DataSource::Path(path) => kiln::data::is_heterogeneous(path)?,
        })
    }

    /// Opens a set of graphs and prints a summary. Returns the set and its split, if it has one.
    pub(crate) fn load_graphs(&self) -> anyhow::Result<(GraphDataset, Option<Split<GraphId>>)> {
        let mut split = None;
        let set = match self {
            DataSource::Path(path) => open_timed(path, |kind| {
                Ok(match kind {
                    DatasetFormat::Gin => kiln::data::gin::read(path)?,
                    DatasetFormat::Tu => kiln::data::tu::read(path)?,
                    DatasetFormat::OgbGraphs => {
                        let (set, own) = kiln::data::ogb::open_graphs(path)?;
                        split = Some(own);
                        set
                    }
                    _ => anyhow::bail!("{} is {kind}: expected a set of graphs", path.display()),
                })
            })?,
            DataSource::Named(DatasetName::Mutag) => kiln::data::mutag().context("loading mutag")?,
            _ => bail!("--task graph needs a set of graphs: give --data mutag or a path"),
        };
        print_rank_zero(&set);
        print_notes(&set.notes);
        Ok((set, split))
    }
}

/// The flags for the dataset and its preprocessing.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Dataset: the path of a folder, or the name of a built-in set. For nodes: `debian-packages`, `debian-tags` or the heterogeneous `debian-archive` (built in), `sbm`,
    /// `fake:NODES`, or the path of a folder (kiln, GraphBolt or OGB format, `.npy` arrays, or an edge list). For graphs: `mutag` (built in), a file of DGL's
    /// GIN collection, or a folder of the TU collection or of OGB, whose own split is used. A path takes precedence over a name.
    #[arg(long, value_parser = DataSource::parser(), default_value = "debian-packages")]
    pub(crate) data: DataSource,
    /// If true, scales feature columns to mean 0 and standard deviation 1 (in memory). Default: true for
    /// debian-packages and debian-tags, false for other data.
    #[arg(long)]
    standardize: Option<bool>,
    /// Divides each feature row by its sum (in memory).
    #[arg(long, conflicts_with = "standardize")]
    row_normalize: bool,
    /// Adds the reverse of each edge (in memory).
    #[arg(long)]
    symmetrize: bool,
    /// Copies graph and features into memory, in huge pages if available. Otherwise files of arrays are memory-mapped.
    #[arg(long)]
    pub(crate) in_memory: bool,
    /// Reads and validates all data before the run.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Node features, for graph classification.
    #[arg(long, default_value = "auto", value_parser = parse::node_features())]
    pub(crate) node_features: NodeFeatures,
}

impl DataArgs {
    /// Returns true if the flags add the reverse of each edge.
    pub(crate) fn is_symmetrized(&self) -> bool {
        self.symmetrize
    }

    /// Opens or generates a graph, prepares it as the flags request, and prints a summary. For a model of graphs with one type of
    /// nodes alone, the relations of one node type become one graph. A run on links has no notes on the split of nodes.
    pub(crate) fn open(
        &self,
        seed: u64,
        is_of_links: bool,
        model: &ModelArgs,
    ) -> anyhow::Result<OpenedDataset> {
        let is_heterogeneous = self.data.is_heterogeneous()?;
        let needs_one_type = is_heterogeneous && model.needs_one_type();
        if is_heterogeneous && !needs_one_type {
            self.check_unprepared()?;
        }
        let mut data = self.data.load(seed)?;
        if self.verify {
            for note in data.validate().context("the data could not be verified")? {
                if !data.notes.contains(&note) {
                    data.notes.push(note);
                }
            }
        }
        if needs_one_type {
            data = model.join_relations(data)?;
        }
        if self.symmetrize {
            data = data.symmetrize()?;
        }
        let is_standardized = self.standardize.unwrap_or(self.data.is_debian());
        if self.row_normalize {
            data = data.row_normalize()?;
        } else if is_standardized {
            data = data.standardize()?;
        }
        let is_prepared = self.symmetrize || self.row_normalize || is_standardized;
        // The copy comes last, because transformed arrays are in memory already and are not copied again.
        if self.in_memory {
            data = data.in_memory();
        }
        print_rank_zero(&data);
        let notes = data.notes.iter().filter(|note| !(is_of_links && note.is_on_split()));
        print_notes(&notes.cloned().collect::<Vec<_>>());
        // The recorded hash is that of the data before a preparation.
        let recorded_hash = if is_prepared { None } else { self.data.recorded_hash()? };
        Ok(OpenedDataset { data, recorded_hash })
    }

    /// Checks that no flag changes the graph or the features, as it could not those of a heterogeneous dataset.
    fn check_unprepared(&self) -> anyhow::Result<()> {
        for (flag, is_given) in [
            ("standardize", self.standardize == Some(true)),
            ("row-normalize", self.row_normalize),
            ("symmetrize", self.symmetrize),
        ] {
            ensure!(!is_given, "--{flag} does not apply to a heterogeneous dataset: remove it");
        }
        Ok(())
    }
}

/// Opens data at a path with `open`, which gets its format, and prints the format and the time.
fn open_timed<T>(path: &Path, open: impl FnOnce(DatasetFormat) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let started = Instant::now();
    print_name_note(path);
    let kind = kiln::data::detect_format(path)?;
    let data = open(kind)?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    print_rank_zero(format_args!("{} is {kind}, opened in {ms:.0} ms", path.display()));
    Ok(data)
}

/// Prints a note if a path is also the name of a dataset.
pub(crate) fn print_name_note(path: &Path) {
    print_note_lines(kiln::data::note_on_name(path).filter(|_| path.exists()));
}

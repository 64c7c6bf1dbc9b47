use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use kiln_graph::{did_you_mean, similar_name};
use kiln_store::paths::similar_path;

use crate::{Dataset, Error, Note, Result, debian_archive, debian_packages, debian_tags, synthetic};

/// The average number of nodes of `fake` without a number.
const FAKE_DEFAULT: usize = 1000;

/// A dataset that has a name: a built-in set, or a set that [`synthetic`] generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatasetName {
    /// `debian-packages`: packages of Debian, with classes.
    DebianPackages,
    /// `debian-tags`: the graph of `debian-packages` with several labels per package.
    DebianTags,
    /// `debian-archive`: packages, source packages, maintainers and tags of Debian, a heterogeneous set.
    DebianArchive,
    /// `mutag`: a set of graphs.
    Mutag,
    /// `sbm`: a stochastic block model of 10,000 nodes and 8 classes.
    Sbm,
    /// `fake` or `fake:NODES`: a random graph like that of PyG's `FakeDataset`, with this average number of nodes.
    Fake(usize),
}

/// The place of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatasetLocation {
    /// A built-in or synthetic set.
    Name(DatasetName),
    /// A file or folder, which may not exist.
    Path(PathBuf),
}

/// Decides whether a text is the name of a dataset or a path. An existing file or folder takes precedence over a name, and
/// [`note_on_name`] then returns a note. All functions that take a name or a path, and all commands of the program, decide
/// by this function.
///
/// ```
/// use kiln_data::{DatasetLocation, DatasetName, locate};
/// assert_eq!(locate("sbm"), DatasetLocation::Name(DatasetName::Sbm));
/// assert_eq!(locate("./sbm"), DatasetLocation::Path("./sbm".into()));
/// ```
pub fn locate(name_or_path: impl AsRef<Path>) -> DatasetLocation {
    let path = name_or_path.as_ref();
    match DatasetName::of_path(path) {
        Some(name) if !path.exists() => DatasetLocation::Name(name),
        _ => DatasetLocation::Path(path.to_owned()),
    }
}

/// Returns a note if a path, which is read as a file or folder, is also the name of a dataset.
pub fn note_on_name(path: impl AsRef<Path>) -> Option<Note> {
    let path = path.as_ref();
    let name = DatasetName::of_path(path)?;
    Some(Note::HasNameOfDataset { path: path.to_owned(), name: name.to_string() })
}

/// Returns the end of the message about a path that does not exist and is no name of a dataset: it suggests a similar path, or
/// else a similar name. It is empty if there is neither.
///
/// ```
/// use kiln_data::suggest_location;
/// assert_eq!(suggest_location("debian-pakages"), " (did you mean `debian-packages`?)");
/// assert_eq!(suggest_location("papers"), "");
/// ```
pub fn suggest_location(name_or_path: impl AsRef<Path>) -> String {
    let path = name_or_path.as_ref();
    let similar = similar_path(path).map(|similar| similar.display().to_string());
    did_you_mean(similar.as_deref().or_else(|| similar_name(path.to_str()?, DatasetName::NAMES)))
}

impl DatasetName {
    /// The names, in the order of documentation.
    pub const NAMES: [&str; 6] = ["debian-packages", "debian-tags", "debian-archive", "mutag", "sbm", "fake"];

    /// The numbers of nodes that `fake:NODES` may have.
    pub const FAKE_NODES: RangeInclusive<usize> = 10..=10_000_000;

    /// Returns the dataset with a name; `None` for other texts.
    pub fn of(text: &str) -> Option<Self> {
        Some(match text {
            "debian-packages" => Self::DebianPackages,
            "debian-tags" => Self::DebianTags,
            "debian-archive" => Self::DebianArchive,
            "mutag" => Self::Mutag,
            "sbm" => Self::Sbm,
            "fake" => Self::Fake(FAKE_DEFAULT),
            _ => {
                let n_nodes = text.strip_prefix("fake:")?.parse().ok()?;
                Self::FAKE_NODES.contains(&n_nodes).then_some(Self::Fake(n_nodes))?
            }
        })
    }

    fn of_path(path: &Path) -> Option<Self> {
        Self::of(path.to_str()?)
    }

    /// Opens or generates the set of nodes with this name. `seed` is that of synthetic sets.
    ///
    /// # Errors
    /// Returns [`Error::WrongKind`] for the set of graphs.
    pub fn open(self, seed: u64) -> Result<Dataset> {
        match self {
            Self::DebianPackages => debian_packages(),
            Self::DebianTags => debian_tags(),
            Self::DebianArchive => debian_archive(),
            Self::Mutag => Err(self.wrong_kind("a set for tasks on nodes")),
            Self::Sbm => synthetic::sbm(synthetic::SbmConfig {
                n_nodes: 10_000,
                n_classes: 8,
                degree: 10,
                homophily: 0.8,
                dim: 32,
                noise: 2.0,
                seed,
            }),
            Self::Fake(avg_num_nodes) => {
                synthetic::fake(synthetic::FakeConfig { avg_num_nodes, seed, ..Default::default() })
            }
        }
    }

    /// Returns the error for this set where a set of another kind is needed.
    pub(crate) fn wrong_kind(self, expected: &'static str) -> Error {
        let kind = match self {
            Self::DebianArchive => "a heterogeneous set",
            Self::Mutag => "a set of graphs",
            _ => "a set of nodes of one type",
        };
        Error::WrongKind { path: self.to_string().into(), kind: kind.to_owned(), expected }
    }
}

impl fmt::Display for DatasetName {
    /// Writes the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DebianPackages => "debian-packages",
            Self::DebianTags => "debian-tags",
            Self::DebianArchive => "debian-archive",
            Self::Mutag => "mutag",
            Self::Sbm => "sbm",
            Self::Fake(n_nodes) => return write!(f, "fake:{n_nodes}"),
        })
    }
}

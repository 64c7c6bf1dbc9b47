use std::path::Path;
use std::sync::Arc;

use kiln_data::Split;
use kiln_feature::Labels;

use crate::typed::is_typed;
use crate::{Part, PartVerifyReport, Result, TypedPart};

/// A partition of a homogeneous or of a heterogeneous set. Cloning shares it.
#[derive(Debug, Clone)]
pub enum AnyPart {
    /// A partition of a set with one type of nodes.
    Homogeneous(Arc<Part>),
    /// A partition of a set with several types of nodes, or with named relations.
    Heterogeneous(Arc<TypedPart>),
}

impl From<Arc<Part>> for AnyPart {
    fn from(part: Arc<Part>) -> Self {
        Self::Homogeneous(part)
    }
}

impl From<Arc<TypedPart>> for AnyPart {
    fn from(part: Arc<TypedPart>) -> Self {
        Self::Heterogeneous(part)
    }
}

impl AnyPart {
    /// Opens a partition of either kind, which its manifest states, as [`Part::open`] and [`TypedPart::open`] do.
    ///
    /// # Errors
    /// Returns the errors of [`Part::open`] and [`TypedPart::open`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        Ok(match is_typed(folder) {
            true => Self::Heterogeneous(Arc::new(TypedPart::open(folder)?)),
            false => Self::Homogeneous(Arc::new(Part::open(folder)?)),
        })
    }

    /// Verifies a partition of either kind, as [`Part::verify`] and [`TypedPart::verify`] do.
    ///
    /// # Errors
    /// Returns the errors of [`Part::verify`] and [`TypedPart::verify`].
    pub fn verify(folder: impl AsRef<Path>) -> Result<PartVerifyReport> {
        let folder = folder.as_ref();
        if is_typed(folder) { TypedPart::verify(folder) } else { Part::verify(folder) }
    }

    /// Returns the index of the partition, from 0.
    pub fn index(&self) -> usize {
        match self {
            Self::Homogeneous(part) => part.index,
            Self::Heterogeneous(part) => part.index,
        }
    }

    /// Returns the number of partitions.
    pub fn n_parts(&self) -> usize {
        match self {
            Self::Homogeneous(part) => part.book.n_parts(),
            Self::Heterogeneous(part) => part.book.n_parts(),
        }
    }

    /// Returns the name of the whole set.
    pub fn name(&self) -> &str {
        match self {
            Self::Homogeneous(part) => &part.name,
            Self::Heterogeneous(part) => &part.name,
        }
    }

    /// Returns the hash of the whole set.
    pub fn hash(&self) -> &str {
        match self {
            Self::Homogeneous(part) => &part.hash,
            Self::Heterogeneous(part) => &part.hash,
        }
    }

    /// Returns the hash of the partitioning, the same in all its partitions.
    pub fn partition_hash(&self) -> &str {
        match self {
            Self::Homogeneous(part) => &part.partition_hash,
            Self::Heterogeneous(part) => &part.partition_hash,
        }
    }

    /// Returns the number of nodes that the partition owns.
    pub fn n_owned(&self) -> usize {
        match self {
            Self::Homogeneous(part) => part.old_ids.len(),
            Self::Heterogeneous(part) => part.n_owned(),
        }
    }

    /// Returns the number of edges into the nodes that the partition owns.
    pub fn n_edges(&self) -> u64 {
        match self {
            Self::Homogeneous(part) => part.graph.n_edges(),
            Self::Heterogeneous(part) => part.n_edges(),
        }
    }

    /// Returns the classes of the nodes that may have labels: all nodes, or those of [`TypedPart::target_type`].
    pub fn labels(&self) -> &Arc<Labels> {
        match self {
            Self::Homogeneous(part) => &part.labels,
            Self::Heterogeneous(part) => &part.labels,
        }
    }

    /// Returns the split of the whole set.
    pub fn split(&self) -> &Split {
        match self {
            Self::Homogeneous(part) => &part.split,
            Self::Heterogeneous(part) => &part.split,
        }
    }

    /// Returns the name of each class; the numbers from 0 if classes have no names.
    pub fn class_names(&self) -> &[String] {
        match self {
            Self::Homogeneous(part) => &part.class_names,
            Self::Heterogeneous(part) => &part.class_names,
        }
    }
}

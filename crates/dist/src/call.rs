use std::fmt;

use crate::error::Meeting;
use crate::sums::Number;

/// A collective and all that ranks must agree on to meet in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    AllReduceSum {
        n_values: usize,
        /// The values' type.
        element: &'static str,
    },
    AllGather,
    AllToAll,
    Broadcast {
        /// A rank of the world.
        root: usize,
    },
    Barrier,
}

impl Call {
    /// The sum of values like these.
    pub(crate) fn all_reduce_sum<T: Number>(values: &[T]) -> Self {
        Self::AllReduceSum { n_values: values.len(), element: T::NAME }
    }

    pub(crate) fn meeting(&self, number: u64, group: &str) -> Meeting {
        Meeting { collective: self.to_string(), number, group: group.to_owned() }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduceSum { n_values, element } => write!(f, "all_reduce_sum of {n_values} {element}"),
            Self::AllGather => f.write_str("all_gather"),
            Self::AllToAll => f.write_str("all_to_all"),
            Self::Broadcast { root } => write!(f, "broadcast from rank {root}"),
            Self::Barrier => f.write_str("barrier"),
        }
    }
}

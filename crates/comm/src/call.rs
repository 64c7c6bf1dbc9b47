use std::fmt;

use crate::cause::Meeting;
use crate::sums::Number;

/// A collective with the arguments that must be equal on all ranks. Messages show it by its `Display` text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// An element-wise sum over the ranks, in host memory. `element` is the name of the element type.
    AllReduceSum {
        n_values: usize,
        element: &'static str,
    },
    /// An element-wise sum over processes, in device memory. The watchdog checks its deadline as for other collectives.
    #[cfg(feature = "grpc")]
    DeviceSum {
        n_values: usize,
    },
    AllGather,
    AllToAll,
    /// A broadcast; `root` is a rank of the world.
    Broadcast {
        root: usize,
    },
    Barrier,
}

impl Call {
    /// Returns the call that sums slices of this length and element type.
    pub(crate) fn all_reduce_sum<T: Number>(values: &[T]) -> Self {
        Self::AllReduceSum { n_values: values.len(), element: T::NAME }
    }

    /// Describes this call as the collective `number` of the group named `group`.
    pub(crate) fn meeting(&self, number: u64, group: &str) -> Meeting {
        Meeting { collective: self.to_string(), number, group: group.to_owned() }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduceSum { n_values, element } => write!(f, "all_reduce_sum of {n_values} {element}"),
            #[cfg(feature = "grpc")]
            Self::DeviceSum { n_values } => write!(f, "device_sum of {n_values} f32"),
            Self::AllGather => f.write_str("all_gather"),
            Self::AllToAll => f.write_str("all_to_all"),
            Self::Broadcast { root } => write!(f, "broadcast from rank {root}"),
            Self::Barrier => f.write_str("barrier"),
        }
    }
}

/// Returns the name of a child group. `nth` counts the groups of this name that the parent has created before. The
/// world has an empty name. Engines identify groups by these names, so all ranks must derive the same one.
pub(crate) fn group_name(name: &str, nth: u64, parent: &str) -> String {
    let taking = if nth > 0 { format!(" (taking {})", nth + 1) } else { String::new() };
    let parent = if parent.is_empty() { String::new() } else { format!(" of {parent}") };
    format!("{name}{taking}{parent}")
}

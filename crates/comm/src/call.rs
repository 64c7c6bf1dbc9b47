use std::fmt;

use crate::cause::Meeting;
use crate::sums::Number;

/// A collective and all that ranks must agree on to meet in it. Its text is what messages call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// A sum of so many values of each rank, of this type.
    AllReduceSum {
        n_values: usize,
        element: &'static str,
    },
    /// A sum of so many values of each rank, on a device: between processes, which watch it.
    #[cfg(feature = "grpc")]
    DeviceSum {
        n_values: usize,
    },
    AllGather,
    AllToAll,
    /// From this rank of the world.
    Broadcast {
        root: usize,
    },
    Barrier,
}

impl Call {
    /// The sum of values like these.
    pub(crate) fn all_reduce_sum<T: Number>(values: &[T]) -> Self {
        Self::AllReduceSum { n_values: values.len(), element: T::NAME }
    }

    /// The meeting of a group's ranks in it, the `number`-th of the group.
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

/// What messages call the `nth` group (from 0) of this name that was taken from the parent; the world has no name.
pub(crate) fn group_name(name: &str, nth: u64, parent: &str) -> String {
    let taking = if nth > 0 { format!(" (taking {})", nth + 1) } else { String::new() };
    let parent = if parent.is_empty() { String::new() } else { format!(" of {parent}") };
    format!("{name}{taking}{parent}")
}

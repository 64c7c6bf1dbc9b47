//! The arrays that two folder formats share: the kiln format ([`format`](crate::format)) and the partitions of a graph.
//! Both are [`array_folder`](kiln_store::array_folder)s with the same file names for topology, targets and split; a
//! [`RowFiles`] contains the file names of feature rows.

mod class_names;
mod edges;
mod link_values;
mod links;
mod row_files;
mod rows;
mod target_values;
mod targets;
mod task_files;

use kiln_store::array_folder::ArrayFolder;

use crate::{Result, Split};

pub use self::class_names::{check_class_names, check_feature_columns, class_names_of, class_names_to_write};
pub use self::edges::{
    column_element, column_entries, column_file, column_files, read_csc, start_column, verify_columns,
};
pub(crate) use self::edges::{column_in_file, csc_with_columns, write_columns};
pub(crate) use self::link_values::{LINK_VALUES, link_value_entries, read_link_values, write_link_values};
pub(crate) use self::links::{
    LINK_FILES, NEGATIVES, check_negative_entries, link_entries, read_link_targets, shape_of_negatives,
    write_link_targets,
};
pub(crate) use self::row_files::FEATURE_FILES;
pub use self::row_files::{FEATURES, RowFiles};
pub use self::rows::{check_gathered, push_rows, read_rows, row_element_type, verify_rows};
pub(crate) use self::target_values::ValueFiles;
pub use self::targets::{
    LABELS, TARGETS, check_target_files, read_targets, target_files, verify_targets, write_targets,
};
pub(crate) use self::task_files::TaskFiles;
pub use crate::arrays::numbered;

/// The file name of the times of nodes.
pub const NODE_TIMES: &str = "node_times.npy";

/// Returns the split in `train.npy`, `val.npy` and `test.npy`.
///
/// # Errors
/// Returns the errors of [`ArrayFolder::values`].
pub fn read_split(arrays: &ArrayFolder) -> Result<Split> {
    Ok(Split {
        train: arrays.values("train.npy")?,
        val: arrays.values("val.npy")?,
        test: arrays.values("test.npy")?,
    })
}

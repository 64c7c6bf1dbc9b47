use std::borrow::Cow;

use crate::arrays::numbered;
use crate::graph_folder::{FEATURES, RowFiles};
use crate::layout::Layout;

impl Layout {
    /// Returns the name of a file of the node type or relation at a position.
    pub(super) fn file(self, name: &'static str, position: usize) -> Cow<'static, str> {
        match self {
            Self::Plain => Cow::Borrowed(name),
            Self::Numbered => Cow::Owned(numbered(name, position)),
        }
    }

    /// Returns the files of the features of the node type at a position.
    pub(super) fn feature_files(self, position: usize) -> RowFiles {
        match self {
            Self::Plain => FEATURES,
            Self::Numbered => FEATURES.of_type(position),
        }
    }
}

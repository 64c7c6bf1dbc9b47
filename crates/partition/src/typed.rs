//! Partitions of heterogeneous sets.

mod book;
mod manifest;
mod part;
mod verify;
mod write;

pub use self::book::TypedPartitionBook;
pub(crate) use self::manifest::is_typed;
pub use self::part::{PartOfRelation, PartOfType, TypedPart};
pub use self::write::write_typed_parts;

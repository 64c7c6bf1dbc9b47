//! Edge lists that are read in chunks.

mod arrays;
mod columns;
mod header;
mod list;
mod source;
mod table;

pub(crate) use self::columns::ColumnArray;
pub use self::list::read_pairs;
pub(crate) use self::list::{EdgeList, edge_list_of, read_links};
pub(crate) use self::source::CHUNK_EDGES;
pub use self::source::{ColumnFormat, EdgeChunk, EdgeSource};

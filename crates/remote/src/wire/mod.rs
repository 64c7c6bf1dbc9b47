//! The protocol between clients and servers: the messages of `proto/graph.proto`, the encoding of their arrays, and the
//! limits that both sides rely on.

pub(crate) mod encoding;
pub(crate) mod limits;
pub(crate) mod proto;
pub(crate) mod row_format;
pub(crate) mod wanted;

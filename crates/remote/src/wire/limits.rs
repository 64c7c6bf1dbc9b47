use std::time::Duration;

/// The version of the protocol between clients and servers.
pub(crate) const PROTOCOL: u32 = 9;

/// The interval of HTTP/2 keep-alive pings, on both sides of a connection.
pub(crate) const BEAT: Duration = Duration::from_secs(2);

/// The timeout of a keep-alive ping, after which the connection is closed.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// The HTTP/2 flow-control window of a stream and of a connection, in bytes.
pub(crate) const WINDOW_BYTES: u32 = 16 << 20;

/// The largest message in bytes that a client accepts. A chunk of a response has at least one row, which may be wide.
pub(crate) const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The largest request in bytes.
pub(crate) const MAX_QUESTION_BYTES: usize = 2 << 20;

/// The maximum number of feature rows in one request. That many row ids take 1 MiB.
pub(crate) const MAX_ROWS: usize = 1 << 18;

/// The maximum number of feature rows of edges in one request. That many edges take 1.5 MiB.
pub(crate) const MAX_EDGES: usize = 1 << 17;

/// The maximum number of destinations in one request for edges. Their rows and times take 192 KiB. With usual fanouts, the response to such a request has
/// a few MiB.
pub(crate) const MAX_DSTS: usize = 1 << 14;

/// The maximum number of edges to leave out in one request. They take 1 MiB.
pub(crate) const MAX_EXCLUDED: usize = 1 << 17;

/// The number of times for which a process keeps the edges of its partition that were known before them.
pub(crate) const MAX_CUTS: usize = 8;

/// The maximum number of in-flight requests on one connection.
pub(crate) const MAX_QUESTIONS: u32 = 512;

//! Requests for feature rows, of nodes or of edges, to the servers that hold them.

use std::sync::Arc;

use crate::client::graph::DistGraph;
use crate::client::peer::{Owner, Peer, ReplyEvent};
use crate::client::question::Question;
use crate::client::replies::{PeerRequest, PendingReplies};
use crate::wire::wanted::WantedRow;
use crate::{Error, Result};

/// The target size in bytes of a response with feature rows. A single row above it is requested alone.
const ANSWER_BYTES: usize = 4 << 20;

/// The requests for the remote rows of one gather. Equal rows that follow each other are requested once.
pub(crate) struct RowRequests<'a, K> {
    /// What is requested, for errors.
    asked: &'static str,
    graph: &'a DistGraph,
    requests: Vec<RowRequest<'a, K>>,
    row_bytes: usize,
}

/// The rows of one request, each with all its positions in the output.
struct RowRequest<'a, K> {
    peer: &'a Arc<Peer>,
    rows: Vec<&'a [WantedRow<K>]>,
}

impl<'a, K: Copy + PartialEq> RowRequests<'a, K> {
    /// Divides the rows to fetch from each partition into requests of at most `most_rows` rows.
    pub(crate) fn new(
        asked: &'static str,
        graph: &'a DistGraph,
        wanted: &'a [Vec<WantedRow<K>>],
        row_bytes: usize,
        most_rows: usize,
    ) -> Self {
        let rows_at_once = (ANSWER_BYTES / row_bytes).clamp(1, most_rows);
        let mut requests = Vec::new();
        for (part, wanted) in wanted.iter().enumerate() {
            let Owner::Remote(peer) = graph.owner(part) else { continue };
            let distinct = wanted.chunk_by(|a, b| a.0 == b.0).collect::<Vec<_>>();
            requests
                .extend(distinct.chunks(rows_at_once).map(|rows| RowRequest { peer, rows: rows.to_vec() }));
        }
        Self { asked, graph, requests, row_bytes }
    }

    /// Returns the number of requested rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.requests.iter().map(|request| request.rows.len()).sum()
    }

    /// Sends all requests concurrently. `question` makes a request from the keys of its rows.
    pub(crate) fn send(&self, question: impl Fn(Vec<K>) -> Question) -> PendingReplies<'a> {
        self.graph.ask(self.requests.iter().map(|RowRequest { peer, rows }| PeerRequest {
            peer: Arc::clone(*peer),
            question: question(rows.iter().map(|positions| positions[0].0).collect()),
            n_bytes: rows.len() * self.row_bytes,
        }))
    }

    /// Waits for all responses, and copies their rows to their positions in `out`. Calls `on_rows` for each chunk, with
    /// its rows, each with all its positions, and their bytes.
    ///
    /// # Errors
    /// Returns [`Error::Server`] if a response does not consist of the requested rows, and the error of a request that fails.
    pub(crate) fn receive(
        &self,
        mut replies: PendingReplies<'_>,
        out: &mut [u8],
        mut on_rows: impl FnMut(&[&[WantedRow<K>]], &[u8]),
    ) -> Result<()> {
        let (asked, row_bytes) = (self.asked, self.row_bytes);
        let mut n_received = vec![0; self.requests.len()];
        while let Some(event) = replies.next()? {
            match event {
                ReplyEvent::Piece { number, start, bytes } => {
                    let end = start as usize + bytes.len();
                    let request = &self.requests[number];
                    let rows = request.put(start as usize, &bytes, row_bytes, out);
                    on_rows(rows.ok_or_else(|| request.bad(asked, end, row_bytes))?, &bytes);
                    n_received[number] = end;
                }
                ReplyEvent::End { number, .. } => {
                    let (request, n_bytes) = (&self.requests[number], n_received[number]);
                    if n_bytes != request.rows.len() * row_bytes {
                        return Err(request.bad(asked, n_bytes, row_bytes));
                    }
                }
            }
        }
        Ok(())
    }
}

impl<'a, K> RowRequest<'a, K> {
    /// Copies the rows of a chunk to their positions in the output. Returns the chunk's rows with their positions, and
    /// `None` if the chunk does not consist of whole rows of this request.
    fn put(
        &self,
        start: usize,
        bytes: &[u8],
        row_bytes: usize,
        out: &mut [u8],
    ) -> Option<&[&'a [WantedRow<K>]]> {
        let is_whole = start.is_multiple_of(row_bytes) && bytes.len().is_multiple_of(row_bytes);
        let rows =
            self.rows.get(start / row_bytes..(start + bytes.len()) / row_bytes).filter(|_| is_whole)?;
        for (row, positions) in bytes.chunks_exact(row_bytes).zip(rows) {
            for (_, position) in *positions {
                out[*position as usize * row_bytes..][..row_bytes].copy_from_slice(row);
            }
        }
        Some(rows)
    }

    fn bad(&self, asked: &'static str, n_bytes: usize, row_bytes: usize) -> Error {
        let expected = format!("{} rows of {row_bytes} bytes, each in one chunk", self.rows.len());
        self.peer.bad_answer(asked, expected, format!("{n_bytes} bytes"))
    }
}

//! Requests to servers and their in-flight responses.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::fetch_stats::{Counters, count};
use crate::client::peer::{Peer, ReplyEvent};
use crate::client::question::Question;
use crate::{Error, Result};

/// The number of received chunks that are buffered for the requesting thread.
pub(crate) const PIECES_AHEAD: usize = 16;

/// A request to a server.
pub(crate) struct PeerRequest {
    pub(crate) peer: Arc<Peer>,
    pub(crate) question: Question,
    /// The expected size of the response in bytes.
    pub(crate) n_bytes: usize,
}

/// The responses to in-flight requests. Dropping this value cancels the requests.
pub(crate) struct PendingReplies<'a> {
    pub(crate) counters: &'a Counters,
    // The tasks are cancelled when the set is dropped.
    #[allow(dead_code, reason = "held for its drop")]
    pub(crate) tasks: JoinSet<()>,
    pub(crate) pieces: mpsc::Receiver<ReplyEvent>,
    pub(crate) n_open: usize,
}

impl PendingReplies<'_> {
    /// Waits for the next event. Returns `None` once all responses are complete, and the error of a response that
    /// fails.
    pub(crate) fn next(&mut self) -> Result<Option<ReplyEvent>> {
        if self.n_open == 0 {
            return Ok(None);
        }
        let Some(told) = self.pieces.blocking_recv() else {
            return Err(Error::BadParts { reason: "the network threads have ended".to_owned() });
        };
        match told {
            ReplyEvent::Piece { ref bytes, .. } => count(&self.counters.remote_bytes, bytes.len()),
            ReplyEvent::End { outcome: Err(error), .. } => return Err(error),
            ReplyEvent::End { .. } => self.n_open -= 1,
        }
        Ok(Some(told))
    }

    /// Waits for all responses, and returns them in the order of the requests.
    pub(crate) fn collect(mut self, n_questions: usize) -> Result<Vec<Vec<u8>>> {
        let mut answers = vec![Vec::new(); n_questions];
        while let Some(told) = self.next()? {
            if let ReplyEvent::Piece { number, start, bytes } = told {
                put(&mut answers[number], start, &bytes);
            }
        }
        Ok(answers)
    }
}

/// Truncates the response to `start` bytes and appends a chunk. `start` is the length of the response so far, or less
/// if a retry sends the response again.
pub(crate) fn put(answer: &mut Vec<u8>, start: u64, bytes: &[u8]) {
    answer.truncate(start as usize);
    answer.extend_from_slice(bytes);
}

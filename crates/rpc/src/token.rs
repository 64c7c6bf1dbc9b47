use std::fmt;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::{Error, Result};

/// The key under which each call carries the token.
const KEY: &str = "kiln-token";

/// A secret word, which all processes that talk to each other know. As an interceptor of a client it is put on each call.
#[derive(Clone)]
pub struct Token(MetadataValue<Ascii>);

impl Token {
    /// The word as it was agreed on.
    ///
    /// # Errors
    /// [`Error::BadToken`] when it is short or cannot be sent.
    pub fn new(text: &str) -> Result<Self> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let value = text.parse().ok().filter(|_| is_visible && 8 <= text.len());
        value.map(Self).ok_or(Error::BadToken)
    }

    /// A word that nobody guesses, to be told to the others.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn random_text() -> Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| Error::NoRandomness { reason: error.to_string() })?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The word, to be told to the others.
    pub fn word(&self) -> &str {
        // It was made of one.
        self.0.to_str().unwrap_or_default()
    }

    /// Whether they are equal; takes as long for any two of one length.
    fn is(&self, other: &MetadataValue<Ascii>) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        let differences = own.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b));
        own.len() == other.len() && differences == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        request.metadata_mut().insert(KEY, self.0.clone());
        Ok(request)
    }
}

/// Lets calls through that carry the token: an interceptor of a server.
#[derive(Debug, Clone)]
pub struct Guard {
    pub(crate) token: Token,
    pub(crate) refusal: &'static str,
}

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> std::result::Result<Request<()>, Status> {
        match request.metadata().get(KEY) {
            Some(other) if self.token.is(other) => Ok(request),
            _ => Err(Status::unauthenticated(self.refusal)),
        }
    }
}

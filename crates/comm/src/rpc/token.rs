use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::rpc::{Admission, Error, Result, Throttle};

/// The metadata key of the token.
const KEY: &str = "kiln-token";

/// The minimum length of a token in bytes, that of 64 random bits in hexadecimal.
const MIN_BYTES: usize = 16;

/// The minimum time between log lines about calls with a wrong token.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A secret shared by all processes that communicate. As a client interceptor, it adds itself to each call.
#[derive(Clone)]
pub struct Token(MetadataValue<Ascii>);

impl Token {
    /// Creates a token from a text.
    ///
    /// # Errors
    /// Returns [`Error::BadToken`] if the text has fewer than 16 bytes, repeats a single character, or contains
    /// anything but visible ASCII characters.
    pub fn new(text: &str) -> Result<Self> {
        let bad = |found: String| Error::BadToken { found };
        if let Some(at) = text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            return Err(bad(format!("byte {at} is not a visible ASCII character")));
        }
        if text.len() < MIN_BYTES {
            return Err(bad(format!("it has {} bytes", text.len())));
        }
        if text.bytes().all(|byte| text.starts_with(char::from(byte))) {
            return Err(bad("it repeats a single character".to_owned()));
        }
        text.parse().map(Self).map_err(|_| bad("it cannot be sent".to_owned()))
    }

    /// Returns a text of 128 random bits in hexadecimal, for [`Token::new`] on all processes.
    ///
    /// # Errors
    /// Returns [`Error::NoRandomness`] if the system provides no random numbers.
    pub fn random_text() -> Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| Error::NoRandomness { reason: error.to_string() })?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the secret text, for passing it to the other processes.
    pub fn word(&self) -> &str {
        // The value was parsed from visible ASCII characters, so the conversion cannot fail.
        self.0.to_str().unwrap_or_default()
    }

    /// Compares two tokens in a time that depends on their lengths only.
    fn is(&self, other: &MetadataValue<Ascii>) -> bool {
        let own = self.0.as_bytes();
        let other = other.as_bytes();
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

/// A server interceptor that accepts calls with the token. It rejects and counts all other calls, and logs at most one
/// line a minute about them.
#[derive(Debug, Clone)]
pub struct AuthInterceptor {
    token: Token,
    refusal: &'static str,
    admits: Admits,
    wrong: Arc<Throttle>,
}

/// The condition under which a connection is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admits {
    /// A call with the token suffices.
    Token,
    /// The service admits connections itself.
    Service,
}

impl AuthInterceptor {
    pub(crate) fn new(token: Token, refusal: &'static str) -> Self {
        Self { token, refusal, admits: Admits::Token, wrong: Arc::new(Throttle::new(LOG_EVERY)) }
    }

    /// Lets the service decide which connections are admitted (see [`Admission`]); the token alone does not suffice.
    pub fn without_admission(self) -> Self {
        Self { admits: Admits::Service, ..self }
    }

    /// Returns the counter of calls with a missing or wrong token.
    pub fn wrong_tokens(&self) -> Arc<Throttle> {
        Arc::clone(&self.wrong)
    }

    fn refuse(&self, admission: Option<&Admission>) -> Status {
        let from =
            admission.map_or_else(|| "an unknown peer".to_owned(), |admission| admission.peer().to_string());
        self.wrong.event(|n_calls| {
            tracing::warn!(
                name: "wrong-token", target: "kiln_comm::rpc", n_calls, peer = %from,
                "calls with a missing or wrong token: {n_calls} so far, the last one from {from}"
            );
        });
        if let Some(admission) = admission {
            admission.refuse();
        }
        Status::unauthenticated(self.refusal)
    }
}

impl Interceptor for AuthInterceptor {
    fn call(&mut self, request: Request<()>) -> std::result::Result<Request<()>, Status> {
        let admission = request.extensions().get::<Admission>();
        match request.metadata().get(KEY) {
            Some(other) if self.token.is(other) => {}
            _ => return Err(self.refuse(admission)),
        }
        if let (Admits::Token, Some(admission)) = (self.admits, admission) {
            admission.admit();
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_tokens_that_are_short_uniform_or_unsendable() {
        for (text, expected) in [
            ("", "it has 0 bytes"),
            ("fifteen-bytes-x", "it has 15 bytes"),
            ("aaaaaaaaaaaaaaaaaaaa", "it repeats a single character"),
            ("with a space, but long enough", "byte 4 is not a visible ASCII character"),
            ("a-word-with-umlauts-\u{e4}", "byte 20 is not a visible ASCII character"),
        ] {
            let error = Token::new(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("at least 16"), "{text}: {error}");
            assert!(text.is_empty() || !error.contains(text), "the error shows the token: {error}");
        }
        for text in ["sixteen-bytes-xy".to_owned(), Token::random_text().unwrap()] {
            assert_eq!(Token::new(&text).unwrap().word(), text);
        }
    }

    fn call(guard: &mut AuthInterceptor, token: Option<&str>, admission: &Admission) -> bool {
        let mut request = Request::new(());
        if let Some(token) = token {
            request.metadata_mut().insert(KEY, token.parse().unwrap());
        }
        request.extensions_mut().insert(admission.clone());
        guard.call(request).is_ok()
    }

    #[test]
    fn counts_calls_with_a_wrong_token() {
        let mut guard = AuthInterceptor::new(Token::new("the-word-of-this-test").unwrap(), "another token");
        let stranger = Admission::new(([127, 0, 0, 1], 1).into());
        for token in [None, Some("another-word-of-this-test"), Some("the-word-of-this-tes")] {
            // Clones of the interceptor share one counter.
            assert!(!call(&mut guard.clone(), token, &stranger));
        }
        assert_eq!((guard.wrong_tokens().n_events(), stranger.is_admitted()), (3, false));
        let friend = Admission::new(([127, 0, 0, 1], 2).into());
        assert!(call(&mut guard, Some("the-word-of-this-test"), &friend));
        assert!(friend.is_admitted());
        assert!(
            !call(&mut guard, None, &friend) && friend.is_admitted(),
            "one wrong call should not close the connection"
        );
        let mut guard = guard.without_admission();
        let late = Admission::new(([127, 0, 0, 1], 3).into());
        assert!(call(&mut guard, Some("the-word-of-this-test"), &late) && !late.is_admitted());
    }
}

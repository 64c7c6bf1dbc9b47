use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::rpc::{Admission, Error, Result, Throttle};

/// The key under which each call carries the token.
const KEY: &str = "kiln-token";

/// The shortest token, in bytes: as long as 64 random bits in hexadecimal.
const MIN_BYTES: usize = 16;

/// How often calls with a wrong token are logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A secret word, which all processes that talk to each other know. As an interceptor of a client it is put on each call.
#[derive(Clone)]
pub struct Token(MetadataValue<Ascii>);

impl Token {
    /// The word as it was agreed on.
    ///
    /// # Errors
    /// [`Error::BadToken`] when it is shorter than 16 bytes, repeats a single character or cannot be sent.
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

/// An interceptor of a server, which lets calls through that carry the token. Counts the others and logs them, at most
/// one line a minute.
#[derive(Debug, Clone)]
pub struct AuthInterceptor {
    token: Token,
    refusal: &'static str,
    admits: Admits,
    wrong: Arc<Throttle>,
}

/// What a connection must have done to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admits {
    /// A call with the token.
    Token,
    /// What the service asks for, which admits by itself.
    Service,
}

impl AuthInterceptor {
    pub(crate) fn new(token: Token, refusal: &'static str) -> Self {
        Self { token, refusal, admits: Admits::Token, wrong: Arc::new(Throttle::new(LOG_EVERY)) }
    }

    /// Leaves it to the service which connections are kept ([`Admission`]): the token alone is not enough.
    pub fn without_admission(self) -> Self {
        Self { admits: Admits::Service, ..self }
    }

    /// The calls without the token or with another one.
    pub fn wrong_tokens(&self) -> Arc<Throttle> {
        Arc::clone(&self.wrong)
    }

    fn refuse(&self, admission: Option<&Admission>) -> Status {
        let from = admission.map_or_else(|| "somewhere".to_owned(), |admission| admission.peer().to_string());
        self.wrong
            .event(|n| format!("calls with a wrong token or none: {n} so far, the last one from {from}"));
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
            // A service's clones count together.
            assert!(!call(&mut guard.clone(), token, &stranger));
        }
        assert_eq!((guard.wrong_tokens().n_events(), stranger.is_admitted()), (3, false));
        let friend = Admission::new(([127, 0, 0, 1], 2).into());
        assert!(call(&mut guard, Some("the-word-of-this-test"), &friend));
        assert!(friend.is_admitted());
        assert!(
            !call(&mut guard, None, &friend) && friend.is_admitted(),
            "one wrong call costs no connection"
        );
        let mut guard = guard.without_admission();
        let late = Admission::new(([127, 0, 0, 1], 3).into());
        assert!(call(&mut guard, Some("the-word-of-this-test"), &late) && !late.is_admitted());
    }
}

use std::error::Error as StdError;
#[cfg(feature = "tls")]
use std::io;
use std::path::PathBuf;

use tonic::transport::{Endpoint, Server};

#[cfg(feature = "tls")]
use crate::rpc::secret::read_regular;
use crate::rpc::{Error, Result};

/// The PEM files for mutual TLS: each process presents its certificate, and accepts those that the authority has
/// signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The certificate of this process. A server's must be valid for the host name that clients connect to.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

#[cfg(feature = "tls")]
impl Tls {
    pub(crate) fn server(&self, builder: Server) -> Result<Server> {
        use tonic::transport::ServerTlsConfig;
        let (authority, identity) = self.read()?;
        let config = ServerTlsConfig::new().identity(identity).client_ca_root(authority);
        builder.tls_config(config).map_err(refused)
    }

    pub(crate) fn client(&self, endpoint: Endpoint) -> Result<Endpoint> {
        use tonic::transport::ClientTlsConfig;
        let (authority, identity) = self.read()?;
        let config = ClientTlsConfig::new().identity(identity).ca_certificate(authority);
        endpoint.tls_config(config).map_err(refused)
    }

    fn read(&self) -> Result<(tonic::transport::Certificate, tonic::transport::Identity)> {
        let read = |path: &PathBuf| {
            read_regular(path).map_err(|error| Error::Tls { reason: format!("{}: {error}", path.display()) })
        };
        let Self { authority, certificate, key } = self;
        let identity = tonic::transport::Identity::from_pem(read(certificate)?, read(key)?);
        Ok((tonic::transport::Certificate::from_pem(read(authority)?), identity))
    }
}

#[cfg(feature = "tls")]
fn refused(error: tonic::transport::Error) -> Error {
    Error::Tls { reason: crate::failure::error_text(&error) }
}

/// Returns true if a call or connection failed because of certificates or the TLS handshake, so a retry would fail
/// again.
#[cfg(feature = "tls")]
pub fn is_tls_failure(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = match error.downcast_ref::<h2::Error>() {
            Some(error) => error.get_io(),
            None => error.downcast_ref::<io::Error>(),
        };
        if error.is::<rustls::Error>() || io.is_some_and(is_of_tls) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns false, because there is no TLS without the feature `tls`.
#[cfg(not(feature = "tls"))]
pub fn is_tls_failure(_: &(dyn StdError + 'static)) -> bool {
    false
}

/// Returns true if an I/O error comes from TLS. An alert after the handshake passes through HTTP/2, which keeps the
/// kind of the error but drops its type. The kind `InvalidData` occurs for alerts and corrupt records only, never in
/// plain TCP.
#[cfg(feature = "tls")]
fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData || error.get_ref().is_some_and(|inner| is_tls_failure(inner))
}

/// Without the feature `tls`, certificates cause an error, so connections never run without TLS by mistake.
#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) fn server(&self, _: Server) -> Result<Server> {
        Err(not_built())
    }

    pub(crate) fn client(&self, _: Endpoint) -> Result<Endpoint> {
        Err(not_built())
    }
}

#[cfg(not(feature = "tls"))]
fn not_built() -> Error {
    Error::Tls { reason: "this program was built without the feature `tls`".to_owned() }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    /// An error that wraps another one.
    #[derive(Debug, thiserror::Error)]
    #[error("transport error")]
    struct Outer(#[source] Box<dyn StdError + Send + Sync>);

    #[test]
    fn detects_tls_errors_by_type_and_not_by_text() {
        let alert = || rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        let of_tls: [Box<dyn StdError + Send + Sync>; 3] = [
            Box::new(alert()),
            Box::new(io::Error::other(alert())),
            Box::new(Outer(Box::new(io::Error::new(io::ErrorKind::InvalidData, alert())))),
        ];
        for error in of_tls {
            assert!(is_tls_failure(&Outer(error)));
        }
        let text = "received fatal alert: the certificate is a corrupt message";
        let others: [Box<dyn StdError + Send + Sync>; 3] = [
            Box::new(io::Error::other(text)),
            Box::new(io::Error::new(io::ErrorKind::ConnectionReset, text)),
            Box::new(tonic::Status::unavailable(text)),
        ];
        for error in others {
            assert!(!is_tls_failure(&Outer(error)));
        }
    }
}

use std::error::Error as StdError;
#[cfg(feature = "tls")]
use std::io;
use std::path::PathBuf;

use tonic::transport::{Endpoint, Server};

use crate::rpc::{Error, Result};

/// Certificates by which processes know each other, as PEM files: each shows its own, and takes those that the authority
/// has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// This process's certificate, for the name of the host that others reach it by, if it serves.
    pub certificate: PathBuf,
    /// Its private key.
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
            let failed = |error| Error::Tls { reason: format!("{}: {error}", path.display()) };
            std::fs::read(path).map_err(failed)
        };
        let Self { authority, certificate, key } = self;
        let identity = tonic::transport::Identity::from_pem(read(certificate)?, read(key)?);
        Ok((tonic::transport::Certificate::from_pem(read(authority)?), identity))
    }
}

#[cfg(feature = "tls")]
fn refused(error: tonic::transport::Error) -> Error {
    Error::Tls { reason: crate::failure::chain(&error) }
}

/// Whether certificates or the handshake are why a call or a connection failed: then the same fails again.
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

/// Without the feature there is no handshake.
#[cfg(not(feature = "tls"))]
pub fn is_tls_failure(_: &(dyn StdError + 'static)) -> bool {
    false
}

/// An alert that comes after the handshake reaches us through HTTP/2, which keeps the kind of an error and drops its
/// type. The kind is that of alerts and of damaged records alone: bare TCP connections have no invalid data.
#[cfg(feature = "tls")]
fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData || error.get_ref().is_some_and(|inner| is_tls_failure(inner))
}

/// Without the feature, nobody is let in by a certificate that is not looked at.
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

    /// Some other error around it.
    #[derive(Debug, thiserror::Error)]
    #[error("transport error")]
    struct Outer(#[source] Box<dyn StdError + Send + Sync>);

    #[test]
    fn finds_tls_errors_by_type_and_not_by_text() {
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

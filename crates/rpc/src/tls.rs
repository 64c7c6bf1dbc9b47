use std::path::PathBuf;

use tonic::transport::{Endpoint, Server};

use crate::{Error, Result};

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
    Error::Tls { reason: kiln_dist::chain(&error) }
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

//! Generates certificates of a test authority.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only used with TLS"))]

use std::fs;
use std::path::Path;

use kiln_comm::rpc::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Writes the certificates of an authority and of `n_ranks` ranks, valid for 127.0.0.1, into the folder.
pub(crate) fn write(folder: &Path, n_ranks: usize) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    for rank in 0..n_ranks {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{rank}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{rank}.key")), key.serialize_pem()).unwrap();
    }
}

/// Returns the certificate files of a rank.
pub(crate) fn of(folder: &Path, rank: usize) -> Tls {
    Tls {
        authority: folder.join("authority.pem"),
        certificate: folder.join(format!("{rank}.pem")),
        key: folder.join(format!("{rank}.key")),
    }
}

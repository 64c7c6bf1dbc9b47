//! Servers and clients that authenticate each other by certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kiln_comm::rpc::Tls;
use kiln_remote::{ConnectConfig, DistGraph, ServeConfig, Server};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::cluster::{config, hubs, parts, token};

/// Writes an authority's certificate, a valid certificate for this machine signed by it, and an expired one.
fn write(folder: &Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(folder.join("authority.pem"), params.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    for (name, year) in [("good", 4000), ("old", 2001)] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        std::fs::write(folder.join(format!("{name}.pem")), params.signed_by(&key, &issuer).unwrap().pem())
            .unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn tls(authority: &Path, own: &Path, name: &str) -> Option<Tls> {
    let in_own = |file: String| -> PathBuf { own.join(file) };
    let (certificate, key) = (in_own(format!("{name}.pem")), in_own(format!("{name}.key")));
    Some(Tls { authority: authority.join("authority.pem"), certificate, key })
}

#[test]
fn rejects_foreign_expired_and_missing_certificates() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(ours.path());
    write(theirs.path());
    let parts = parts(&hubs(), 1, |_| 0, None);
    let good = tls(ours.path(), ours.path(), "good");
    let serve = |tls| {
        let config = ServeConfig { tls, ..ServeConfig::new("127.0.0.1:0", token()) };
        Server::start(Arc::clone(&parts[0]), config).unwrap()
    };
    let (server, plain) = (serve(good.clone()), serve(None));
    let connect = |server: &Server, tls: Option<Tls>| {
        // Without TLS the client cannot read the server's reason, and retries until the timeout.
        let join_within = if tls.is_some() { Duration::from_secs(120) } else { Duration::from_millis(700) };
        let config = config(vec![server.address().to_string()]);
        DistGraph::connect(ConnectConfig { tls, join_within, ..config }).map(|graph| graph.n_nodes())
    };
    assert_eq!(connect(&server, good.clone()).unwrap(), 500);
    let strangers = [
        ("with a certificate of another authority", &server, tls(ours.path(), theirs.path(), "good")),
        ("that trusts another authority", &server, tls(theirs.path(), ours.path(), "good")),
        ("with an expired certificate", &server, tls(ours.path(), ours.path(), "old")),
        ("without certificates", &server, None),
        ("of a server without certificates", &plain, good),
    ];
    for (who, server, tls) in strangers {
        let expected = if tls.is_some() {
            "refused the request: a certificate was rejected: "
        } else {
            "is lost: waited "
        };
        let error = connect(server, tls).unwrap_err().to_string();
        println!("a client {who}: {error}");
        let address = server.address().to_string();
        assert!(error.contains(&address) && error.contains(expected), "{who}: {error}");
        assert_eq!(server.n_clients(), 0, "{who}");
    }
}

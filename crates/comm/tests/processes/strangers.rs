//! Tests of connections to rank 0 from processes without the token.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::start::{DEADLINE, Job};

/// The limit of open files of rank 0.
const N_FILES: usize = 256;

/// The bytes that connections send before they stay idle. In this order, these are nothing, a request in HTTP/1, half
/// of an HTTP/2 preface, a whole one with settings, an incomplete TLS handshake, and noise.
const BEGINNINGS: [&[u8]; 6] = [
    b"",
    b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"PRI * HTT",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    b"\xff\xfe\xfd\xfc\0\0\0\0\x01\x02\x03",
];

fn begin(job: &Job, beginning: &[u8]) -> TcpStream {
    let mut stranger = job.stranger();
    // The write fails if rank 0 has already closed the connection.
    let _ = stranger.write_all(beginning);
    stranger
}

/// Reads until the other side closes the connection; panics if it does not.
fn check_closed(mut stranger: &TcpStream) {
    stranger.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut bytes = [0; 1024];
    loop {
        match stranger.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("rank 0 has not closed a connection: {error}"),
        }
    }
}

/// A job with a limit of 256 open files gets 300 idle connections. It continues and can open files.
#[test]
fn idle_connections_do_not_end_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let vars = [("KILN_TEST_END", end.to_str().unwrap())];
    let mut job = Job::prepare(2, "steps until told");
    job.spawn_with_files(0, N_FILES, &vars);
    job.spawn_with_files(1, N_FILES, &vars);
    job.wait_for("step 20");
    let before = job.n_files(0);
    let address = job.address();
    // The kernel's accept queue has room for fewer than 300 connections, so some are not established at once.
    let stranger = move || TcpStream::connect_timeout(&address, Duration::from_secs(3));
    let strangers: Vec<_> = (0..300).map(|_| std::thread::spawn(stranger)).collect();
    std::thread::sleep(Duration::from_secs(2));
    let n_files = job.n_files(0);
    assert!(n_files <= before + 20, "rank 0 has {n_files} open files, {before} before");
    let strangers: Vec<_> = strangers.into_iter().map(|stranger| stranger.join().unwrap()).collect();
    let n_connected = strangers.iter().filter(|stranger| stranger.is_ok()).count();
    assert!(50 < n_connected, "{n_connected} connections are too few to test anything");
    // After five seconds, rank 0 has closed its first idle connections and accepted others.
    job.wait_for("step 399");
    std::fs::write(&end, "").unwrap();
    job.wait().check_all(0);
}

/// Checks that ranks join although unauthenticated connections take all slots first. These must be closed while the job
/// runs.
fn check_join_among_strangers(vars: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let vars = [vars, &[("KILN_TEST_END", end.to_str().unwrap())]].concat();
    let mut job = Job::prepare(2, "steps until told");
    job.spawn_with_files(0, N_FILES, &vars);
    // Rank 0 accepts at most 18 connections at once, half of the 36 that are opened here.
    let strangers: Vec<_> = (0..36).map(|at| begin(&job, BEGINNINGS[at % BEGINNINGS.len()])).collect();
    job.spawn(1, &vars);
    job.wait_for("step 20");
    let late: Vec<_> = BEGINNINGS.iter().map(|beginning| begin(&job, beginning)).collect();
    strangers.iter().for_each(check_closed);
    assert_eq!(
        job.processes[0].try_wait().unwrap(),
        None,
        "the job should still run when the connections are closed"
    );
    std::fs::write(&end, "").unwrap();
    job.wait().check_all(0);
    drop(late);
}

#[test]
fn ranks_join_despite_unauthenticated_connections() {
    check_join_among_strangers(&[]);
}

#[cfg(feature = "tls")]
#[test]
fn ranks_with_certificates_join_despite_unauthenticated_connections() {
    let folder = tempfile::tempdir().unwrap();
    crate::certificates::write(folder.path(), 2);
    check_join_among_strangers(&[("KILN_TEST_TLS", folder.path().to_str().unwrap())]);
}

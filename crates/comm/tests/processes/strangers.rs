//! Connections to rank 0 of processes that do not know the token.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::start::Job;

/// Files that rank 0 may have open.
const N_FILES: usize = 256;

/// Bytes with which connections begin: of nothing, HTTP/1, a half and a whole start of HTTP/2 with settings, a TLS
/// handshake that goes no further, and noise.
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
    // Rank 0 may already have closed it.
    let _ = stranger.write_all(beginning);
    stranger
}

/// Reads what there is to be read, until the other side has closed the connection.
fn check_closed(mut stranger: &TcpStream) {
    stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
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

/// 300 connections that say nothing, of a job that may have 256 files open: it goes on and can open files.
#[test]
fn idle_connections_do_not_end_a_job() {
    let mut job = Job::prepare(2, "files");
    job.spawn_with_files(0, N_FILES, &[]);
    job.spawn_with_files(1, N_FILES, &[]);
    job.wait_for("step 20");
    let before = job.n_files(0);
    let address = job.address();
    // The system's queue has room for less, so that some of them wait to be connected.
    let stranger = move || TcpStream::connect_timeout(&address, Duration::from_secs(3));
    let strangers: Vec<_> = (0..300).map(|_| std::thread::spawn(stranger)).collect();
    std::thread::sleep(Duration::from_secs(2));
    let n_files = job.n_files(0);
    assert!(n_files <= before + 20, "{n_files} files, {before} before");
    let strangers: Vec<_> = strangers.into_iter().map(|stranger| stranger.join().unwrap()).collect();
    let n_connected = strangers.iter().filter(|stranger| stranger.is_ok()).count();
    assert!(50 < n_connected, "{n_connected} connections are too few to test anything");
    job.wait().check_all(0);
}

/// Strangers that have taken all connections before the ranks join: all are closed while the job runs, and the ranks get
/// in.
fn check_join_among_strangers(vars: &[(&str, &str)]) {
    let mut job = Job::prepare(2, "files");
    job.spawn_with_files(0, N_FILES, vars);
    // Twice as many as rank 0 accepts.
    let strangers: Vec<_> = (0..36).map(|at| begin(&job, BEGINNINGS[at % BEGINNINGS.len()])).collect();
    job.spawn(1, vars);
    job.wait_for("step 20");
    let late: Vec<_> = BEGINNINGS.iter().map(|beginning| begin(&job, beginning)).collect();
    strangers.iter().for_each(check_closed);
    assert_eq!(job.processes[0].try_wait().unwrap(), None, "they were closed by the end of the job");
    job.wait().check_all(0);
    drop(late);
}

#[test]
fn ranks_join_among_strangers() {
    check_join_among_strangers(&[]);
}

#[cfg(feature = "tls")]
#[test]
fn ranks_with_certificates_join_among_strangers() {
    let folder = tempfile::tempdir().unwrap();
    crate::certificates::write(folder.path(), 2);
    check_join_among_strangers(&[("KILN_TEST_TLS", folder.path().to_str().unwrap())]);
}

//! Tests of a server whose process has no file descriptor left.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio_stream::StreamExt;

use super::listener::rpc_endpoint;

/// The child process of the next test: it opens files until no descriptor is left, accepts connections and prints a
/// line for each of them. It closes the files when it reads a line, and ends after a second line or the end of input.
#[test]
fn child_with_few_files() {
    if std::env::var_os("KILN_TEST_FEW_FILES").is_none() {
        return;
    }
    kiln_testkit::print_log();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nat {}", listener.local_addr().unwrap());
    let inside = runtime.enter();
    let mut incoming = rpc_endpoint().incoming(listener, 1000).unwrap();
    drop(inside);
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    println!("\nopened {}", files.len());
    runtime.spawn(async move {
        while let Some(Ok(_connection)) = incoming.next().await {
            println!("\naccepted");
        }
    });
    let mut lines = std::io::stdin().lines();
    lines.next();
    drop(files);
    lines.next();
}

fn cpu_seconds(child: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
fn pauses_after_a_failed_accept_and_logs_it_once() {
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 64; exec \"$0\" connections::few_files::child_with_few_files --exact --nocapture",
        ])
        .arg(std::env::current_exe().unwrap())
        .env("KILN_TEST_FEW_FILES", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.as_mut().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut line = |start: &str| lines.find_map(|line| line.strip_prefix(start).map(str::to_owned)).unwrap();
    let address = line("at ");
    line("opened ");
    let side = TcpStream::connect(&address).unwrap();
    let before = cpu_seconds(child);
    std::thread::sleep(Duration::from_secs(3));
    let spent = cpu_seconds(child) - before;
    assert!(spent < 1.0, "failed accepts should take little CPU time, but took {spent} s within 3 s");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    line("accepted");
    drop((side, stdin));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(said.matches("cannot accept connections for now").count(), 1, "{said}");
    assert_eq!(said.matches("accepting connections again").count(), 1, "{said}");
}

//! Mapped files that another process changes: what is noticed, and how a process ends that reads what is gone.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use kiln_graph::{Error, FileVersion, MappedFile, check_mapped_files};

/// A time that no file system rounds away.
fn touch(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// The files of a folder among those that were replaced.
fn replaced_in(folder: &Path) -> Vec<String> {
    let replaced = check_mapped_files().unwrap();
    let own = replaced.iter().filter_map(|path| path.strip_prefix(folder).ok());
    own.map(|path| path.to_str().unwrap().to_owned()).collect()
}

/// One test: the check is of the whole process, and a changed file would be found by any other test of it.
#[test]
fn changes_in_place_are_errors_and_replaced_files_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["b", "a", "unnamed"] {
        fs::write(path(name), [7; 100]).unwrap();
        touch(&path(name), 1000);
    }
    // Two mappings of one file are one file.
    let mappings = ["b", "a", "a"].map(|name| MappedFile::open(path(name)).unwrap());
    let unnamed = File::open(path("unnamed")).unwrap();
    fs::remove_file(path("unnamed")).unwrap();
    let unnamed = MappedFile::of_file(&unnamed, path("unnamed")).unwrap();
    assert_eq!(replaced_in(folder.path()), [""; 0]);

    let changed = || match check_mapped_files() {
        Err(Error::FileChanged { path, expected, found }) => (path, expected, found),
        other => panic!("{other:?}"),
    };
    // Of the same length, with the same bytes: that they are the same would take reading them.
    touch(&path("b"), 1001);
    let version = |n_bytes, seconds| {
        let modified = Some(UNIX_EPOCH + Duration::from_secs(seconds));
        FileVersion { n_bytes, modified }
    };
    assert_eq!(changed(), (path("b"), version(100, 1000), version(100, 1001)));
    let said = check_mapped_files().unwrap_err().to_string();
    assert!(said.starts_with(&path("b").display().to_string()), "{said}");
    assert!(
        said.contains("expected 100 bytes, modified 1000.000000000 s after 1970, found 100 bytes"),
        "{said}"
    );
    // Longer, at the same time.
    touch(&path("b"), 1000);
    File::options().append(true).open(path("b")).unwrap().write_all(&[8]).unwrap();
    touch(&path("b"), 1000);
    assert_eq!(changed(), (path("b"), version(100, 1000), version(101, 1000)));
    File::options().write(true).open(path("b")).unwrap().set_len(100).unwrap();
    touch(&path("b"), 1000);
    assert_eq!(replaced_in(folder.path()), [""; 0]);

    // By another file of the same bytes and time, and by none.
    fs::write(path("new"), [7; 100]).unwrap();
    touch(&path("new"), 1000);
    fs::rename(path("new"), path("a")).unwrap();
    assert_eq!(replaced_in(folder.path()), ["a"]);
    fs::remove_file(path("b")).unwrap();
    assert_eq!(replaced_in(folder.path()), ["a", "b"]);
    assert!(mappings.iter().chain([&unnamed]).all(|mapping| mapping.bytes() == [7; 100]));
    // What is not mapped any more is not compared.
    drop(mappings);
    assert_eq!(replaced_in(folder.path()), [""; 0]);
}

/// What a process of its own does with a file that loses its end: set in its environment.
const BODY: &str = "KILN_TEST_LOST_FILE";

/// How the process ended, and what it said on standard error.
struct End {
    status: ExitStatus,
    said: String,
}

/// Starts this test program again, for [`reads_a_file_that_loses_its_end`] alone, and truncates its file once it is mapped.
fn end_of(body: &str, path: &Path) -> End {
    fs::write(path, vec![1; 1 << 16]).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "mapped_file::reads_a_file_that_loses_its_end", "--nocapture"]);
    command.env(BODY, body).env("KILN_TEST_FILE", path);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("mapped")), "{body}: it should have mapped the file");
    File::options().write(true).open(path).unwrap().set_len(100).unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    End { status: output.status, said: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// The body of such a process; nothing in the process that runs all tests.
#[test]
fn reads_a_file_that_loses_its_end() {
    let (Ok(body), Some(path)) = (std::env::var(BODY), std::env::var_os("KILN_TEST_FILE")) else { return };
    let read = |bytes: &[u8]| black_box(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    if body != "without" {
        kiln_graph::handle_bus_errors().unwrap();
        kiln_graph::handle_bus_errors().unwrap();
    }
    let mapping = MappedFile::open(&path).unwrap();
    // SAFETY: that the file is truncated is what this process is for: it ends by it.
    let foreign = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()).unwrap() };
    println!("mapped");
    // At the end of the input, the file has lost its end.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    match body.as_str() {
        "foreign" => drop(read(&foreign)),
        "threads" => std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| read(mapping.bytes()))));
        }),
        "sent" => {
            // SAFETY: the signal that this test is about.
            unsafe { libc::raise(libc::SIGBUS) };
            // The runtime of Rust has a handler of its own, which takes itself away.
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        _ => drop(read(mapping.bytes())),
    }
    println!("nothing happened");
}

#[test]
fn reading_a_truncated_file_ends_with_its_path_and_status_74() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("features.npy");
    for body in ["one", "threads"] {
        let End { status, said } = end_of(body, &path);
        assert_eq!(status.code(), Some(kiln_graph::EXIT_FILE_LOST.into()), "{body}: {status}: {said}");
        let expected = format!("kiln: {}: the file was truncated while it was mapped", path.display());
        assert_eq!(said.matches(&expected).count(), 1, "{body}: {said}");
    }
}

#[test]
fn other_bus_errors_keep_the_default_action() {
    use std::os::unix::process::ExitStatusExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("features.npy");
    for body in ["without", "foreign", "sent"] {
        let End { status, said } = end_of(body, &path);
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{body}: {status}: {said}");
        assert!(!said.contains("features.npy"), "{body}: {said}");
    }
}

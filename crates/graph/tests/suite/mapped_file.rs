//! Mapped files that are changed while in use: detection of changes, and exit of a process that reads a truncated file.
#![allow(clippy::unwrap_used, reason = "test helpers may unwrap")]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use kiln_graph::{Error, FileVersion, MappedFile, check_mapped_files};

/// Sets the modification time, in whole seconds, which every file system stores exactly.
fn touch(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Returns the replaced files in a folder, as paths relative to the folder.
fn replaced_in(folder: &Path) -> Vec<String> {
    let replaced = check_mapped_files().unwrap();
    let own = replaced.iter().filter_map(|path| path.strip_prefix(folder).ok());
    own.map(|path| path.to_str().unwrap().to_owned()).collect()
}

/// Tests all changes in one test, because the check covers all files of the process and would fail other tests.
#[test]
fn changes_in_place_are_errors_and_replaced_files_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["b", "a", "unnamed"] {
        fs::write(path(name), [7; 100]).unwrap();
        touch(&path(name), 1000);
    }
    // A file that is mapped twice is listed once.
    let mappings = ["b", "a", "a"].map(|name| MappedFile::open(path(name)).unwrap());
    let unnamed = File::open(path("unnamed")).unwrap();
    fs::remove_file(path("unnamed")).unwrap();
    let unnamed = MappedFile::of_file(&unnamed, path("unnamed")).unwrap();
    assert_eq!(replaced_in(folder.path()), [""; 0]);

    let changed = || match check_mapped_files() {
        Err(Error::FileChanged { path, expected, found }) => (path, expected, found),
        other => panic!("{other:?}"),
    };
    // A new modification time counts as a change even if the bytes are equal, because the bytes are not read.
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
    // The file is now longer, but has its old modification time.
    touch(&path("b"), 1000);
    File::options().append(true).open(path("b")).unwrap().write_all(&[8]).unwrap();
    touch(&path("b"), 1000);
    assert_eq!(changed(), (path("b"), version(100, 1000), version(101, 1000)));
    File::options().write(true).open(path("b")).unwrap().set_len(100).unwrap();
    touch(&path("b"), 1000);
    assert_eq!(replaced_in(folder.path()), [""; 0]);

    // One file is replaced by a file with equal bytes and time, the other is removed.
    fs::write(path("new"), [7; 100]).unwrap();
    touch(&path("new"), 1000);
    fs::rename(path("new"), path("a")).unwrap();
    assert_eq!(replaced_in(folder.path()), ["a"]);
    fs::remove_file(path("b")).unwrap();
    assert_eq!(replaced_in(folder.path()), ["a", "b"]);
    assert!(mappings.iter().chain([&unnamed]).all(|mapping| mapping.bytes() == [7; 100]));
    // Files that are no longer mapped are not checked.
    drop(mappings);
    assert_eq!(replaced_in(folder.path()), [""; 0]);
}

/// The environment variable that selects how the child process reads the truncated file.
const BODY: &str = "KILN_TEST_LOST_FILE";

/// The child's exit status and its output on standard error.
struct End {
    status: ExitStatus,
    said: String,
}

/// Runs [`child_reads_a_truncated_file`] in a child process and truncates its file once it is mapped.
fn end_of(body: &str, path: &Path) -> End {
    fs::write(path, vec![1; 1 << 16]).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "mapped_file::child_reads_a_truncated_file", "--nocapture"]);
    command.env(BODY, body).env("KILN_TEST_FILE", path);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().ends_with("mapped")),
        "{body}: the child should have mapped the file"
    );
    File::options().write(true).open(path).unwrap().set_len(100).unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    End { status: output.status, said: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// The body of the child process; it does nothing in the process that runs all tests.
#[test]
fn child_reads_a_truncated_file() {
    let (Ok(body), Some(path)) = (std::env::var(BODY), std::env::var_os("KILN_TEST_FILE")) else { return };
    let read = |bytes: &[u8]| black_box(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    if body != "without" {
        kiln_graph::handle_bus_errors().unwrap();
        kiln_graph::handle_bus_errors().unwrap();
    }
    let mapping = MappedFile::open(&path).unwrap();
    // SAFETY: the file is truncated on purpose; reading the mapping then ends the process by a signal.
    let foreign = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()).unwrap() };
    println!("mapped");
    // The parent closes standard input after it has truncated the file.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    match body.as_str() {
        "foreign" => drop(read(&foreign)),
        "threads" => std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| read(mapping.bytes()))));
        }),
        "sent" => {
            // SAFETY: raising a signal is safe; this one is the subject of the test.
            unsafe { libc::raise(libc::SIGBUS) };
            // The first signal removes kiln's handler and that of Rust's runtime; the second one ends the process.
            // SAFETY: raising a signal is safe.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        _ => drop(read(mapping.bytes())),
    }
    println!("nothing happened");
}

#[test]
fn reading_a_truncated_file_prints_its_path_and_exits_with_status_74() {
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

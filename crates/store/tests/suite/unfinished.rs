//! Tests of folders that no process finished.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_store::array_folder::{ElementType, FolderWriter, check_new};
use kiln_store::unfinished::remove_abandoned;

/// Leaves an unfinished folder with a file, and its lock file, as a process of a machine that was killed.
fn leave(parent: &Path, name: &str, owner: &str) {
    let folder = parent.join(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("rows.npy"), "half").unwrap();
    fs::write(parent.join(format!("{name}.lock")), format!("{owner}\n")).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn this_machine() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_is_written_is_not() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set");
    let writer = FolderWriter::create(root.path().join("other")).unwrap();
    let written = names(root.path());
    leave(root.path(), "set.unfinished-4711-0", &format!("{} 4711", this_machine()));
    leave(root.path(), "set.unfinished-4712-3", &format!("{} 4712", this_machine()));
    // A process was killed after the folder had its name.
    fs::write(root.path().join("set.unfinished-4713-0.lock"), format!("{} 4713", this_machine())).unwrap();
    // And before it had written who it is.
    fs::write(root.path().join("set.unfinished-4714-0.lock"), "").unwrap();
    let removed = remove_abandoned(&target).unwrap();
    let notes: Vec<String> = removed.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    let folder = root.path().join("set.unfinished-4711-0");
    let owner = format!("{} 4711", this_machine());
    let expected =
        format!("removed {}, which a process that has ended left unfinished ({owner})", folder.display());
    assert_eq!(notes[0], expected);
    assert_eq!(names(root.path()), written);
    drop(writer);
    assert_eq!(names(root.path()), [""; 0]);
    assert_eq!(remove_abandoned(&target).unwrap(), []);
}

#[test]
fn folders_of_other_machines_and_of_users_are_kept() {
    let root = tempfile::tempdir().unwrap();
    leave(root.path(), "set.unfinished-7-0", "another-machine 7");
    // Names that are like those of unfinished folders, and folders without a lock file.
    leave(root.path(), "set.unfinished-7", &format!("{} 7", this_machine()));
    leave(root.path(), "set.unfinished-7-x", &format!("{} 7", this_machine()));
    fs::create_dir(root.path().join("set.unfinished-8-0")).unwrap();
    let before = names(root.path());
    let found = remove_abandoned(root.path().join("set")).unwrap();
    assert_eq!(names(root.path()), before);
    let notes: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("its owner is on another machine (another-machine 7)"), "{notes:?}");
}

/// Locks of some file systems do not exclude: a living process of this machine owns its folder without one.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_of_a_living_process_is_kept_without_its_lock() {
    let root = tempfile::tempdir().unwrap();
    let writer = FolderWriter::create(root.path().join("set")).unwrap();
    let lock = names(root.path()).into_iter().find(|name| name.ends_with(".lock")).unwrap();
    let owner = fs::read_to_string(root.path().join(&lock)).unwrap();
    let id = std::process::id();
    leave(root.path(), "set.unfinished-7-0", owner.trim());
    // The process has ended, and another one has its id.
    let other_start = owner.trim().rsplit_once(' ').unwrap().0;
    leave(root.path(), "set.unfinished-7-1", &format!("{other_start} 1"));
    let found = remove_abandoned(root.path().join("set")).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, root.path().join("set.unfinished-7-1"));
    assert!(root.path().join("set.unfinished-7-0").exists(), "process {id} is alive");
    drop(writer);
}

#[cfg(unix)]
#[test]
fn leftovers_beside_the_folder_that_a_link_leads_to_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let real = root.path().join("real");
    fs::create_dir_all(real.join("set")).unwrap();
    std::os::unix::fs::symlink(real.join("set"), root.path().join("link")).unwrap();
    leave(&real, "set.unfinished-7-0", &format!("{} 7", this_machine()));
    assert_eq!(remove_abandoned(root.path().join("link")).unwrap().len(), 1);
    assert_eq!(names(&real), ["set"]);
}

#[test]
fn a_writer_within_an_unfinished_folder_that_was_removed_does_not_create_it_again() {
    let root = tempfile::tempdir().unwrap();
    let outer = FolderWriter::create(root.path().join("set")).unwrap();
    let part = outer.folder().join("part0");
    drop(outer);
    let error = FolderWriter::create(part).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    assert_eq!(names(root.path()), [""; 0]);
}

#[cfg(unix)]
#[test]
fn a_lock_file_that_is_a_link_or_a_pipe_is_no_lock_file() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let precious = elsewhere.path().join("precious");
    fs::write(&precious, format!("{} 7", this_machine())).unwrap();
    std::os::unix::fs::symlink(&precious, root.path().join("set.unfinished-7-0.lock")).unwrap();
    fs::create_dir(root.path().join("set.unfinished-7-0")).unwrap();
    let status =
        std::process::Command::new("mkfifo").arg(root.path().join("set.unfinished-8-0.lock")).status();
    assert!(status.unwrap().success());
    // A folder that is a link: only the link is removed.
    std::os::unix::fs::symlink(elsewhere.path(), root.path().join("set.unfinished-9-0")).unwrap();
    fs::write(root.path().join("set.unfinished-9-0.lock"), format!("{} 9", this_machine())).unwrap();
    remove_abandoned(root.path().join("set")).unwrap();
    assert!(root.path().join("set.unfinished-7-0").exists());
    assert!(precious.exists());
}

#[test]
fn a_finished_folder_and_a_checked_path_leave_nothing_beside_them() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set");
    check_new(&target).unwrap();
    assert_eq!(names(root.path()), [""; 0]);
    let mut writer = FolderWriter::create(&target).unwrap();
    writer.put("rows.npy", ElementType::U32, &[1_u32, 2]).unwrap();
    assert_eq!(names(root.path()).len(), 2);
    let inner = FolderWriter::create(writer.folder().join("part0")).unwrap();
    inner.commit().unwrap();
    assert_eq!(names(writer.folder()), ["part0", "rows.npy"]);
    writer.commit().unwrap();
    assert_eq!(names(root.path()), ["set"]);
    // A target that became occupied keeps its files, and nothing remains beside it.
    let occupied = root.path().join("occupied");
    let writer = FolderWriter::create(&occupied).unwrap();
    fs::create_dir(&occupied).unwrap();
    fs::write(occupied.join("notes.txt"), "kept").unwrap();
    let error = writer.commit().unwrap_err().to_string();
    assert!(error.contains("exists and is not an empty folder"), "{error}");
    assert_eq!(names(root.path()), ["occupied", "set"]);
    assert_eq!(names(&occupied), ["notes.txt"]);
}

//! Folders that are not finished: which process owns one, and what removes it if that process ends.
//!
//! An unfinished folder has a name such as `set.unfinished-4711-0`, beside the folder that it will become. Its owner holds a
//! lock on the file `set.unfinished-4711-0.lock`, which the system releases when the process ends, however it ends. What is
//! left behind can therefore be told from what is being written: [`remove_abandoned`].
//!
//! File systems exist whose locks do not reach other machines. The file therefore names the machine, and folders of other
//! machines are only reported.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kiln_graph::inode;

use crate::Result;
use crate::error::io_error;
use crate::paths::resolve;

/// The mark in the name of an unfinished folder, before the id of the process and a number.
const MARK: &str = ".unfinished-";
/// The extension of the file that is locked.
const LOCK: &str = "lock";
/// The most bytes of a lock file that are read: the name of a machine, and the id of a process.
const MOST_LOCK_BYTES: u64 = 1 << 10;
/// How often the removal of a folder is tried. Threads of this process may add files while it is removed.
const MOST_TRIES: usize = 100;

/// The unfinished folders of this process.
static OWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn own() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that this process owns until it is renamed. Dropping this value removes the folder.
#[derive(Debug)]
pub(crate) struct UnfinishedFolder {
    path: PathBuf,
    /// The locked file; `None` if the file system has no locks. Then no other process removes the folder.
    lock: Option<LockFile>,
    is_finished: bool,
}

impl UnfinishedFolder {
    /// Creates an empty folder beside the folder `parent/name`, and the missing parents.
    pub(crate) fn create(parent: &Path, name: &OsStr) -> Result<Self> {
        // A process with the same id in another container may use a folder with this name now, or may have left one
        // behind.
        for attempt in 0_u64.. {
            let mut unfinished = name.to_owned();
            unfinished.push(format!("{MARK}{}-{attempt}", std::process::id()));
            let path = parent.join(unfinished);
            // A signal that ends this process waits until the folder is known, or is before it. A parent that is an unfinished folder
            // was created by its owner, which may have removed it.
            let mut own = own();
            if !is_within_unfinished(parent) {
                fs::create_dir_all(parent).map_err(io_error(parent))?;
            }
            let lock = match LockFile::create(&lock_path(&path)) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(io_error(&path)(error)),
            };
            match fs::create_dir(&path) {
                Ok(()) => {
                    own.insert(path.clone());
                    return Ok(Self { path, lock, is_finished: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error(&path)(error)),
            }
        }
        unreachable!("one of 2^64 temporary names should be free")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the folder, which is then no longer owned. If it fails, the folder is removed.
    pub(crate) fn rename(mut self, target: &Path) -> io::Result<()> {
        let mut own = own();
        fs::rename(&self.path, target)?;
        own.remove(&self.path);
        self.is_finished = true;
        // Before a signal may end this process.
        drop(self.lock.take());
        Ok(())
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // An error cannot be reported from `drop`. A folder that remains is abandoned, because its lock file does, too.
        let mut own = own();
        if remove_folder(&self.path).is_err()
            && let Some(lock) = &mut self.lock
        {
            lock.is_kept = true;
        }
        own.remove(&self.path);
        drop(self.lock.take());
    }
}

/// A file that is locked until it is dropped, which removes it.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    is_kept: bool,
    /// The lock is released when this is closed, after the file was removed.
    locked: File,
}

impl LockFile {
    /// Creates and locks a file. Returns `None` if the file system has no locks, and an error of the kind
    /// [`io::ErrorKind::AlreadyExists`] if the file exists, or if another process took it for abandoned.
    fn create(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => {}
            Ok(()) | Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(TryLockError::Error(_)) => {
                fs::remove_file(path)?;
                return Ok(None);
            }
        }
        let lock = Self { path: path.to_owned(), is_kept: false, locked: file };
        (&lock.locked).write_all(Owner::this_process().to_string().as_bytes())?;
        Ok(Some(lock))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // A file that remains is removed as one that was left behind.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A folder that a process has not finished and that no process of this machine owns. It is displayed as a note.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abandoned {
    /// The path of the unfinished folder.
    pub path: PathBuf,
    /// The machine and the id of the process that owned it, as its lock file names them.
    pub owner: String,
    /// The reason why the folder was not removed; `None` if it was.
    pub kept_because: Option<String>,
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, owner, kept_because } = self;
        let path = path.display();
        match kept_because {
            None => write!(f, "removed {path}, which a process that has ended left unfinished ({owner})"),
            Some(reason) => write!(
                f,
                "{path} is unfinished, {reason} ({owner}): remove it and its file .{LOCK} if that process has ended"
            ),
        }
    }
}

/// Removes the unfinished folders whose owners have ended, of those beside `target`, and their lock files. Folders that a process
/// writes are unchanged. Returns the folders without a living owner, sorted by path.
///
/// ```
/// use kiln_store::unfinished::remove_abandoned;
/// # let folder = tempfile::tempdir()?;
/// let set = folder.path().join("set");
/// let killed = folder.path().join("set.unfinished-4711-0");
/// std::fs::create_dir(&killed)?;
/// let host = gethostname::gethostname();
/// std::fs::write(folder.path().join("set.unfinished-4711-0.lock"), format!("{} 4711\n", host.display()))?;
/// let abandoned = remove_abandoned(&set)?;
/// assert!(abandoned[0].path == killed && !killed.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`crate::Error::Io`] if the folder of `target` cannot be read. One that does not exist or that the user may not list has
/// nothing to remove.
pub fn remove_abandoned(target: impl AsRef<Path>) -> Result<Vec<Abandoned>> {
    let target = resolve(target.as_ref())?;
    let Some(parent) = target.parent() else { return Ok(Vec::new()) };
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => {
                    Ok(Vec::new())
                }
                _ => Err(io_error(parent)(error)),
            };
        }
    };
    let mut abandoned = Vec::new();
    for entry in entries {
        let lock = entry.map_err(io_error(parent))?.path();
        if let Some(folder) = folder_of_lock(&lock) {
            abandoned.extend(remove_if_abandoned(folder, &lock));
        }
    }
    abandoned.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(abandoned)
}

/// Removes the unfinished folders of this process, and stops every thread that would create, finish or remove one from now on:
/// for a process that a signal ends.
///
/// ```no_run
/// // A thread that waits for signals:
/// kiln_store::unfinished::remove_own();
/// std::process::abort();
/// ```
pub fn remove_own() {
    let own = own();
    for folder in own.iter() {
        // What cannot be removed is abandoned when the process ends.
        if remove_folder(folder).is_ok() {
            let _ = fs::remove_file(lock_path(folder));
        }
    }
    // The lock is held until the process ends: a thread that fails because its files are gone waits here, and prints nothing.
    mem::forget(own);
}

/// Returns true if a path is that of an unfinished folder, or within one.
fn is_within_unfinished(path: &Path) -> bool {
    path.ancestors().filter_map(Path::file_name).any(is_unfinished)
}

/// Returns true for the names of unfinished folders.
fn is_unfinished(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let numbers = name.rsplit_once(MARK).and_then(|(_, numbers)| numbers.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, attempt)| is_number(process) && is_number(attempt))
}

/// Returns the path of an unfinished folder's lock file.
fn lock_path(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(format!(".{LOCK}"));
    name.into()
}

/// Returns the path of the folder to which a lock file belongs; `None` for other files.
fn folder_of_lock(path: &Path) -> Option<PathBuf> {
    let stem = path.file_stem().filter(|_| path.extension() == Some(OsStr::new(LOCK)))?;
    let is_lock = is_unfinished(stem) && fs::symlink_metadata(path).ok()?.is_file();
    is_lock.then(|| path.with_file_name(stem))
}

/// Removes a folder and its lock file, if its owner was a process of this machine that has ended. Returns `None` if the owner is
/// alive, and if there is nothing but the lock file.
fn remove_if_abandoned(path: PathBuf, lock: &Path) -> Option<Abandoned> {
    // A file that is gone was removed by its owner, or by another process that does the same. A file that may not be opened
    // belongs to another user.
    let file = OpenOptions::new().read(true).write(true).open(lock).ok()?;
    if file.try_lock().is_err() || !is_at(&file, lock) {
        return None;
    }
    let mut owner = Vec::new();
    (&file).take(MOST_LOCK_BYTES).read_to_end(&mut owner).ok()?;
    let owner = String::from_utf8_lossy(&owner).trim().to_owned();
    let known = Owner::parse(&owner);
    // Where locks do not exclude, as in two mounts of one folder.
    if known.as_ref().is_some_and(Owner::is_alive) {
        return None;
    }
    let is_folder = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
    let kept_because = match known {
        // The folder is created after the owner was written: after a loss of power, the file may have lost it.
        None if is_folder => Some("and its owner is unknown".to_owned()),
        Some(known) if is_folder && known.machine != machine() => {
            Some("and its owner is on another machine".to_owned())
        }
        _ => remove_folder(&path)
            .and_then(|()| fs::remove_file(lock))
            .err()
            .map(|error| format!("and could not be removed: {error}")),
    };
    is_folder.then_some(Abandoned { path, owner, kept_because })
}

/// Removes a folder to which others may add files meanwhile. Does nothing if it does not exist.
fn remove_folder(path: &Path) -> io::Result<()> {
    // An empty folder is removed without a file descriptor, of which there may be none left.
    let mut removed = fs::remove_dir(path);
    if removed.is_ok() {
        return removed;
    }
    for _ in 0..MOST_TRIES {
        removed = fs::remove_dir_all(path);
        match &removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return removed,
        }
    }
    removed
}

/// Returns true if a path still leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let at_path = fs::symlink_metadata(path);
    let of_file = file.metadata();
    matches!((at_path, of_file), (Ok(at_path), Ok(of_file)) if inode(&at_path) == inode(&of_file))
}

/// The owner of an unfinished folder, as its lock file names it.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    machine: String,
    process: String,
    /// The machine's start and that of the process, which tell it from another one with its id; empty where the system does not tell.
    started: String,
}

impl Owner {
    fn this_process() -> Self {
        let process = std::process::id().to_string();
        let started = start_of(&process).unwrap_or_default();
        Self { machine: machine(), process, started }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let machine = words.next().filter(|machine| !machine.is_empty())?.to_owned();
        let process = words.next()?.to_owned();
        let started = words.next().unwrap_or_default().to_owned();
        Some(Self { machine, process, started })
    }

    /// Returns true if it is a living process of this machine.
    fn is_alive(&self) -> bool {
        !self.started.is_empty() && start_of(&self.process).as_ref() == Some(&self.started)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, process, started } = self;
        write!(f, "{machine} {process} {started}")
    }
}

/// Returns the start of this machine and of one of its processes (`/proc` of Linux); `None` if there is no such process.
fn start_of(process: &str) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, which may contain anything, is in parentheses. The start is the 20th field after it.
    let (_, fields) = status.rsplit_once(')')?;
    let start = fields.split_whitespace().nth(19)?;
    Some(format!("{} {start}", boot.trim()))
}

/// Returns the name of this machine.
fn machine() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

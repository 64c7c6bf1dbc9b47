use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kiln_comm::Communicator;
use kiln_loader::Background;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::error::{Error, InputError, Result, RunError};

/// The error of a function that hashes data.
type HashError = Box<dyn std::error::Error + Send + Sync>;

/// The hash of a run's data: known, or computed on a thread of its own while the run trains. It is needed by the first
/// checkpoint at the earliest. Clones share the computation, which is cancelled when the last of them is dropped.
#[derive(Clone)]
pub struct DataHash(Kind);

#[derive(Clone)]
enum Kind {
    Known(String),
    Later(Arc<Background<std::result::Result<String, Arc<HashError>>>>),
}

impl DataHash {
    /// Returns the hash that `hash` computes later. The computation starts after the first step, so that it does not
    /// slow it down, or when the value is needed. `hash` should return any error once its flag is true: no one then
    /// waits for the value.
    pub fn later<E: Into<HashError>>(
        hash: impl FnOnce(&AtomicBool) -> std::result::Result<String, E> + Send + 'static,
    ) -> Self {
        Self(Kind::Later(Arc::new(Background::new("kiln-hash", |is_unwanted: &AtomicBool| {
            hash(is_unwanted).map_err(|error| Arc::new(error.into()))
        }))))
    }

    /// Returns the hash if it was known from the start, without a computation.
    pub fn known(&self) -> Option<&str> {
        match &self.0 {
            Kind::Known(hash) => Some(hash),
            Kind::Later(_) => None,
        }
    }

    /// Starts the computation, if there is one that has not been started.
    pub fn start(&self) {
        if let Kind::Later(hash) = &self.0 {
            hash.start();
        }
    }

    /// Returns true if [`DataHash::wait`] does not wait.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Kind::Known(_) => true,
            Kind::Later(hash) => hash.is_ready(),
        }
    }

    /// Returns the hash. Computes it, or waits for it, if it is not known yet.
    ///
    /// # Errors
    /// Returns [`RunError::DataHash`] if the data could not be hashed.
    pub fn wait(&self) -> Result<String> {
        match &self.0 {
            Kind::Known(hash) => Ok(hash.clone()),
            Kind::Later(hash) => {
                let panicked =
                    |message: String| Err(Arc::new(HashError::from(format!("a panic: {message}"))));
                let name = "waiting for the hash of the data";
                let _progress = Progress::start(name, ProgressUnit::Bytes, None);
                let hash = hash.wait().unwrap_or_else(panicked);
                hash.map_err(|source| Error::Run(RunError::DataHash { source }))
            }
        }
    }

    /// Returns the hash after the ranks have compared theirs. A rank with an empty hash, which has not read the data
    /// itself, is not compared. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`DataHash::wait`], [`InputError::DataDiffers`] and [`Error::Ranks`].
    pub(crate) fn agree(&self, comm: &mut dyn Communicator) -> Result<String> {
        if comm.rank_info().world_size == 1 {
            return self.wait();
        }
        comm.set_stage("hashing the data");
        self.start();
        let own = self.wait()?;
        // The rank whose data is read last may be late by more than the deadline of other collectives. A rank that
        // is lost meanwhile is detected.
        comm.barrier(READING)?;
        let all = comm.all_gather(own.as_bytes())?;
        let mut read = all.iter().enumerate().filter(|(_, hash)| !hash.is_empty());
        let Some((first, expected)) = read.next() else { return Ok(own) };
        match read.find(|(_, hash)| *hash != expected) {
            None => Ok(own),
            Some((rank, got)) => {
                let [expected, got] = [expected, got].map(|hash| String::from_utf8_lossy(hash).into_owned());
                Err(Error::Input(InputError::DataDiffers {
                    what: "hash of the data",
                    first,
                    rank,
                    expected,
                    got,
                }))
            }
        }
    }
}

/// The timeout for the ranks that wait for another one to read its data: a day.
const READING: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

impl Default for DataHash {
    /// Returns the empty hash, of data that is not compared.
    fn default() -> Self {
        String::new().into()
    }
}

impl From<String> for DataHash {
    fn from(hash: String) -> Self {
        Self(Kind::Known(hash))
    }
}

impl From<&str> for DataHash {
    fn from(hash: &str) -> Self {
        hash.to_owned().into()
    }
}

impl fmt::Debug for DataHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Known(hash) => f.debug_tuple("Known").field(hash).finish(),
            Kind::Later(hash) => f.debug_tuple("Later").field(hash).finish(),
        }
    }
}

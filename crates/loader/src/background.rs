use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::loader::message;

/// A value that a thread of its own computes while the program continues.
///
/// The thread starts with [`Background::start`]. Dropping the value requests the end of the computation and does not
/// wait for it, so neither an error nor the end of the program waits.
pub struct Background<T> {
    name: &'static str,
    shared: Arc<Shared<T>>,
}

type Job<T> = Box<dyn FnOnce(&AtomicBool) -> T + Send>;

struct Shared<T> {
    /// The computation, until a thread takes it.
    job: Mutex<Option<Job<T>>>,
    /// The value, or the message of the computation's panic.
    value: Mutex<Option<Result<T, String>>>,
    has_value: Condvar,
    has_started: AtomicBool,
    is_unwanted: AtomicBool,
}

impl<T: Send + 'static> Background<T> {
    /// Returns the value of `compute`, on a thread with this name. `compute` should return early, with any value, once
    /// the flag that it receives is true.
    pub fn new(name: &'static str, compute: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let shared = Shared {
            job: Mutex::new(Some(Box::new(compute))),
            value: Mutex::default(),
            has_value: Condvar::new(),
            has_started: AtomicBool::default(),
            is_unwanted: AtomicBool::default(),
        };
        Self { name, shared: Arc::new(shared) }
    }

    /// Starts the thread, if it has not been started yet. If the system starts no further thread, [`Background::wait`]
    /// computes the value.
    pub fn start(&self) {
        if self.shared.has_started.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        // The job stays in place until a thread takes it, so an error loses nothing.
        drop(thread::Builder::new().name(self.name.to_owned()).spawn(move || shared.compute()));
    }

    /// Returns true if the value is computed, so that [`Background::wait`] does not wait.
    pub fn is_ready(&self) -> bool {
        lock(&self.shared.value).is_some()
    }

    /// Waits for the value. The calling thread computes it if no other thread has begun to.
    ///
    /// # Errors
    /// Returns the message of the panic if the computation panicked.
    pub fn wait(&self) -> Result<T, String>
    where
        T: Clone,
    {
        self.shared.compute();
        let mut value = lock(&self.shared.value);
        loop {
            match &*value {
                Some(value) => return value.clone(),
                None => value = self.shared.has_value.wait(value).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl<T> Shared<T> {
    /// Computes the value, unless another thread has begun to.
    fn compute(&self) {
        let Some(job) = lock(&self.job).take() else { return };
        // Unwind safety: nothing that the job has borrowed is used after a panic.
        let value = catch_unwind(AssertUnwindSafe(|| job(&self.is_unwanted)));
        *lock(&self.value) = Some(value.map_err(|payload| message(payload.as_ref())));
        self.has_value.notify_all();
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.shared.is_unwanted.store(true, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Locks a value that stays whole if a thread panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_value_is_computed_once_by_the_thread_or_by_the_first_that_waits() {
        let value = Background::new("test", |_| thread::current().name().map(str::to_owned));
        assert!(!value.is_ready());
        assert_eq!(value.wait().unwrap().as_deref(), thread::current().name());
        value.start();
        assert!(value.is_ready());

        let (says, hears) = channel();
        let value = Background::new("test", move |_| {
            says.send(()).unwrap();
            thread::current().name().map(str::to_owned)
        });
        value.start();
        hears.recv().unwrap();
        assert_eq!(value.wait().unwrap().as_deref(), Some("test"));
    }

    #[test]
    fn a_dropped_value_stops_its_computation_without_a_wait() {
        let (began, begins) = channel();
        let (ended, ends) = channel();
        let value = Background::new("test", move |is_unwanted: &AtomicBool| {
            began.send(()).unwrap();
            while !is_unwanted.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            ended.send(()).unwrap();
        });
        value.start();
        begins.recv().unwrap();
        drop(value);
        ends.recv().unwrap();
    }

    #[test]
    fn a_panic_is_an_error_for_each_that_waits() {
        let value = Background::new("test", |_| -> u8 { panic!("no value") });
        value.start();
        assert_eq!(value.wait(), Err("no value".to_owned()));
        assert_eq!(value.wait(), Err("no value".to_owned()));
    }
}

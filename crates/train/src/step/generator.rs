//! Burn's generator of random numbers, from which kiln's models never draw, but one's own may: by initialisers such as
//! `LinearConfig::init`, by `Dropout`, or by `Tensor::random`.
//!
//! Burn has one generator for all threads of a process. So it is seeded before each function of the user that may draw from
//! it, and the function has its turn alone until it returns. To let ranks in threads train models of one's own that do not
//! draw at the same time, the first step of each epoch finds out whether the model draws.
//!
//! A function that has its turn may wait for tasks of rayon. If several trainers are tasks of one pool, its thread may then
//! begin another trainer, whose turn would never come: this is an error. Ranks have pools of their own.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Distribution, Tensor};
use kiln_kernels::{is_cpu, to_vec_f32};
use kiln_sample::{KeyDomain, RngKey};

use crate::error::{Error, Result, TrainerError};

/// The value that is folded into a key in [`KeyDomain::Host`] to derive the seed of Burn's generator.
const HOST_BURN: u64 = 1;

/// The lock of the generator, which is global because Burn's generator is.
static TURN: Mutex<()> = Mutex::new(());

/// The number of trainers of this process, which share the generator.
static N_TRAINERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// True while this thread has the lock.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// The turn of a function. Dropping it ends the turn.
struct Turn {
    _lock: MutexGuard<'static, ()>,
}

impl Turn {
    /// Waits for the turn.
    fn take() -> Result<Self> {
        if HAS_TURN.get() {
            return Err(Error::Trainer(TrainerError::NestedTrainers));
        }
        let lock = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        HAS_TURN.set(true);
        Ok(Self { _lock: lock })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HAS_TURN.set(false);
    }
}

/// A trainer's use of Burn's generator.
#[derive(Debug)]
pub(crate) struct Generator {
    device: Device,
    rank: u64,
    /// False for a model that never draws, whose passes need no turn.
    may_draw: bool,
    /// The last epoch in which a forward pass was examined, and whether it drew; `None` before the first.
    examined: Option<(usize, bool)>,
}

impl Generator {
    pub(crate) fn new(device: &Device, rank: usize, may_draw: bool) -> Self {
        N_TRAINERS.fetch_add(1, Ordering::Relaxed);
        Self { device: device.clone(), rank: rank as u64, may_draw, examined: None }
    }

    /// Runs the forward pass of a batch of a training step. The generator is seeded from the key, the rank and the batch if
    /// the model may draw.
    ///
    /// # Errors
    /// Returns [`TrainerError::SharedGenerator`] if trainers in several threads share the generator and the model draws
    /// from it in this epoch, but not in the first step of the epoch before: its earlier draws were then not seeded.
    /// Returns [`TrainerError::NestedTrainers`] within the turn of another trainer on this thread.
    pub(crate) fn train<R>(
        &mut self,
        key: RngKey,
        epoch: usize,
        batch: usize,
        forward: impl FnOnce() -> R,
    ) -> Result<R> {
        let is_shared = 1 < N_TRAINERS.load(Ordering::Relaxed);
        if !self.may_draw || is_shared && self.examined == Some((epoch, false)) {
            return Ok(forward());
        }
        let _turn = Turn::take()?;
        let seed = self.seed(key, batch);
        let examines = self.examined.is_none_or(|(examined, _)| examined != epoch);
        // On other devices a draw launches a kernel, so a trainer that is alone does not examine the model.
        if !examines || !(is_shared || is_cpu(&self.device)) {
            self.device.seed(seed);
            return Ok(forward());
        }
        self.device.seed(seed);
        let expected = self.draw();
        self.device.seed(seed);
        let output = forward();
        let draws = self.draw() != expected;
        let drew_before = self.examined.is_none_or(|(_, draws)| draws);
        self.examined = Some((epoch, draws));
        match is_shared && draws && !drew_before {
            true => Err(Error::Trainer(TrainerError::SharedGenerator(epoch))),
            false => Ok(output),
        }
    }

    /// Runs the forward pass of a batch of an evaluation, seeded like that of a training step.
    ///
    /// # Errors
    /// Returns [`TrainerError::NestedTrainers`] within the turn of another trainer on this thread.
    pub(crate) fn evaluate<R>(&self, key: RngKey, batch: usize, forward: impl FnOnce() -> R) -> Result<R> {
        let is_shared = 1 < N_TRAINERS.load(Ordering::Relaxed);
        if !self.may_draw || is_shared && matches!(self.examined, Some((_, false))) {
            return Ok(forward());
        }
        let _turn = Turn::take()?;
        self.device.seed(self.seed(key, batch));
        Ok(forward())
    }

    fn seed(&self, key: RngKey, batch: usize) -> u64 {
        let key = key.fold_in(KeyDomain::Host, HOST_BURN).fold_in(KeyDomain::Host, self.rank);
        key.fold_in(KeyDomain::Host, batch as u64).to_u64()
    }

    fn draw(&self) -> Vec<f32> {
        to_vec_f32(Tensor::<1>::random([4], Distribution::Default, &self.device))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        N_TRAINERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Creates a model with the generator seeded from the key of the run. Parameters that are drawn when they are first read, as
/// those of Burn's layers, are drawn here.
///
/// # Errors
/// Returns the error of `init`, and [`TrainerError::NestedTrainers`] within the turn of another trainer on this thread.
pub(crate) fn init_seeded<M: Module>(
    device: &Device,
    key: RngKey,
    init: impl FnOnce() -> kiln_nn::Result<M>,
) -> Result<M> {
    struct Draw;

    impl ModuleVisitor for Draw {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            drop(param.val());
        }
    }

    let _turn = Turn::take()?;
    device.seed(key.fold_in(KeyDomain::Host, HOST_BURN).to_u64());
    let model = init()?;
    model.visit(&mut Draw);
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_within_the_turn_of_another_is_an_error() {
        let device = Device::flex();
        let mut outer = Generator::new(&device, 0, true);
        let nested = outer.train(RngKey::new(1), 0, 0, || {
            let mut inner = Generator::new(&device, 0, true);
            inner.train(RngKey::new(2), 0, 0, || ())
        });
        assert!(matches!(nested, Ok(Err(Error::Trainer(TrainerError::NestedTrainers)))), "{nested:?}");
        // The turn has ended.
        assert!(outer.train(RngKey::new(1), 0, 1, || ()).is_ok());
    }
}

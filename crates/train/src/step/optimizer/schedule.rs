use std::num::NonZeroUsize;
use std::str::FromStr;

use crate::error::{Error, Result, TrainerError};

/// A schedule that multiplies the learning rate by a factor after every `every_epochs` epochs, as PyTorch's `StepLR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepDecay {
    /// The number of epochs between two multiplications, at least 1.
    pub every_epochs: usize,
    /// The factor of each multiplication, above 0 and at most 1.
    pub factor: f64,
}

/// A length of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainingLength {
    /// A number of optimizer steps, counted from the first step of the first epoch.
    Steps(usize),
    /// A number of epochs.
    Epochs(usize),
}

/// Parses a number of steps, or of epochs with the suffix `epochs`. The error is the text of a message.
///
/// ```
/// use kiln_train::TrainingLength;
/// assert_eq!("2epochs".parse(), Ok(TrainingLength::Epochs(2)));
/// assert!("0".parse::<TrainingLength>().is_err());
/// ```
impl FromStr for TrainingLength {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let length = match text.strip_suffix("epochs") {
            Some(n_epochs) => n_epochs.parse().map(|n: NonZeroUsize| Self::Epochs(n.get())),
            None => text.parse().map(|n: NonZeroUsize| Self::Steps(n.get())),
        };
        length.map_err(|_| "expected a number of steps of at least 1, or of epochs, such as `2epochs`".into())
    }
}

/// The decrease of the learning rate during training.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum LrDecay {
    /// No decrease.
    #[default]
    Constant,
    /// A decrease after every few epochs.
    Step(StepDecay),
    /// A half period of the cosine (Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts).
    Cosine {
        /// The length from the start of training, warm-up included, to the end of the decrease.
        over: TrainingLength,
        /// The final learning rate as a share of the initial one, from 0 to 1.
        final_factor: f64,
    },
    /// A straight line.
    Linear {
        /// The length from the start of training, warm-up included, to the end of the decrease.
        over: TrainingLength,
        /// The final learning rate as a share of the initial one, from 0 to 1.
        final_factor: f64,
    },
}

/// A schedule of the learning rate: an optional linear warm-up, then a decrease.
///
/// The learning rate is a function of the step's position in training ([`TrainingPosition`]), so a resumed run needs no
/// stored state for it. Burn's schedulers count their calls instead, and accept no learning rate above 1; without
/// warm-up, the values are equal to theirs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LrSchedule {
    /// The decrease. Cosine and line begin after the warm-up; [`LrDecay::Step`] counts all epochs.
    pub decay: LrDecay,
    /// The length of the warm-up, whose step `s` of `n`, from 0, has the factor `(s + 1) / n`; `None` for no warm-up.
    pub warmup: Option<TrainingLength>,
}

/// The position of a step in training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainingPosition {
    /// The epoch, from 0.
    pub epoch: usize,
    /// The step within the epoch, from 0.
    pub step: usize,
    /// The number of steps of each epoch; `None` if it is not known.
    pub epoch_steps: Option<usize>,
}

impl TrainingPosition {
    /// Returns the number of steps before this one; `None` if the number of steps of an epoch is not known.
    fn n_steps_before(&self) -> Option<usize> {
        Some(self.epoch.saturating_mul(self.epoch_steps?).saturating_add(self.step))
    }

    fn steps_of(&self, length: TrainingLength) -> Option<usize> {
        match length {
            TrainingLength::Steps(n_steps) => Some(n_steps),
            TrainingLength::Epochs(n_epochs) => Some(n_epochs.saturating_mul(self.epoch_steps?)),
        }
    }
}

impl LrSchedule {
    /// Returns a schedule with a decrease after every `every_epochs` epochs.
    ///
    /// ```
    /// # use kiln_train::{LrSchedule, TrainingPosition};
    /// let schedule = LrSchedule::step(10, 0.5);
    /// let rate = |epoch| schedule.rate_at(0.01, TrainingPosition { epoch, step: 0, epoch_steps: None });
    /// assert_eq!([9, 10, 20].map(rate), [Some(0.01), Some(0.005), Some(0.0025)]);
    /// ```
    pub fn step(every_epochs: usize, factor: f64) -> Self {
        Self::from(LrDecay::Step(StepDecay { every_epochs, factor }))
    }

    /// Returns a schedule that decreases to 0 along a cosine.
    ///
    /// ```
    /// # use kiln_train::{LrSchedule, TrainingLength, TrainingPosition};
    /// let schedule = LrSchedule::cosine(TrainingLength::Epochs(20));
    /// let rate = |epoch| schedule.rate_at(0.01, TrainingPosition { epoch, step: 0, epoch_steps: Some(100) });
    /// assert_eq!((rate(0), rate(20)), (Some(0.01), Some(0.0)));
    /// ```
    pub fn cosine(over: TrainingLength) -> Self {
        Self::from(LrDecay::Cosine { over, final_factor: 0.0 })
    }

    /// Returns a schedule that decreases to 0 along a straight line.
    ///
    /// ```
    /// # use kiln_train::{LrSchedule, TrainingLength, TrainingPosition};
    /// let schedule = LrSchedule::linear(TrainingLength::Steps(1_000));
    /// let rate = |step| schedule.rate_at(0.01, TrainingPosition { epoch: 0, step, epoch_steps: Some(5_000) });
    /// assert_eq!([0, 500, 1_000].map(rate), [Some(0.01), Some(0.005), Some(0.0)]);
    /// ```
    pub fn linear(over: TrainingLength) -> Self {
        Self::from(LrDecay::Linear { over, final_factor: 0.0 })
    }

    /// Sets the length of the warm-up.
    ///
    /// ```
    /// # use kiln_train::{LrSchedule, TrainingLength, TrainingPosition};
    /// let schedule = LrSchedule::default().warmup(TrainingLength::Steps(4));
    /// let rate = |step| schedule.rate_at(0.4, TrainingPosition { epoch: 0, step, epoch_steps: Some(100) });
    /// assert_eq!([0, 1, 3, 99].map(rate), [Some(0.1), Some(0.2), Some(0.4), Some(0.4)]);
    /// ```
    #[must_use]
    pub fn warmup(self, length: TrainingLength) -> Self {
        Self { warmup: Some(length), ..self }
    }

    /// Returns the learning rate of a step if `initial` is the rate without a schedule; `None` if it depends on the
    /// number of steps of an epoch and the position has none.
    ///
    /// ```
    /// # use kiln_train::{LrSchedule, TrainingLength, TrainingPosition};
    /// let schedule = LrSchedule::cosine(TrainingLength::Epochs(2));
    /// let half = TrainingPosition { epoch: 1, step: 0, epoch_steps: Some(50) };
    /// assert!((schedule.rate_at(0.01, half).unwrap() - 0.005).abs() < 1e-9);
    /// // A length in epochs needs the number of steps of an epoch.
    /// assert_eq!(schedule.rate_at(0.01, TrainingPosition { epoch_steps: None, ..half }), None);
    /// ```
    ///
    /// # Panics
    /// Panics if the rate decays every 0 epochs, which [`OptimizerConfig::init`](crate::OptimizerConfig::init) rejects.
    pub fn rate_at(&self, initial: f64, position: TrainingPosition) -> Option<f64> {
        let warmup = match self.warmup {
            Some(length) => position.steps_of(length)?,
            None => 0,
        };
        let rate = match self.decay {
            LrDecay::Constant => initial,
            LrDecay::Step(StepDecay { every_epochs, factor }) => {
                let n_times = i32::try_from(position.epoch / every_epochs).unwrap_or(i32::MAX);
                initial * factor.powi(n_times)
            }
            LrDecay::Cosine { over, final_factor } => {
                let progress = progress(position.n_steps_before()?, warmup, position.steps_of(over)?);
                let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
                initial * (final_factor + (1.0 - final_factor) * cosine)
            }
            LrDecay::Linear { over, final_factor } => {
                let progress = progress(position.n_steps_before()?, warmup, position.steps_of(over)?);
                initial * (1.0 - (1.0 - final_factor) * progress)
            }
        };
        if self.warmup.is_none() {
            return Some(rate);
        }
        let n_before = position.n_steps_before()?;
        Some(if n_before < warmup { rate * ((n_before + 1) as f64 / warmup as f64) } else { rate })
    }

    /// Checks the lengths and factors.
    ///
    /// # Errors
    /// Returns [`TrainerError::BadSetting`] for a length of 0, a decay every 0 epochs, or a factor that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |what, expected, got| Err(Error::Trainer(TrainerError::BadSetting { what, expected, got }));
        match self.decay {
            LrDecay::Constant => {}
            LrDecay::Step(StepDecay { every_epochs, factor }) => {
                if every_epochs == 0 {
                    return bad(
                        "the number of epochs between decays of the learning rate",
                        "at least 1",
                        0.0,
                    );
                }
                if !(0.0 < factor && factor <= 1.0) {
                    return bad("the learning rate's decay factor", "above 0 and at most 1", factor);
                }
            }
            LrDecay::Cosine { over, final_factor } | LrDecay::Linear { over, final_factor } => {
                if is_zero(over) {
                    return bad("the length of the learning rate's schedule", "at least 1", 0.0);
                }
                if !(0.0..=1.0).contains(&final_factor) {
                    return bad("the learning rate's final factor", "at least 0 and at most 1", final_factor);
                }
            }
        }
        match self.warmup {
            Some(length) if is_zero(length) => bad("the length of the warm-up", "at least 1", 0.0),
            _ => Ok(()),
        }
    }
}

impl From<LrDecay> for LrSchedule {
    fn from(decay: LrDecay) -> Self {
        Self { decay, warmup: None }
    }
}

fn is_zero(length: TrainingLength) -> bool {
    matches!(length, TrainingLength::Steps(0) | TrainingLength::Epochs(0))
}

/// Returns the share of the steps from `warmup` to `over` that are before this step, at most 1; 0 during the warm-up.
fn progress(n_before: usize, warmup: usize, over: usize) -> f64 {
    match (n_before.checked_sub(warmup), over.saturating_sub(warmup)) {
        (None, _) => 0.0,
        (Some(done), length) if done < length => done as f64 / length as f64,
        (Some(_), _) => 1.0,
    }
}

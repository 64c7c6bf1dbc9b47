use std::f64::consts::FRAC_PI_2;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_kernels::ops;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::error::check_size;

/// The ratio of the largest frequency to the smallest, as in the positions of a transformer.
const RATIO: f64 = 10_000.0;

/// How the frequencies of a [`TimeEncoder`] are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frequencies {
    /// They stay the initial ones, as in GraphMixer (Cong et al. 2023) and in the positions of a transformer (Vaswani et al. 2017,
    /// section 3.5).
    Fixed,
    /// Training changes them, as in TGAT (Xu et al. 2020) and Time2Vec (Kazemi et al. 2019).
    Learned,
}

/// The configuration of a [`TimeEncoder`].
///
/// ```
/// use kiln_nn::TimeEncoderConfig;
/// let config = TimeEncoderConfig::learned(16);
/// // A cosine and a sine of each frequency.
/// assert_eq!(config.n_columns(), 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeEncoderConfig {
    /// How the frequencies are found.
    pub frequencies: Frequencies,
    /// The number of frequencies, at least 1.
    pub n_frequencies: usize,
}

impl TimeEncoderConfig {
    /// Creates a configuration with frequencies that training does not change.
    pub fn fixed(n_frequencies: usize) -> Self {
        Self { frequencies: Frequencies::Fixed, n_frequencies }
    }

    /// Creates a configuration with frequencies that training changes.
    pub fn learned(n_frequencies: usize) -> Self {
        Self { frequencies: Frequencies::Learned, n_frequencies }
    }

    /// Returns the number of columns of an encoded age: a cosine and a sine of each frequency.
    pub fn n_columns(&self) -> usize {
        self.n_frequencies.saturating_mul(2)
    }

    /// Creates an encoder with the initial frequencies `pi / 2 * 10000^(i / (n - 1))`, `i` from 0: the longest wave changes in one
    /// direction while an age grows from 0 to 1, and the shortest is 10,000 times shorter.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`](crate::Error::OutOfRange) if there are no frequencies, or too many.
    pub fn init(&self, device: &Device) -> Result<TimeEncoder> {
        check_size("the number of frequencies", self.n_columns())?;
        let last = (self.n_frequencies - 1).max(1) as f64;
        let initial: Vec<f32> =
            (0..self.n_frequencies).map(|i| (FRAC_PI_2 * RATIO.powf(i as f64 / last)) as f32).collect();
        Ok(match self.frequencies {
            Frequencies::Fixed => TimeEncoder { frequency: None, fixed: initial },
            Frequencies::Learned => {
                let data = TensorData::new(initial, [self.n_frequencies]);
                let frequency = Param::from_tensor(Tensor::from_data(data, device));
                TimeEncoder { frequency: Some(frequency), fixed: Vec::new() }
            }
        })
    }
}

/// An encoder of ages: the cosines and sines of `age * frequency`, for fixed or learned frequencies.
///
/// An age is the length of time between an event and the time of the item that reads it, in a unit in which most ages are in
/// `[0, 1]`. A negative age stands for an event without a known time, whose encoded age is all zeros. Phases, as TGAT and
/// Time2Vec have them, need no parameters: a linear layer on the cosine and the sine of a frequency contains every phase.
#[derive(Module, Debug)]
pub struct TimeEncoder {
    /// The learned frequencies, `[n]`; `None` if they are fixed.
    pub frequency: Option<Param<Tensor<1>>>,
    /// The fixed frequencies; empty if they are learned.
    #[module(skip)]
    fixed: Vec<f32>,
}

impl TimeEncoder {
    /// Encodes ages.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use kiln_nn::TimeEncoderConfig;
    /// let device = Device::flex();
    /// let encoder = TimeEncoderConfig::fixed(1).init(&device)?;
    /// let encoded = encoder.forward(Tensor::from_data([[1.0], [0.0], [-1.0]], &device));
    /// let values = kiln_kernels::to_vec_f32(encoded);
    /// // A quarter of a wave, no time, and no known time.
    /// assert!(values[0].abs() < 1e-6 && values[1] == 1.0);
    /// assert_eq!(values[2..], [1.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Shapes
    /// `ages` is `[n, 1]`, the result `[n, 2 * n_frequencies]`: the cosines, then the sines.
    ///
    /// # Panics
    /// Panics if the ages do not have one column.
    pub fn forward(&self, ages: Tensor<2>) -> Tensor<2> {
        let [n_rows, width] = ages.dims();
        assert_eq!(width, 1, "ages have {width} columns, expected 1");
        let frequency: Tensor<2> = match &self.frequency {
            Some(frequency) => frequency.val().unsqueeze(),
            None => {
                let data = TensorData::new(self.fixed.clone(), [1, self.fixed.len()]);
                Tensor::from_data(data, &ages.device())
            }
        };
        let [_, n_frequencies] = frequency.dims();
        let is_known = ages.clone().greater_equal_elem(0.0).float();
        // A product of matrices could round the ages to 10 bits on a GPU, so that large frequencies had random phases.
        let angles = ops::mul_row(ages.expand([n_rows, n_frequencies]), frequency);
        let encoded = Tensor::cat(vec![angles.clone().cos(), angles.sin()], 1);
        encoded * is_known.expand([n_rows, 2 * n_frequencies])
    }
}

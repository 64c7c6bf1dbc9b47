use std::fmt;
use std::str::FromStr;

use kiln_comm::{LaunchFlags, RankConfig};
use kiln_kernels::Devices;

use crate::{Error, Result};

/// The largest number of ranks that the text of a [`RankCount`] may contain. It catches typing errors.
const MAX_RANKS: usize = 1024;

/// Returns the number of devices that a name stands for, or several names separated by commas: for `cuda` the number of
/// the machine's GPUs, and 1 for `cpu` and `cuda:1`. The names are those of [`Trainer::device`](crate::Trainer::device).
///
/// ```
/// assert_eq!(kiln::device_count("cpu")?, 1);
/// # Ok::<(), kiln::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::Device`] if a device does not exist or is not supported by this build.
pub fn device_count(names: &str) -> Result<usize> {
    Ok(Devices::open(names)?.len())
}

/// The number of ranks that a program starts as threads, for a flag such as `--ranks`. Its text is a number from 1 to
/// 1024, or `auto`.
///
/// ```
/// use kiln::prelude::*;
/// let devices: Devices = "cpu,cpu,cpu".parse()?;
/// assert_eq!("auto".parse::<RankCount>()?.on(&devices), 3);
/// assert_eq!("2".parse::<RankCount>()?.on(&devices), 2);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankCount {
    /// One rank per device. The CPU is one device.
    Auto,
    /// This number of ranks, which use the devices in turn.
    Exactly(usize),
}

impl RankCount {
    /// Returns the number of ranks on these devices.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let devices: Devices = "cpu,cpu".parse()?;
    /// assert_eq!((RankCount::Auto.on(&devices), RankCount::Exactly(4).on(&devices)), (2, 4));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn on(self, devices: &Devices) -> usize {
        match self {
            Self::Auto => devices.len(),
            Self::Exactly(n_ranks) => n_ranks,
        }
    }

    /// Configures the ranks of a program on these devices, as [`RankConfig::from_env_or_threads`] does: if a launcher
    /// started several processes, each process is one rank, whatever this number is. NCCL uses the device that this
    /// process computes on.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(data: Dataset, loader: NeighborLoader) -> Result<()> {
    /// // One rank per GPU of this machine, or one rank per process under a launcher.
    /// let devices: Devices = "cuda".parse()?;
    /// launch(RankCount::Auto.config(&devices), |rank| {
    ///     let trainer = Trainer::new(SageConfig::for_data(&data), AdamConfig::new(3e-3));
    ///     trainer.devices(devices.clone()).rank(&rank).fit(&loader, FitConfig::epochs(10)).map(drop)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn config(self, devices: &Devices) -> RankConfig {
        self.config_from(devices, |name| std::env::var(name).ok())
    }

    fn config_from(self, devices: &Devices, var: impl Fn(&str) -> Option<String>) -> RankConfig {
        let config = RankConfig::from_vars_or_threads(self.on(devices), &LaunchFlags::default(), var);
        let local_rank = config.launch_env().map(|launch| launch.local_rank);
        match local_rank.and_then(|local_rank| devices.cuda_index(local_rank)) {
            Some(cuda_device) => config.cuda_device(cuda_device),
            None => config,
        }
    }
}

impl FromStr for RankCount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(n_ranks @ 1..=MAX_RANKS) => Ok(Self::Exactly(n_ranks)),
            _ => Err(Error::InvalidRankCount { text: text.to_owned(), most: MAX_RANKS }),
        }
    }
}

/// Formats the text from which the number is parsed.
impl fmt::Display for RankCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exactly(n_ranks) => n_ranks.fmt(f),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/ranks/rank_count.rs"]
mod tests;

use std::fmt;
use std::time::Duration;

use super::{ProgressStage, ProgressUnit};

/// The state of a stage at a time. It formats as one line, such as
/// `sorting edges: 45 % of 120000000 edges, 12 s, about 15 s left`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressLine {
    /// What the stage does.
    pub stage: String,
    /// The unit of the counts.
    pub unit: ProgressUnit,
    /// The number of finished units.
    pub done: u64,
    /// The number of units of the whole stage; `None` if it is unknown.
    pub total: Option<u64>,
    /// The time since the stage began.
    pub elapsed: Duration,
    /// The estimated time until the stage ends; `None` as long as the estimates change.
    pub remaining: Option<Duration>,
}

impl ProgressLine {
    pub(super) fn new(stage: &ProgressStage, elapsed: Duration, remaining: Option<Duration>) -> Self {
        Self {
            stage: stage.name().to_owned(),
            unit: stage.unit(),
            done: stage.done(),
            total: stage.total(),
            elapsed,
            remaining,
        }
    }

    /// Returns the finished share of the stage, 0 to 1; `None` if the total is unknown.
    pub fn share(&self) -> Option<f64> {
        let total = self.total?;
        Some(if self.done < total { self.done as f64 / total as f64 } else { 1.0 })
    }
}

impl fmt::Display for ProgressLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name of a stage may contain that of a file, whose control characters a terminal would obey.
        for char in self.stage.chars() {
            match char.is_control() {
                true => write!(f, "{}", char.escape_default())?,
                false => write!(f, "{char}")?,
            }
        }
        f.write_str(": ")?;
        match (self.share(), self.total) {
            (Some(share), Some(total)) => {
                // Rounded down: 100 % is the end.
                let percent = (share * 100.0) as u32;
                write!(f, "{percent} % of {}, ", quantity(total, self.unit))?;
            }
            _ if self.done != 0 => write!(f, "{}, ", quantity(self.done, self.unit))?,
            _ => {}
        }
        f.write_str(&duration(self.elapsed))?;
        match self.remaining {
            Some(remaining) => write!(f, ", about {} left", duration(remaining)),
            None => Ok(()),
        }
    }
}

/// Formats a number of units, and bytes with a binary unit.
fn quantity(n: u64, unit: ProgressUnit) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if unit != ProgressUnit::Bytes || n < 1024 {
        return format!("{n} {}", unit.name());
    }
    let mut value = n as f64 / 1024.0;
    let mut position = 0;
    while 1024.0 <= value && position + 1 < UNITS.len() {
        value /= 1024.0;
        position += 1;
    }
    format!("{value:.1} {}", UNITS[position])
}

/// Formats a time in whole seconds, minutes or hours.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

//! Sine and cosine of parts of timestamps, and their trend.

use std::f64::consts::TAU;

use super::TimeStats;
use crate::spec::TimePart;
use kiln_data::calendar::{DAY, SECOND, date_of, days_before};

/// Returns a time in seconds since 1970.
pub(super) fn seconds(micros: i64) -> f64 {
    micros as f64 / SECOND as f64
}

/// Returns the standardised time; 0 if all times of the statistics are equal.
pub(super) fn linear(micros: i64, stats: Option<TimeStats>) -> f32 {
    let stats = stats.filter(|stats| stats.std > 0.0);
    stats.map_or(0.0, |stats| ((seconds(micros) - stats.mean) / stats.std) as f32)
}

/// Returns sine and cosine of a part of a timestamp; `None` for the trend, which is not periodic.
pub(super) fn cyclic(micros: i64, part: TimePart) -> Option<[f32; 2]> {
    let day = micros.div_euclid(DAY);
    let [year, month, day_of_month] = date_of(day);
    let (value, period) = match part {
        TimePart::Hour => (micros.rem_euclid(DAY) / (3600 * SECOND), 24.0),
        // 1970-01-01 was a Thursday.
        TimePart::DayOfWeek => ((day + 3).rem_euclid(7), 7.0),
        TimePart::DayOfMonth => (day_of_month - 1, 31.0),
        TimePart::Month => (month - 1, 12.0),
        TimePart::DayOfYear => (day - days_before(year, 1, 1), 366.0),
        TimePart::Trend => return None,
    };
    let angle = TAU * value as f64 / period;
    Some([angle.sin() as f32, angle.cos() as f32])
}

//! Sine and cosine of parts of timestamps.

use std::f64::consts::TAU;

use crate::spec::TimePart;
use kiln_data::calendar::{DAY, SECOND, date_of, days_before};

/// Returns sine and cosine of a part of a timestamp.
pub(super) fn cyclic(micros: i64, part: TimePart) -> [f32; 2] {
    let day = micros.div_euclid(DAY);
    let [year, month, day_of_month] = date_of(day);
    let (value, period) = match part {
        TimePart::Hour => (micros.rem_euclid(DAY) / (3600 * SECOND), 24.0),
        // 1970-01-01 was a Thursday.
        TimePart::DayOfWeek => ((day + 3).rem_euclid(7), 7.0),
        TimePart::DayOfMonth => (day_of_month - 1, 31.0),
        TimePart::Month => (month - 1, 12.0),
        TimePart::DayOfYear => (day - days_before(year, 1, 1), 366.0),
    };
    let angle = TAU * value as f64 / period;
    [angle.sin() as f32, angle.cos() as f32]
}

//! Timestamps in microseconds since 1970-01-01 UTC, in the proleptic Gregorian calendar, and their texts.

use std::fmt::Write as _;
use std::ops::Range;

/// A second in microseconds.
pub const SECOND: i64 = 1_000_000;
/// A day in microseconds.
pub const DAY: i64 = 86_400 * SECOND;

/// The times of the years 1 to 9999.
pub const YEARS: Range<i64> = days_before(1, 1, 1) * DAY..days_before(10_000, 1, 1) * DAY;

/// Appends the text of a time: `2024-01-31` at midnight, and else `2024-01-31T12:30:00Z` with the digits of the fraction that
/// are needed.
pub fn write_time(micros: i64, buffer: &mut String) {
    let [year, month, day_of_month] = date_of(micros.div_euclid(DAY));
    // Writing to a string cannot fail.
    let _ = write!(buffer, "{year:04}-{month:02}-{day_of_month:02}");
    let since_midnight = micros.rem_euclid(DAY);
    if since_midnight == 0 {
        return;
    }
    let seconds = since_midnight / SECOND;
    let _ = write!(buffer, "T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = since_midnight % SECOND;
    if fraction > 0 {
        let _ = write!(buffer, ".{fraction:06}");
        buffer.truncate(buffer.trim_end_matches('0').len());
    }
    buffer.push('Z');
}

/// Parses `2024-01-31`, or `2024-01-31T12:30:00` with an optional fraction and an optional `Z` or offset such as `+02:00`.
/// A space may stand for the `T`, and seconds may be absent. A time without an offset is in UTC. `None` for other texts, and for
/// dates that do not exist.
///
/// ```
/// use kiln_data::calendar::{SECOND, parse_time};
/// assert_eq!(parse_time("1970-01-01T01:00:02+01:00"), Some(2 * SECOND));
/// assert_eq!(parse_time("2023-02-29"), None);
/// ```
pub fn parse_time(text: &str) -> Option<i64> {
    parse_time_at(text, 0)
}

/// Parses a text as [`parse_time`] does. A time without an offset has the given one, in minutes east of UTC.
///
/// ```
/// use kiln_data::calendar::{parse_time, parse_time_at};
/// assert_eq!(parse_time_at("2026-03-01 01:00", 60), parse_time("2026-03-01"));
/// assert_eq!(parse_time_at("2026-03-01T01:00Z", 60), parse_time("2026-03-01T01:00"));
/// ```
pub fn parse_time_at(text: &str, offset_minutes: i64) -> Option<i64> {
    let text = text.trim();
    let (date, time) = match text.find(['T', 't', ' ']) {
        None => (text, None),
        Some(position) => (text.get(..position)?, Some(text.get(position + 1..)?)),
    };
    let mut parts = date.split('-');
    let [year, month, day] = [4, 2, 2].map(|n_digits| parts.next().and_then(|part| digits(part, n_digits)));
    let year = year?;
    let month = month?;
    let day = day?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let midnight = days_before(year, month, day) * DAY;
    match time {
        None => Some(midnight - offset_minutes * 60 * SECOND),
        Some(clock) => Some(midnight + parse_clock(clock, offset_minutes)?),
    }
}

/// Parses the time of a day, and returns its microseconds since midnight in UTC. `default_offset` is that of a text without one.
fn parse_clock(text: &str, default_offset: i64) -> Option<i64> {
    let (clock, offset) = match text.find(['Z', 'z', '+', '-']) {
        None => (text, default_offset),
        Some(position) => {
            let (clock, zone) = text.split_at_checked(position)?;
            (clock, parse_offset(zone)?)
        }
    };
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, rest)| (clock, Some(rest)));
    let mut parts = clock.split(':');
    let hour = below(parts.next()?, 24)?;
    let minute = below(parts.next()?, 60)?;
    let second = parts.next().map_or(Some(0), |second| below(second, 61))?;
    if parts.next().is_some() {
        return None;
    }
    let fraction = match fraction {
        None => 0,
        Some(text) if (1..=9).contains(&text.len()) => {
            digits(text, text.len())? * 10_i64.pow(9 - text.len() as u32) / 1000
        }
        Some(_) => return None,
    };
    Some((60 * (60 * hour + minute - offset) + second) * SECOND + fraction)
}

/// Parses two digits of a number below a limit.
fn below(text: &str, limit: i64) -> Option<i64> {
    digits(text, 2).filter(|value| *value < limit)
}

fn digits(text: &str, n_digits: usize) -> Option<i64> {
    let is_number = text.len() == n_digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Parses an offset from UTC such as `+02:00`, `-0130` or `Z`, and returns its minutes east of UTC.
///
/// ```
/// use kiln_data::calendar::parse_offset;
/// assert_eq!(["+02:00", "-0130", "Z", "UTC"].map(parse_offset), [Some(120), Some(-90), Some(0), Some(0)]);
/// // Its offset depends on the date.
/// assert_eq!(parse_offset("Europe/Berlin"), None);
/// ```
pub fn parse_offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return matches!(text, "Z" | "z" | "UTC").then_some(0),
    };
    let zone = text.get(1..)?;
    let (hours, minutes) = zone.split_once(':').or_else(|| zone.split_at_checked(2))?;
    Some(sign * (60 * below(hours, 24)? + below(minutes, 60)?))
}

/// Returns the number of days from 1970-01-01 to a date (Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `days_from_civil`).
pub const fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Returns year, month and day of month of a day since 1970-01-01 (Hinnant, `civil_from_days`).
pub fn date_of(day: i64) -> [i64; 3] {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + 400 * era + i64::from(month <= 2);
    [year, month, day_of_year - (153 * shifted + 2) / 5 + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_dates_and_offsets() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2024-01-31T12:30:15Z", 1_706_704_215),
            ("2024-01-31 12:30", 1_706_704_200),
            ("2024-01-31T12:30:15+02:00", 1_706_697_015),
            ("2024-01-31T12:30:15-0130", 1_706_709_615),
            ("1969-12-31T23:59:59", -1),
        ] {
            assert_eq!(parse_time(text), Some(seconds * SECOND), "{text}");
        }
        assert_eq!(parse_time("1970-01-01T00:00:00.25"), Some(250_000));
        for text in [
            "2023-02-29",
            "2024-13-01",
            "2024-1-01",
            "24-01-01",
            "2024-01-01T24:00",
            "2024-01-01T",
            "now",
            "",
            "2024-01-01T10:00é",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn texts_of_times_are_parsed_to_the_same_time() {
        for (micros, text) in [
            (0, "1970-01-01"),
            (-DAY, "1969-12-31"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (YEARS.start, "0001-01-01"),
            (1_706_704_215 * SECOND + 500_000, "2024-01-31T12:30:15.5Z"),
            (1_706_704_200 * SECOND, "2024-01-31T12:30:00Z"),
        ] {
            let mut buffer = String::new();
            write_time(micros, &mut buffer);
            assert_eq!((buffer.as_str(), parse_time(&buffer)), (text, Some(micros)));
        }
    }

    #[test]
    fn dates_and_days_are_inverse() {
        for day in (-1_000_000..1_000_000).step_by(997) {
            let [year, month, day_of_month] = date_of(day);
            assert_eq!(days_before(year, month, day_of_month), day);
        }
        assert_eq!(date_of(19_782), [2024, 2, 29]);
    }
}

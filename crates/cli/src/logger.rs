//! The log: lines on standard error.

use std::io::{self, Write};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::clock;

/// Logs lines like `2026-11-21T09:04:05Z warning: only 992 clients at once: ...`. The level may be
/// changed later.
pub(crate) fn start(level: LevelFilter) {
    // Fails if there is a logger already, which is then used.
    let _ = log::set_logger(&Logger);
    log::set_max_level(level);
}

struct Logger;

impl Log for Logger {
    /// What libraries tell each other is not for operators.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("terrace")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = match record.level() {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "notice",
            Level::Debug | Level::Trace => "debug",
        };
        let line = format!("{} {level}: {}\n", time(clock::now_ms() / 1000), record.args());
        // In one piece, so that lines of other processes stay whole. Nobody is left to tell of an
        // error.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// Unix seconds as RFC 3339 has them.
fn time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970. Years begin in March here, so that the day that some years have
/// more comes last: `https://howardhinnant.github.io/date_algorithms.html`.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, turn) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + turn, month, day)
}

#[cfg(test)]
mod tests {
    use super::{date, time};

    #[test]
    fn seconds_are_dates_and_times() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_795_251_845), "2026-11-21T09:04:05Z");
        assert_eq!(time(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn dates_follow_each_other_through_all_kinds_of_years() {
        let is_long =
            |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let mut expected = (1970, 1, 1);
        for day in 0..200_000 {
            assert_eq!(date(day), expected);
            let (year, month, of_month) = expected;
            let length = match month {
                2 => 28 + u64::from(is_long(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expected = match (month, of_month) {
                (12, 31) => (year + 1, 1, 1),
                (month, of_month) if of_month == length => (year, month + 1, 1),
                (month, of_month) => (year, month, of_month + 1),
            };
        }
    }
}

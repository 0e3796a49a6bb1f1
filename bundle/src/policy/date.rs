//! Days, for expiries. The gate is given today; it never asks a clock.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A day of the Gregorian calendar, `YYYY-MM-DD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// The day of so many seconds after 1970-01-01 (UTC).
    pub fn of_unix_seconds(seconds: u64) -> Self {
        // Days since 0000-03-01, in eras of 400 years (Hinnant, chrono-compatible low-level date algorithms).
        let days = seconds / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = (of_year - (153 * shifted + 2) / 5 + 1) as u8;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u8;
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        Self { year: u16::try_from(year).unwrap_or(u16::MAX), month, day }
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a day such as \"2026-12-31\", found {text:?}");
        let digits = |i| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
        let is_shaped = text.len() == 10 && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(digits);
        if !is_shaped || text.as_bytes()[4] != b'-' || text.as_bytes()[7] != b'-' {
            return Err(wrong());
        }
        let number = |range: std::ops::Range<usize>| text[range].parse::<u16>().map_err(|_| wrong());
        let (year, month, day) = (number(0..4)?, number(5..7)? as u8, number(8..10)? as u8);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + u8::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        if day == 0 || day > days { Err(wrong()) } else { Ok(Self { year, month, day }) }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}

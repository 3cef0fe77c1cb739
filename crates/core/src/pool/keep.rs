//! For how long a hold for a pod's name stays when no pod uses it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest such time that ends, in seconds: a year.
const KEEP_MAX: u64 = 365 * 24 * 3600;

/// The word for a hold that only a person ends.
const FOREVER: &str = "forever";

/// For how long a hold stays after its last use. The longer one is the greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Keep {
    /// So many seconds.
    Seconds(u64),
    /// Until a person ends it.
    Forever,
}

impl Keep {
    /// The form of its text, for errors.
    pub const EXPECTED: &str = "\"forever\", or whole seconds up to 365d, such as \"10m\" or \"7d\"";

    /// The time of so many seconds; none: without an end.
    #[must_use]
    pub fn of_seconds(seconds: Option<u64>) -> Self {
        seconds.map_or(Self::Forever, Self::Seconds)
    }

    /// The longest of these; none if one of them is none, or if there is none.
    #[must_use]
    pub fn longest(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        all.into_iter().reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// In seconds; none: without an end.
    #[must_use]
    pub fn seconds(self) -> Option<u64> {
        match self {
            Self::Seconds(seconds) => Some(seconds),
            Self::Forever => None,
        }
    }
}

impl Default for Keep {
    /// A day, for a configuration that does not say it.
    fn default() -> Self {
        Self::Seconds(24 * 3600)
    }
}

/// As people write it: `7d`, `1h 30m`, `forever`.
impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == FOREVER {
            return Ok(Self::Forever);
        }
        let invalid = || format!("{text:?} is not a time to keep: expected {}", Self::EXPECTED);
        let time = humantime::parse_duration(text).map_err(|_| invalid())?;
        match (time.as_secs(), time.subsec_nanos()) {
            (seconds @ 1..=KEEP_MAX, 0) => Ok(Self::Seconds(seconds)),
            _ => Err(invalid()),
        }
    }
}

impl TryFrom<String> for Keep {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Keep> for String {
    fn from(keep: Keep) -> String {
        keep.to_string()
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => humantime::format_duration(Duration::from_secs(*seconds)).fmt(f),
            Self::Forever => f.write_str(FOREVER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_keep_is_read_as_people_write_it() {
        for (text, keep) in [
            ("1s", Keep::Seconds(1)),
            ("10m", Keep::Seconds(600)),
            ("1d 1h", Keep::Seconds(90_000)),
            ("365d", Keep::Seconds(KEEP_MAX)),
            ("forever", Keep::Forever),
        ] {
            assert_eq!(text.parse(), Ok(keep), "{text}");
            assert_eq!(keep.to_string().parse(), Ok(keep), "{text}");
        }
        for text in ["", "0s", "60", "-1s", "1500ms", "366d", "for ever", "Forever"] {
            let error = text.parse::<Keep>().expect_err(text);
            assert!(error.contains(&format!("{text:?}")) && error.contains("forever"), "{error}");
        }
        assert!(Keep::Forever > Keep::Seconds(KEEP_MAX));
    }
}

//! Cooldowns: the time that an address rests after it was freed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest cooldown, in seconds: a day.
pub(crate) const COOLDOWN_MAX: u32 = 24 * 3600;

/// The time that an address rests, in whole seconds: at least so long, and at most 15 seconds longer. With 0 it does
/// not rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CooldownTime(u32);

impl CooldownTime {
    /// The form of its text, for errors.
    pub const EXPECTED: &str = "whole seconds up to 24h, such as \"60s\" or \"1h 30m\"";

    /// So many seconds, but no more than [`COOLDOWN_MAX`].
    #[must_use]
    pub fn of_seconds(seconds: u32) -> Self {
        Self(seconds.min(COOLDOWN_MAX))
    }

    /// In seconds.
    pub(crate) fn seconds(self) -> u32 {
        self.0
    }
}

/// As people write it: `90s`, `1h 30m`.
impl FromStr for CooldownTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a cooldown: expected {}", Self::EXPECTED);
        let time = humantime::parse_duration(text).map_err(|_| invalid())?;
        let seconds = u32::try_from(time.as_secs()).ok().filter(|seconds| *seconds <= COOLDOWN_MAX);
        match (seconds, time.subsec_nanos()) {
            (Some(seconds), 0) => Ok(Self(seconds)),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for CooldownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(Duration::from_secs(self.0.into())).fmt(f)
    }
}

crate::named_enum! {
    /// The rule for an ADD if all that is free in a range is cooling.
    #[derive(Default)]
    pub enum WhenFull {
        /// It fails, and its runtime tries again.
        #[default]
        Wait = "wait",
        /// It takes the address that has been cooling for longest.
        Reuse = "reuse",
    }
}

/// The rules of a configuration or a pool about cooling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cooldown {
    /// The time that an address rests.
    pub time: CooldownTime,
    /// The rule if nothing else is free.
    pub when_full: WhenFull,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cooldown_is_read_as_people_write_it() {
        for (text, seconds) in [
            ("0s", Some(0)),
            ("60s", Some(60)),
            ("1h 30m", Some(5400)),
            ("24h", Some(86_400)),
            ("1day", Some(86_400)),
        ] {
            assert_eq!(text.parse::<CooldownTime>().ok().map(CooldownTime::seconds), seconds, "{text}");
        }
        for text in ["", "60", "-1s", "1500ms", "24h 1s", "1year", "soon"] {
            let error = text.parse::<CooldownTime>().expect_err(text);
            assert!(error.contains(&format!("{text:?}")) && error.contains("24h"), "{error}");
        }
        assert_eq!(CooldownTime(5400).to_string(), "1h 30m");
    }
}

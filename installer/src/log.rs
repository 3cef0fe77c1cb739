//! The lines that this program writes to the log of its pod.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The time after which an unchanged state is said again.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// The characters that are told of a text of others.
const TOLD_CHARACTERS: usize = 400;

pub(crate) fn tell(lines: &[String]) {
    lines.iter().for_each(|line| say(line));
}

pub(crate) fn say(line: &str) {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(io::stderr().lock(), "metes-install: {line}");
}

/// Text of others in one line of a log, cut off where it is long.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().take(TOLD_CHARACTERS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Says a state when it begins, and not again while it lasts.
#[derive(Default)]
pub(crate) struct Notice {
    last: Option<String>,
}

impl Notice {
    pub(crate) fn say(&mut self, state: Option<String>) {
        if state == self.last {
            return;
        }
        if let Some(line) = &state {
            say(line);
        }
        self.last = state;
    }
}

/// Says a change at once, and an unchanged state from time to time.
#[derive(Default)]
pub(crate) struct Voice {
    last: Option<(String, Instant)>,
}

impl Voice {
    pub(crate) fn say(&mut self, line: String) {
        let is_known = |(last, at): &(String, Instant)| *last == line && at.elapsed() < SAID_EVERY;
        if !self.last.as_ref().is_some_and(is_known) {
            say(&line);
            self.last = Some((line, Instant::now()));
        }
    }
}

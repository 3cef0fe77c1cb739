//! The lines that this program writes to the log of its pod.

use std::io::{self, Write};

pub(crate) fn tell(lines: &[String]) {
    lines.iter().for_each(|line| say(line));
}

pub(crate) fn say(line: &str) {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(io::stderr().lock(), "metes-install: {line}");
}

//! A line for each run of the plugin: its verb, its code, and how long it took. The installer's metrics count them.
//!
//! A run adds its line when its caller has the answer, with one write, and waits for nothing: no lock, no disk, no
//! etcd. A line that cannot be written is no reason to fail, and it makes no folder: where no node state is kept,
//! nothing is left. A line says neither whose machine it is of nor when it was written. So a reader counts only those
//! that are added while it looks.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::errors;
use super::files;
use metes_config::cni::{Error, Verb};
use metes_core::limits;

/// The name of the file.
const RUNS: &str = "runs";
/// The word of a run that found the store suspect.
const SUSPECT: &str = "suspect";

/// How one run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLine {
    /// The verb.
    pub verb: Verb,
    /// The number of its error; 0 for success.
    pub code: u16,
    /// Its duration in microseconds.
    pub micros: u64,
    /// True if it failed because the store contradicts what this node knows of it.
    pub is_suspect: bool,
}

impl RunLine {
    /// The line of a run that ended with this error, or without one.
    #[must_use]
    pub fn of(verb: Verb, error: Option<&Error>, lasted: Duration) -> Self {
        Self {
            verb,
            code: error.map_or(0, |error| error.code.number()),
            micros: lasted.as_micros().try_into().unwrap_or(u64::MAX),
            is_suspect: error.is_some_and(errors::is_suspect),
        }
    }

    /// Reads a line without its end.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (verb, code, micros) = (words.next()?, words.next()?, words.next()?);
        let last = words.next();
        let is_whole = last.is_none_or(|word| word == SUSPECT) && words.next().is_none();
        is_whole.then_some(Self {
            verb: Verb::named(verb)?,
            code: code.parse().ok()?,
            micros: micros.parse().ok()?,
            is_suspect: last.is_some(),
        })
    }

    /// Adds the line to those in a node's folder, unless they fill their file: then no installer reads them.
    ///
    /// # Errors
    /// [`io::Error`] if there is no such folder, or if the file is not this node's own.
    pub fn leave(&self, folder: &Path) -> io::Result<()> {
        files::append(&path(folder), format!("{self}\n").as_bytes(), limits::RUNS_BYTES)
    }
}

impl fmt::Display for RunLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.code, self.micros)?;
        if self.is_suspect { write!(f, " {SUSPECT}") } else { Ok(()) }
    }
}

/// The file in a node's folder.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join(RUNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_a_run_ended_and_nothing_else_does() {
        let took = Duration::from_micros(5123);
        for (error, text) in [
            (None, "ADD 0 5123"),
            (Some(Error::io("x")), "ADD 5 5123"),
            (Some(errors::suspect(1).with_notes(&["a note".to_owned()])), "ADD 102 5123 suspect"),
            (Some(errors::other_store_used("x")), "ADD 102 5123"),
        ] {
            let line = RunLine::of(Verb::Add, error.as_ref(), took);
            assert_eq!((line.to_string().as_str(), RunLine::parse(text)), (text, Some(line)));
        }
        for damaged in [
            "",
            "ADD",
            "ADD 0",
            "ADD 0 ",
            "ADD 0 x",
            "ADD 65536 1",
            "add 0 1",
            "ADD 0 1 2",
            "ADD 0 1 suspect ",
        ] {
            assert_eq!(RunLine::parse(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_full_file_takes_no_more_and_where_there_is_no_folder_none_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = RunLine::of(Verb::Del, None, Duration::ZERO);
        line.leave(folder.path()).expect("added");
        let full = "DEL 0 0\n".repeat(limits::RUNS_BYTES as usize / 8);
        std::fs::write(path(folder.path()), &full[8..]).expect("written");
        for _ in 0..3 {
            line.leave(folder.path()).expect("added, or not");
        }
        assert_eq!(std::fs::read_to_string(path(folder.path())).expect("readable"), full);
        let missing = folder.path().join("missing");
        line.leave(&missing).expect_err("there is no folder");
        assert!(!missing.exists());
    }

    #[test]
    fn a_file_that_is_not_the_nodes_own_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, other) = (path(folder.path()), folder.path().join("other"));
        let line = RunLine::of(Verb::Add, None, Duration::ZERO);
        std::fs::write(&other, "precious").expect("written");
        std::os::unix::fs::symlink(&other, &file).expect("a link can be made");
        line.leave(folder.path()).expect_err("it is a link");
        std::fs::remove_file(&file).expect("it is there");
        std::fs::hard_link(&other, &file).expect("a link can be made");
        line.leave(folder.path()).expect_err("it has another name");
        assert_eq!(std::fs::read(&other).expect("readable"), b"precious");
    }
}

//! Reads the lines that runs leave ([`super::runs`]), each once.
//!
//! A reader keeps the file open, and goes on where it ended. It removes a file that has become long; the next run makes
//! another one. A run that had the old one open may still add its line there: that is read at the next look, before the
//! file is let go. So nothing is lost but the line of a run that is stopped between its opening and its writing for
//! longer than from one look to the next, and lines that are added in the moments in which a reader ends and another
//! one begins. Both are figures of a graph: no address depends on them.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files;
use super::runs::{self, RunLine};
use metes_core::limits;

/// The lines that were added since the last look.
#[derive(Debug, Default)]
pub struct NewRuns {
    /// In their order.
    pub lines: Vec<RunLine>,
    /// The number of lines that do not decode.
    pub unreadable: u64,
    /// True if the file was full, so that runs may have left no line.
    pub was_full: bool,
}

/// Reads the lines in a node's folder.
#[derive(Debug)]
pub struct RunsReader {
    path: PathBuf,
    /// The file to which runs add now.
    current: Option<OpenRuns>,
    /// The file that was removed at the last look.
    removed: Option<OpenRuns>,
}

/// A file that is being read.
#[derive(Debug)]
struct OpenRuns {
    file: File,
    number: (u64, u64),
    /// The bytes of it that were read.
    read: u64,
}

impl RunsReader {
    /// Begins behind the lines that are there, and returns them: another reader may have counted them. It makes the
    /// folder, so that also a node whose first runs fail has lines of them.
    ///
    /// # Errors
    /// [`io::Error`] if somebody else could have written the lines.
    pub fn begin(folder: &Path) -> io::Result<(Self, NewRuns)> {
        files::make_folder(folder)?;
        let mut reader = Self { path: runs::path(folder), current: None, removed: None };
        let before = reader.look()?;
        Ok((reader, before))
    }

    /// The lines that were added since the last look.
    ///
    /// # Errors
    /// [`io::Error`] if they cannot be read, or if somebody else could have written them.
    pub fn look(&mut self) -> io::Result<NewRuns> {
        let mut new = NewRuns::default();
        if let Some(mut removed) = self.removed.take() {
            removed.read_on(&mut new)?;
        }
        let there = OpenRuns::open(&self.path)?;
        let is_current =
            |there: &OpenRuns| self.current.as_ref().is_some_and(|own| own.number == there.number);
        if !there.as_ref().is_some_and(is_current) {
            // Somebody has removed the file.
            if let Some(mut gone) = self.current.take() {
                gone.read_on(&mut new)?;
            }
            self.current = there;
        }
        if let Some(current) = &mut self.current {
            current.read_on(&mut new)?;
            if current.read >= limits::RUNS_KEPT {
                fs::remove_file(&self.path)?;
                self.removed = self.current.take();
            }
        }
        Ok(new)
    }
}

impl OpenRuns {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        match files::open_own_to_read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
            Ok((file, meta)) => Ok(Some(Self { file, number: (meta.dev(), meta.ino()), read: 0 })),
        }
    }

    /// Reads the whole lines that were added. One that is being written is left for the next time.
    fn read_on(&mut self, new: &mut NewRuns) -> io::Result<()> {
        let added = self.added()?;
        let end = added.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += end as u64;
        new.was_full |= self.read >= limits::RUNS_BYTES;
        for line in added[..end].split_inclusive(|byte| *byte == b'\n') {
            let text = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
            match text.and_then(RunLine::parse) {
                Some(line) => new.lines.push(line),
                None => new.unreadable += 1,
            }
        }
        Ok(())
    }

    fn added(&mut self) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut added = Vec::new();
        // A run that found room may add one line more, and no run does after that.
        (&self.file).take(2 * limits::RUNS_BYTES).read_to_end(&mut added)?;
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use metes_config::cni::Verb;

    fn leave(folder: &Path, micros: u64) {
        let line = RunLine::of(Verb::Add, None, Duration::from_micros(micros));
        line.leave(folder).expect("added");
    }

    fn look(reader: &mut RunsReader) -> Vec<u64> {
        let new = reader.look().expect("readable");
        assert_eq!(new.unreadable, 0);
        new.lines.iter().map(|line| line.micros).collect()
    }

    fn appending(folder: &Path) -> File {
        OpenOptions::new().append(true).create(true).open(runs::path(folder)).expect("it opens")
    }

    #[test]
    fn each_line_is_read_once_also_across_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("made");
        let (mut reader, before) = RunsReader::begin(&folder).expect("a folder can be made");
        assert!(before.lines.is_empty() && look(&mut reader).is_empty());
        leave(&folder, 1);
        leave(&folder, 2);
        assert_eq!((look(&mut reader), look(&mut reader)), (vec![1, 2], vec![]));
        let (mut second, before) = RunsReader::begin(&folder).expect("readable");
        assert_eq!(before.lines.len(), 2);
        leave(&folder, 3);
        assert_eq!((look(&mut reader), look(&mut second)), (vec![3], vec![3]));
        // Somebody removes the file, and a run that has it open comes too late.
        let mut late = appending(&folder);
        fs::remove_file(runs::path(&folder)).expect("it is there");
        leave(&folder, 5);
        late.write_all(b"ADD 0 4\n").expect("written");
        assert_eq!((look(&mut reader), look(&mut reader)), (vec![4, 5], vec![]));
    }

    #[test]
    fn a_long_file_is_removed_and_a_late_line_in_it_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, file) = (folder.path(), runs::path(folder.path()));
        let (mut reader, _) = RunsReader::begin(folder).expect("readable");
        let many = limits::RUNS_KEPT / 8;
        appending(folder).write_all("ADD 0 7\n".repeat(many as usize).as_bytes()).expect("written");
        let mut late = appending(folder);
        assert_eq!(look(&mut reader).len() as u64, many);
        assert!(!file.exists(), "it is removed");
        leave(folder, 9);
        late.write_all(b"ADD 0 8\n").expect("written");
        assert_eq!((look(&mut reader), look(&mut reader)), (vec![8, 9], vec![]));
        assert!(file.exists(), "the new one stays");
    }

    #[test]
    fn half_a_line_waits_for_its_end_and_damage_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut reader, _) = RunsReader::begin(folder.path()).expect("readable");
        leave(folder.path(), 1);
        let mut file = appending(folder.path());
        file.write_all(b"ADD 0").expect("written");
        assert_eq!(look(&mut reader), [1]);
        file.write_all(b" 2\n\xff\n\nADD 0 3\n").expect("written");
        let new = reader.look().expect("readable");
        assert_eq!((new.lines.len(), new.unreadable, new.was_full), (2, 2, false));
        let fill = "ADD 0 4\n".repeat(limits::RUNS_BYTES as usize / 8);
        file.write_all(fill.as_bytes()).expect("written");
        assert!(reader.look().expect("readable").was_full);
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut reader, _) = RunsReader::begin(folder.path()).expect("readable");
        let (file, other) = (runs::path(folder.path()), folder.path().join("other"));
        fs::write(&other, "ADD 0 1\n").expect("written");
        std::os::unix::fs::symlink(&other, &file).expect("a link can be made");
        reader.look().expect_err("it is a link");
        fs::remove_file(&file).expect("it is there");
        fs::write(&file, "ADD 0 1\n").expect("written");
        std::os::unix::fs::chown(&file, Some(12345), None).expect("root gives it away");
        reader.look().expect_err("it is another user's");
    }
}

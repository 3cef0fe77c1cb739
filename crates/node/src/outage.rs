//! Since when etcd has given no STATUS of this node an answer, or that its last answer was a verdict.
//!
//! STATUS alone writes, reads and removes this record. It counts by the boot-time clock, so only a record of this
//! machine, cluster and boot says for how long. Any other one, a damaged one, or that of a verdict gives STATUS no
//! time, and stays until etcd answers well: so a copied disk makes no grace longer. After a reboot nothing says that
//! the time is not over already, and no pod runs that the grace would keep. What a run leaves that dies before it
//! writes is an empty file, which counts as none. Nothing is forced to disk: only the boot that wrote a record believes
//! it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use super::own_file::{self, OWN_FILE_BYTES, OwnFile, Reader, Whose};
use metes_core::limits;
use metes_core::pool::RunStart;

/// The record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outage {
    /// etcd does not answer: when the first STATUS noted it.
    Since(RunStart),
    /// etcd has answered that no ADD can be served. That may still be so while it does not answer.
    Verdict,
}

/// The file that keeps the record.
#[derive(Debug, Clone)]
pub struct OutageFile {
    path: PathBuf,
    reader: Reader<Outage>,
}

impl OutageFile {
    /// The record in a node's folder.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity) -> Self {
        Self { path: folder.join("outage"), reader: Reader::new(Whose::new(identity)) }
    }

    /// Notes that etcd did not answer, and returns for how long it has not. `clock` is read while no other run writes,
    /// so no record is of a later moment.
    ///
    /// # Errors
    /// [`io::Error`]: nothing can be kept, or a record says nothing here.
    pub fn note(&self, clock: impl FnOnce() -> RunStart) -> io::Result<Duration> {
        let mut lasts = Duration::ZERO;
        files::change(&self.path, (OWN_FILE_BYTES, limits::MARK_LOCK), |before| {
            let now = clock();
            if before.is_empty() {
                return own_file::encode(&self.reader.whose, Outage::Since(now)).map(Some);
            }
            lasts = self.age(self.reader.decode(before), &now)?;
            Ok(None)
        })?;
        Ok(lasts)
    }

    /// Notes that etcd has answered that no ADD can be served.
    ///
    /// # Errors
    /// [`io::Error`]: nothing can be kept.
    pub fn note_verdict(&self) -> io::Result<()> {
        files::change(&self.path, (OWN_FILE_BYTES, limits::MARK_LOCK), |before| {
            match self.reader.decode(before) {
                OwnFile::Own(Outage::Verdict) => Ok(None),
                _ => own_file::encode(&self.reader.whose, Outage::Verdict).map(Some),
            }
        })
    }

    /// Notes that etcd has answered well.
    pub fn end(&self) {
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!("etcd answers STATUS again"),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                tracing::warn!(
                    file = %self.path.display(), error = %e, "the record of an outage of etcd cannot be removed"
                );
            }
        }
    }

    /// For how long etcd has not answered at `now`; none if nothing is noted.
    ///
    /// # Errors
    /// [`io::Error`]: the record says nothing here.
    pub fn lasts(&self, now: &RunStart) -> io::Result<Option<Duration>> {
        match self.reader.read(&self.path) {
            OwnFile::Nothing => Ok(None),
            found => self.age(found, now).map(Some),
        }
    }

    fn age(&self, found: OwnFile<Outage>, now: &RunStart) -> io::Result<Duration> {
        let age = match found {
            OwnFile::Own(Outage::Since(since)) => {
                now.since(&since).ok_or_else(|| "it is of another boot of this machine".to_owned())
            }
            OwnFile::Own(Outage::Verdict) => Err("STATUS failed for another reason before".to_owned()),
            OwnFile::Others(whose, _) => Err(format!("it is of {whose}")),
            OwnFile::Unreadable(why) => Err(why),
            OwnFile::Nothing => Ok(Duration::ZERO),
        };
        age.map_err(|why| {
            let file = self.path.display();
            io::Error::new(io::ErrorKind::InvalidData, format!("{file} does not say for how long: {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: &str, s: u64) -> RunStart {
        RunStart { boot: boot.into(), ns: s * 1_000_000_000 }
    }

    fn file(folder: &Path, machine: &str) -> OutageFile {
        let node = "n".parse().expect("a node name");
        OutageFile::new(folder, &Identity { machine: machine.into(), ..Identity::of(node) })
    }

    #[test]
    fn an_outage_lasts_from_its_first_note_to_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let outage = file(folder.path(), "m");
        let note = |s| outage.note(|| at("b", s)).expect("it is kept").as_secs();
        assert_eq!(outage.lasts(&at("b", 99)).expect("there is none"), None);
        assert_eq!([note(100), note(105), note(400), note(401)], [0, 5, 300, 301]);
        assert_eq!(outage.lasts(&at("b", 500)).expect("it counts"), Some(Duration::from_secs(400)));
        outage.end();
        outage.end();
        assert_eq!([note(600), note(605)], [0, 5]);
    }

    #[test]
    fn a_record_that_says_nothing_gives_no_time_and_stays_until_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let outage = file(folder.path(), "m");
        let path = folder.path().join("outage");
        // Its run died before it wrote.
        fs::write(&path, "").expect("written");
        outage.note(|| at("b", 100)).expect("an empty one counts as none");
        let whole = fs::read(&path).expect("it was written");
        for later in [at("another boot", 101), at("b", 99)] {
            outage.note(|| later).expect_err("it is not of the past of this boot");
        }
        file(folder.path(), "other").note(|| at("b", 101)).expect_err("it is of another machine");
        assert_eq!(fs::read(&path).expect("it stays"), whole);
        for damaged in [&whole[..80], b"{}", &[b' '; 64]] {
            fs::write(&path, damaged).expect("written");
            outage.note(|| at("b", 101)).expect_err("it is damaged");
            outage.lasts(&at("b", 101)).expect_err("it is damaged");
            assert_eq!(fs::read(&path).expect("it stays"), damaged);
        }
        outage.end();
        assert_eq!(outage.note(|| at("b", 102)).expect("a new one"), Duration::ZERO);
    }

    #[test]
    fn after_a_verdict_no_time_is_given_until_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let outage = file(folder.path(), "m");
        let note = |s| outage.note(|| at("b", s));
        // During an outage, once more, over damage, and where there is no record.
        note(100).expect("it is kept");
        for before in [None, None, Some("garbage"), Some("")] {
            if let Some(before) = before {
                fs::write(folder.path().join("outage"), before).expect("written");
            }
            outage.note_verdict().expect("it is kept");
            note(101).expect_err("the last answer was a verdict");
            let why = outage.lasts(&at("b", 101)).expect_err("the last answer was a verdict");
            assert!(why.to_string().contains("for another reason"), "{why}");
        }
        outage.end();
        assert_eq!(note(102).expect("a new one"), Duration::ZERO);
    }

    #[test]
    fn runs_that_note_one_outage_at_the_same_time_agree_on_its_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = std::sync::atomic::AtomicU64::new(100);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let now = || at("b", clock.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
                    file(folder.path(), "m").note(now).expect("no record is of a later moment");
                });
            }
        });
        assert_eq!(file(folder.path(), "m").note(|| at("b", 400)).expect("it counts").as_secs(), 300);
    }

    #[test]
    fn where_nothing_can_be_kept_it_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("outage")).expect("a folder can be made");
        file(folder.path(), "m").note(|| at("b", 1)).expect_err("it is a folder");
        file(&folder.path().join("missing"), "m").note(|| at("b", 1)).expect_err("there is no folder");
    }
}

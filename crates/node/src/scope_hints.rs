//! The keys that the last ADD of a node in a scope has left behind, as they were after its commit. The next ADD may
//! plan on them without a look ([`metes_core::plan::first`]). They are hints: nothing relies on them.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::node::Identity;
use super::own_file::{self, OwnFile, Reader, Whose};
use metes_core::keys::{HintClass, HintName, NetworkAddress};
use metes_core::limits;
use metes_core::plan::first::FirstRequest;
use metes_core::pool::{NetworkName, RunStart};
use metes_core::snapshot::Snapshot;
use metes_core::txn::Entry;

/// The hints of one scope.
#[derive(Debug, Clone, Default)]
pub struct ScopeHints {
    /// The keys, as they were after the last commit.
    pub keys: Snapshot,
    /// The last first commit that was refused; none if one was applied since.
    pub(crate) missed: Option<Miss>,
    /// Addresses that DELs of this node have freed without clearing their bits, the latest at the end.
    pub(crate) stray: Vec<NetworkAddress>,
}

/// A commit that was sent first and refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Miss {
    /// When.
    pub(crate) at: RunStart,
    /// The time during which the node's runs look first from then on, in milliseconds.
    pub(crate) pause_ms: u64,
}

impl ScopeHints {
    /// True if a run that begins at `start` sends its commit first.
    pub(crate) fn serves(&self, start: &RunStart) -> bool {
        let is_over = |miss: &Miss| {
            // Another run may have missed since this one began.
            let is_later = miss.at.boot == start.boot && miss.at.ns > start.ns;
            !is_later && start.since(&miss.at).is_none_or(|gap| gap >= Duration::from_millis(miss.pause_ms))
        };
        self.missed.as_ref().is_none_or(is_over)
    }

    /// Adds the keys of a run to those that are kept already: runs of other ranges in the same page have left cursors
    /// and further pages. If all together are too large, only the run's own keys are kept. Where other nodes change the
    /// same pages all the time, this node tries a first commit less and less often.
    pub(crate) fn left(mut self, keys: Snapshot, first: FirstRequest, now: RunStart) -> Self {
        lay_over(&mut self.keys, &keys, |_| true);
        let keys = if kept_bytes(&self.keys) <= limits::SCOPE_HINTS_BYTES { self.keys } else { keys };
        let missed = match first {
            FirstRequest::Look => self.missed,
            FirstRequest::Applied => None,
            FirstRequest::Missed => {
                let pause_ms = self.missed.map_or(0, |miss| miss.pause_ms).saturating_mul(2);
                let (least, most) = (limits::MISS_PAUSE, limits::MISS_PAUSE_MAX);
                let pause_ms = pause_ms.clamp(least.as_millis() as u64, most.as_millis() as u64);
                Some(Miss { at: now, pause_ms })
            }
        };
        Self { keys, missed, stray: self.stray }
    }

    /// The bits that one ADD clears besides its own work.
    #[must_use]
    pub fn some_stray(&self) -> &[NetworkAddress] {
        &self.stray[..self.stray.len().min(limits::STRAY_CLEARED)]
    }
}

/// Lays the keys that a run knows over the kept ones: those that are kept already, and those that are `wanted` besides.
/// A kept key stays if another run of the node has kept a newer state of it than this run has read.
fn lay_over(kept: &mut Snapshot, newer: &Snapshot, wanted: impl Fn(&[u8]) -> bool) {
    for (key, entry) in newer.iter() {
        let is_newer = kept.mod_revision(key) <= newer.read_at(key);
        if is_newer && (kept.knows(key) || wanted(key)) {
            kept.set(key, entry.cloned());
        }
    }
}

/// The size of these keys in bytes as they are kept, with their values in base64.
fn kept_bytes(keys: &Snapshot) -> usize {
    let value = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.value.len().div_ceil(3) * 4);
    keys.iter().map(|(key, entry)| key.len() + value(entry)).sum()
}

/// The hints as they are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptHints {
    keys: Vec<KeptKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missed: Option<Miss>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stray: Vec<(NetworkName, IpAddr)>,
}

/// A key as it is kept; without a value if it did not exist.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptKey {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    found: Option<KeptValue>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptValue {
    /// In base64.
    value: String,
    created: i64,
    modified: i64,
}

impl KeptHints {
    /// None if it is too large to be kept.
    fn of(hints: &ScopeHints) -> Option<Self> {
        let key = |(key, entry): (&Vec<u8>, Option<&Entry>)| {
            let found = entry.map(|entry| KeptValue {
                value: BASE64.encode(&entry.value),
                created: entry.create_revision,
                modified: entry.mod_revision,
            });
            Some(KeptKey { key: String::from_utf8(key.clone()).ok()?, found })
        };
        let keys: Vec<KeptKey> = hints.keys.iter().map(key).collect::<Option<_>>()?;
        let fits = kept_bytes(&hints.keys) <= limits::SCOPE_HINTS_BYTES;
        let stray = hints.stray.iter().map(|(network, address)| (network.clone(), address.ip())).collect();
        fits.then(|| Self { keys, missed: hints.missed.clone(), stray })
    }

    /// None if a value is no base64.
    fn hints(self) -> Option<ScopeHints> {
        let mut keys = Snapshot::default();
        for KeptKey { key, found } in self.keys {
            let key = key.into_bytes();
            let entry = match found {
                None => None,
                Some(KeptValue { value, created, modified }) => Some(Entry {
                    key: key.clone(),
                    value: BASE64.decode(value).ok()?,
                    create_revision: created,
                    mod_revision: modified,
                    lease: 0,
                }),
            };
            keys.set(&key, entry);
        }
        let stray = self.stray.into_iter().map(|(network, ip)| (network, ip.into())).collect();
        Some(ScopeHints { keys, missed: self.missed, stray })
    }
}

/// The files with the hints of a node, one for each name. Each may be missing at any time.
#[derive(Debug, Clone)]
pub struct ScopeHintFiles {
    folder: PathBuf,
    reader: Reader<KeptHints>,
}

impl ScopeHintFiles {
    /// The files in a node's folder.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity) -> Self {
        Self { folder: folder.join("scopes"), reader: Reader::new(Whose::new(identity)) }
    }

    /// The hints of this name, if there are some of this machine and cluster that can be read.
    #[must_use]
    pub fn read(&self, name: &HintName) -> Option<ScopeHints> {
        match self.reader.read(&self.path(name)) {
            OwnFile::Own(kept) => kept.hints(),
            OwnFile::Nothing | OwnFile::Others(..) | OwnFile::Unreadable(_) => None,
        }
    }

    /// Keeps hints for the next run. If they cannot be kept, the next run looks first.
    pub fn keep(&self, name: &HintName, hints: &ScopeHints) {
        let path = self.path(name);
        let Some(kept) = KeptHints::of(hints) else {
            // What was kept before is wrong now.
            return self.forget(name);
        };
        if !path.exists() {
            self.make_room(name.class());
        }
        if let Err(e) = own_file::overwrite(&path, &self.reader.whose, kept) {
            tracing::debug!(file = %path.display(), error = %e, "hints for the next run cannot be kept");
        }
    }

    /// Corrects hints that were kept before, by keys that have been read or written since. Those that are `wanted` are
    /// added, and so are addresses that were freed without clearing their bits, the latest ones.
    pub fn correct(
        &self,
        name: &HintName,
        newer: &Snapshot,
        wanted: impl Fn(&[u8]) -> bool,
        stray: &[NetworkAddress],
    ) {
        let Some(mut hints) = self.read(name) else { return };
        lay_over(&mut hints.keys, newer, wanted);
        hints.stray.extend_from_slice(stray);
        let too_many = hints.stray.len().saturating_sub(limits::STRAY_HINTS);
        hints.stray.drain(..too_many);
        self.keep(name, &hints);
    }

    /// Forgets hints that were wrong.
    pub fn forget(&self, name: &HintName) {
        // Another run may have removed the file.
        let _ = fs::remove_file(self.path(name));
    }

    fn path(&self, name: &HintName) -> PathBuf {
        self.folder.join(name.file())
    }

    /// Removes the file of a class that was written longest ago if there are as many as there may be.
    fn make_room(&self, class: HintClass) {
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        let begins = format!("{class}-");
        let is_of_class = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&begins);
        let file = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
        let files: Vec<_> = files.flatten().filter(is_of_class).filter_map(file).collect();
        let most = match class {
            HintClass::Scope => limits::SCOPE_HINTS,
            HintClass::Hold => limits::HOLD_HINTS,
        };
        if files.len() >= most
            && let Some((_, oldest)) = files.into_iter().min()
        {
            // Another run may have removed it.
            let _ = fs::remove_file(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use metes_core::keys::Scope;

    use super::*;

    fn identity(machine: &str, cluster: &str) -> Identity {
        let node = "n".parse().expect("a node name");
        Identity { node, cluster: cluster.parse().ok(), machine: machine.into() }
    }

    fn scope(name: &str) -> HintName {
        (&Scope::stored(name).expect("a scope")).into()
    }

    fn hints(pages: usize) -> ScopeHints {
        let mut keys = Snapshot::default();
        let mut put = |key: String, value: Vec<u8>| {
            let key = key.into_bytes();
            let entry = Entry { key: key.clone(), value, create_revision: 7, mod_revision: 8, lease: 0 };
            keys.set(&key, Some(entry));
        };
        (0..pages).for_each(|i| put(format!("/m/{i}"), vec![i as u8; 512]));
        put("/m/bytes".to_owned(), vec![0xfe, 0, 9]);
        keys.set(b"/m/none", None);
        ScopeHints { keys, missed: None, stray: Vec::new() }
    }

    /// The same keys as they are read at a revision.
    fn at(keys: Snapshot, revision: i64) -> Snapshot {
        let mut read = Snapshot::default();
        read.revision = revision;
        keys.iter().for_each(|(key, entry)| read.set(key, entry.cloned()));
        read
    }

    fn shown(hints: Option<ScopeHints>) -> Option<String> {
        let keys = |hints: ScopeHints| hints.keys.iter().map(|found| format!("{found:?}\n")).collect();
        hints.map(keys)
    }

    #[test]
    fn hints_come_back_as_they_were_and_only_where_they_belong() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = |machine, cluster| ScopeHintFiles::new(folder.path(), &identity(machine, cluster));
        let own = files("m", "east");
        own.keep(&scope("one"), &hints(3));
        own.keep(&scope("two"), &hints(1));
        assert_eq!(shown(own.read(&scope("one"))), shown(Some(hints(3))));
        assert_eq!(shown(own.read(&scope("two"))), shown(Some(hints(1))));
        for other in [files("other", "east"), files("m", "west")] {
            assert!(other.read(&scope("one")).is_none(), "{other:?}");
        }
        let newer = at(hints(3).keys, 8);
        own.correct(&scope("two"), &newer, |_| false, &[]);
        assert_eq!(shown(own.read(&scope("two"))), shown(Some(hints(1))));
        own.correct(&scope("two"), &newer, |_| true, &[]);
        assert_eq!(shown(own.read(&scope("two"))), shown(Some(hints(3))));
        own.correct(&scope("three"), &newer, |_| true, &[]);
        assert!(own.read(&scope("three")).is_none(), "pages alone are no use");
    }

    #[test]
    fn runs_of_two_ranges_of_a_page_leave_each_other_what_they_know() {
        let key = |name: &str, value: u8, modified| Entry {
            key: name.into(),
            value: vec![value],
            create_revision: 1,
            mod_revision: modified,
            lease: 0,
        };
        let known = |entries: &[Entry], read_at| {
            let mut keys = Snapshot::default();
            entries.iter().for_each(|entry| keys.set(&entry.key, Some(entry.clone())));
            at(keys, read_at)
        };
        let (page, newer_page) = (key("page", 1, 5), key("page", 2, 9));
        let (one, other) = (key("cursor-one", 1, 5), key("cursor-other", 2, 9));
        let now = || RunStart { boot: "b".into(), ns: 5 };
        let left = |first: Snapshot, second: Snapshot| {
            let kept = ScopeHints::default().left(first, FirstRequest::Look, now());
            let left = kept.left(second, FirstRequest::Look, now()).keys;
            left.iter().filter_map(|(_, entry)| entry.cloned()).collect::<Vec<_>>()
        };
        let both = [one.clone(), other.clone(), newer_page.clone()];
        let earlier = || known(&[one.clone(), page.clone()], 5);
        let later = || known(&[other.clone(), newer_page.clone()], 9);
        assert_eq!(left(earlier(), later()), both);
        // A run that has read it before another one has written it changes nothing of that.
        assert_eq!(left(later(), earlier()), both);
        let many: Vec<Entry> = (0..4000).map(|i| key(&format!("a-key-of-some-bytes-{i:09}"), 0, 5)).collect();
        assert_eq!(left(known(&many, 5), later()), [other, newer_page], "its own alone, if all is too much");
    }

    #[test]
    fn a_torn_file_and_one_that_holds_garbage_are_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = ScopeHintFiles::new(folder.path(), &identity("m", "east"));
        let path = files.path(&scope("s"));
        let [old, new] = [1, 2].map(|pages| {
            files.keep(&scope("s"), &hints(pages));
            fs::read(&path).expect("it was written")
        });
        let known = [shown(Some(hints(1))), shown(Some(hints(2)))];
        for cut in (0..old.len()).step_by(7) {
            fs::write(&path, [&new[..cut], &old[cut..]].concat()).expect("written");
            let read = files.read(&scope("s"));
            assert!(read.is_none() || known.contains(&shown(read)), "cut at {cut}");
        }
        for garbage in ["", "{}", "      "] {
            fs::write(&path, garbage).expect("written");
            assert!(files.read(&scope("s")).is_none(), "{garbage:?}");
        }
    }

    #[test]
    fn the_oldest_of_too_many_files_goes_and_what_is_too_large_is_not_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = ScopeHintFiles::new(folder.path(), &identity("m", "east"));
        for i in 0..limits::SCOPE_HINTS + 3 {
            files.keep(&scope(&format!("s{i}")), &hints(1));
            let written = fs::File::options().write(true).open(files.path(&scope(&format!("s{i}"))));
            let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(i as u64);
            written.and_then(|file| file.set_modified(at)).expect("its time can be set");
        }
        assert_eq!(fs::read_dir(&files.folder).expect("a folder").count(), limits::SCOPE_HINTS);
        assert!(files.read(&scope("s2")).is_none());
        assert!(files.read(&scope("s3")).is_some());
        files.keep(&scope("s3"), &hints(1000));
        assert!(files.read(&scope("s3")).is_none(), "what was there is wrong");
    }

    #[test]
    fn after_a_miss_a_node_looks_first_for_a_while_and_for_longer_each_time() {
        let at = |ms: u64| RunStart { boot: "b".into(), ns: ms * 1_000_000 };
        let mut known = ScopeHints::default();
        assert!(known.serves(&at(0)));
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(|s: u64| s * 1000) {
            known = known.left(Snapshot::default(), FirstRequest::Missed, at(now));
            let served = [0, pause - 1, pause].map(|after| known.serves(&at(now + after)));
            assert_eq!(served, [false, false, true], "{pause}");
            assert!(now == 0 || !known.serves(&at(now - 1)), "a run that began before the miss");
            assert!(known.serves(&RunStart { boot: "another".into(), ..at(now) }));
            known = known.left(Snapshot::default(), FirstRequest::Look, at(now + 1));
            now += pause;
        }
        known = known.left(Snapshot::default(), FirstRequest::Applied, at(now));
        assert!(known.serves(&at(now)));
    }
}

//! The node's mark: what its runs leave to later ones. These are what they have seen of the store ([`HighWater`]),
//! leases that they share, and whether they met others.
//!
//! The mark belongs to a machine and a cluster, whatever the endpoints are: a store that was restored on other hosts is
//! still held against it. Only the leases are those of the etcd at these endpoints.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use super::own_file::{self, OWN_FILE_BYTES, OwnFile, Reader, Whose};
use metes_core::cooling::CoolingLeases;
use metes_core::keys::LeaseId;
use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::pool::RunStart;

/// The hints that a node's runs leave to the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The newest state of the store that was seen.
    pub seen: HighWater,
    /// Never trusted.
    pub hints: Hints,
}

/// A mark as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptMark {
    seen: HighWater,
    /// Where that was seen; sorted.
    seen_at: Vec<String>,
    /// Of the etcd to which the hints belong; sorted.
    endpoints: Vec<String>,
    hints: Hints,
}

/// Values that save a later run a request. If a hint is wrong, an answer of etcd shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// A lease for the commits of ADDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<NodeLease>,
    /// A lease for tickets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tickets: Option<NodeLease>,
    /// A lease for tombstones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tombstones: Option<NodeLease>,
    /// Leases for what cools, by the cooldown in seconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) cooling: BTreeMap<u32, NodeLease>,
    /// When a run last met others in a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded: Option<RunStart>,
    /// The last ADD or DEL that etcd did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
}

/// An ADD or a DEL that has given up because etcd did not answer it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// The digest of a DEL's owner's key; none for an ADD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it gave up.
    pub at: RunStart,
}

impl Hints {
    /// The lease for an ADD that begins at `start`. What is left of it is longer than any run may last.
    pub(crate) fn lease_for(&self, start: &RunStart) -> Option<NodeLease> {
        self.lease.clone().filter(|lease| lease.serves(start, limits::FENCE_SHARED))
    }

    /// The lease for the ticket of a run that begins at `start`. What is left of it is longer than any run may last.
    #[must_use]
    pub fn tickets_for(&self, start: &RunStart) -> Option<NodeLease> {
        self.tickets.clone().filter(|lease| lease.serves(start, limits::LEASE_SHARED))
    }

    /// The lease for the tombstone of a DEL that begins at `start`. The DEL asks etcd how long it will live.
    #[must_use]
    pub fn tombstones_for(&self, start: &RunStart) -> Option<NodeLease> {
        self.tombstones.clone().filter(|lease| lease.serves(start, limits::TOMBSTONE_SHARED))
    }

    /// The leases for what a free that begins at `start` lets cool.
    #[must_use]
    pub fn cooling_for(&self, start: &RunStart) -> CoolingLeases {
        let (mut leases, now) = (CoolingLeases::default(), tokio::time::Instant::now().into_std());
        for (cooldown_s, lease) in &self.cooling {
            if let (true, Some(age)) =
                (lease.serves(start, limits::COOLING_USED_WITHIN), start.since(&lease.since))
            {
                leases.left_behind(*cooldown_s, LeaseId(lease.id), age, now);
            }
        }
        leases
    }

    /// Notes the leases that a free of the run which began at `start` was granted. Those that are too old go.
    pub fn keep_cooling(&mut self, leases: &CoolingLeases, start: &RunStart) {
        self.cooling.retain(|_, lease| lease.serves(start, limits::COOLING_USED_WITHIN));
        let new = leases
            .new_ones()
            .map(|(cooldown_s, LeaseId(id))| (cooldown_s, NodeLease { id, since: start.clone() }));
        self.cooling.extend(new.take(COOLING_HINTS));
    }

    /// True if a run that begins at `start` must expect others in its queue.
    #[must_use]
    pub fn is_crowded(&self, start: &RunStart) -> bool {
        is_recent(self.crowded.as_ref(), start, limits::CROWD_MEMORY)
    }

    /// The run that etcd did not answer a moment before `start`: it will not answer a DEL either.
    #[must_use]
    pub fn unanswered_before(&self, start: &RunStart) -> Option<&Unanswered> {
        let is_recent = |run: &&Unanswered| is_recent(Some(&run.at), start, limits::UNANSWERED_MEMORY);
        self.unanswered.as_ref().filter(is_recent)
    }
}

/// A run leaves leases for so many cooldowns.
const COOLING_HINTS: usize = 8;

/// True if `at` is less than `most` before a run that begins at `start`, or since it has begun.
fn is_recent(at: Option<&RunStart>, start: &RunStart, most: Duration) -> bool {
    at.is_some_and(|at| is_within(at, start, most) || is_within(start, at, limits::ADD_DEADLINE))
}

/// True if `now` is after `then`, by less than `most`.
fn is_within(then: &RunStart, now: &RunStart, most: Duration) -> bool {
    now.since(then).is_some_and(|gap| gap < most)
}

/// A lease that one run was granted and others use as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLease {
    /// The lease's id.
    pub id: i64,
    /// The start of the run that asked for it: it was granted later.
    pub since: RunStart,
}

impl NodeLease {
    /// True if a run that begins at `start` may use it, if it may be shared for `most`. No id is below 1: etcd takes 0
    /// for no lease at all, and then a commit would have no fence.
    fn serves(&self, start: &RunStart, most: Duration) -> bool {
        self.id > 0 && is_within(&self.since, start, most)
    }
}

/// The state of every prefix that a machine uses.
#[derive(Debug, Clone)]
pub struct AllState {
    /// The folder with a folder for each prefix.
    pub(super) folder: PathBuf,
    /// The prefix of this node.
    pub(super) prefix: String,
    /// The folders of the other prefixes that are meant.
    pub(super) meant: Vec<PathBuf>,
}

/// Another store that this machine has used, in words: of another prefix that is not meant, by the folders in `all`, or
/// of another cluster, by the mark in its own `folder`.
pub(super) fn of_other_store(all: &AllState, folder: &Path, identity: &Identity) -> Option<String> {
    let own = Whose::new(identity);
    let folders = fs::read_dir(&all.folder).ok()?.flatten().map(|entry| entry.path());
    let folders = folders.filter(|at| !all.meant.contains(at));
    let marks = folders.filter_map(|at| Some((own_file::whose(&at.join(MARK))?, at)));
    let mut others =
        marks.filter(|(whose, at)| whose.is_same_machine(&own) && (at != folder || *whose != own));
    let (whose, at) = others.next()?;
    Some(format!("the store of {} ({})", at.display(), whose.cluster_words()))
}

/// The folder of another prefix that this machine has used and that is not meant, with the own key that it has left
/// there; none if the machine has used the prefix of `own`, in whatever cluster.
pub(super) fn of_other_prefix(
    all: &AllState,
    own: &Path,
    identity: &Identity,
) -> Option<(PathBuf, Option<String>)> {
    let seen = |folder: &Path| MarkFile::new(folder, identity, &[]).seen_by_machine();
    if seen(own).is_some() {
        return None;
    }
    let folders = fs::read_dir(&all.folder).ok()?.flatten().map(|entry| entry.path());
    let mut others = folders.filter(|at| at != own && !all.meant.contains(at));
    others.find_map(|at| Some((seen(&at)?.key.map(|key| key.name), at))).map(|(key, at)| (at, key))
}

/// The machine whose mark is in this folder; none if there is no whole mark.
pub(super) fn machine_of(folder: &Path) -> Option<String> {
    own_file::whose(&folder.join(MARK)).map(|whose| whose.machine().to_owned())
}

/// The name of the file.
const MARK: &str = "mark";

/// The file that keeps the mark.
#[derive(Debug, Clone)]
pub struct MarkFile {
    path: PathBuf,
    reader: Reader<KeptMark>,
    /// Sorted.
    endpoints: Vec<String>,
}

impl MarkFile {
    /// The mark in a node's folder. The hints in it are for the etcd at these endpoints.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity, endpoints: &[String]) -> Self {
        let mut endpoints = endpoints.to_vec();
        endpoints.sort();
        Self { path: folder.join(MARK), reader: Reader::new(Whose::new(identity)), endpoints }
    }

    /// The mark, if there is one of this machine and cluster. One that does not decode is read again for some
    /// milliseconds, because another run may be overwriting it.
    #[must_use]
    pub fn read(&self) -> Option<Mark> {
        let until = Instant::now() + limits::MARK_READ;
        loop {
            match self.reader.read(&self.path) {
                OwnFile::Unreadable(_) if Instant::now() < until => thread::sleep(limits::LOCK_PAUSE),
                found => return self.mark(found),
            }
        }
    }

    /// The store as this machine has seen it last, in whatever cluster.
    #[must_use]
    pub fn seen_by_machine(&self) -> Option<HighWater> {
        match self.reader.read(&self.path) {
            OwnFile::Own(kept) => Some(kept.seen),
            OwnFile::Others(whose, kept) if whose.is_same_machine(&self.reader.whose) => Some(kept.seen),
            OwnFile::Nothing | OwnFile::Others(..) | OwnFile::Unreadable(_) => None,
        }
    }

    /// The other cluster, in words, as part of which this machine has used this store last; none if it has not.
    #[must_use]
    pub fn other_cluster(&self) -> Option<String> {
        match self.reader.read(&self.path) {
            OwnFile::Others(whose, _) if whose.is_same_machine(&self.reader.whose) => {
                Some(whose.cluster_words())
            }
            _ => None,
        }
    }

    /// Makes the mark of a node that has none which it can use. Only whoever has asked all endpoints which store they
    /// are may do so (`metes_engine::endpoints`): the store of the first mark is the one that this node trusts.
    /// Returns whether there was still none: another run of the node may have made it meanwhile.
    pub fn make(&self, seen: HighWater) -> bool {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if !folder.exists()
            && let Err(e) = files::make_folder(folder)
        {
            self.not_kept(&e);
            return false;
        }
        let mut is_first = false;
        self.change(|mark| match mark {
            Some(Mark { seen: before, hints }) => Some(Mark { seen: before.merged(seen), hints }),
            None => {
                is_first = true;
                Some(Mark { seen, hints: Hints::default() })
            }
        });
        is_first
    }

    /// Raises the mark to what was seen, and changes the hints as they are then. It is merged with what other runs have
    /// written meanwhile. Without a mark nothing is written: an answer of whatever store makes none.
    pub fn raise(&self, seen: HighWater, leave: impl FnOnce(&mut Hints)) {
        self.change_existing(|mark| {
            let Mark { seen: before, mut hints } = mark;
            leave(&mut hints);
            Mark { seen: before.merged(seen), hints }
        });
    }

    /// Changes the hints alone: no answer has shown anything of the store.
    pub fn leave(&self, leave: impl FnOnce(&mut Hints)) {
        self.change_existing(|Mark { seen, mut hints }| {
            leave(&mut hints);
            Mark { seen, hints }
        });
    }

    fn change_existing(&self, to: impl FnOnce(Mark) -> Mark) {
        if self.path.exists() {
            self.change(|mark| mark.map(to));
        }
    }

    /// Replaces the mark, if `to` has something to write. A mark that cannot be written is no reason to fail.
    fn change(&self, to: impl FnOnce(Option<Mark>) -> Option<Mark>) {
        #[cfg(feature = "failpoints")]
        metes_engine::failpoints::pass("mark.before");
        let change = |before: &[u8]| {
            let before = match before {
                [] => OwnFile::Nothing,
                before => self.reader.decode(before),
            };
            let seen_before_at = match &before {
                OwnFile::Own(KeptMark { seen_at, .. }) => seen_at.clone(),
                _ => Vec::new(),
            };
            let Some(Mark { seen, hints }) = to(self.mark(before)) else { return Ok(None) };
            let endpoints = self.endpoints.clone();
            let seen_at = if seen.elsewhere { seen_before_at } else { endpoints.clone() };
            let kept = KeptMark { seen, seen_at, endpoints, hints };
            own_file::encode(&self.reader.whose, kept).map(Some)
        };
        let limits = (OWN_FILE_BYTES, limits::MARK_LOCK);
        if let Err(e) = files::change(&self.path, limits, change) {
            self.not_kept(&e);
        }
    }

    fn not_kept(&self, e: &io::Error) {
        tracing::warn!(file = %self.path.display(), error = %e, "what was seen of the store cannot be kept");
    }

    /// The mark in a file that was found. If it is not this node's, the reason goes to the log.
    fn mark(&self, found: OwnFile<KeptMark>) -> Option<Mark> {
        let file = self.path.display();
        match found {
            OwnFile::Nothing => None,
            OwnFile::Own(KeptMark { seen, seen_at, endpoints, hints }) => {
                let seen = HighWater { elsewhere: seen_at != self.endpoints, ..seen };
                let hints = if endpoints == self.endpoints { hints } else { Hints::default() };
                Some(Mark { seen, hints })
            }
            OwnFile::Others(whose, _) => {
                tracing::warn!(
                    %file, of = %whose, this = %self.reader.whose,
                    "the mark is of another machine or cluster: it is not used"
                );
                None
            }
            OwnFile::Unreadable(why) => {
                tracing::warn!(
                    %file, %why,
                    "the mark of what this node has seen cannot be used: the next ADD writes it anew"
                );
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revision: i64) -> HighWater {
        HighWater { store: "s".to_owned(), epoch: 1, revision, key: None, etcd: 0, elsewhere: false }
    }

    fn identity(machine: &str, cluster: &str) -> Identity {
        let node = "n".parse().expect("a node name");
        Identity { node, cluster: cluster.parse().ok(), machine: machine.into() }
    }

    fn lease(id: i64) -> Option<NodeLease> {
        Some(NodeLease { id, since: RunStart { boot: "b".into(), ns: 1 } })
    }

    #[test]
    fn a_mark_belongs_to_a_machine_and_a_cluster_and_its_hints_to_endpoints() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |machine, cluster, endpoints: &[&str]| {
            let endpoints: Vec<String> = endpoints.iter().map(|&one| one.to_owned()).collect();
            MarkFile::new(folder.path(), &identity(machine, cluster), &endpoints)
        };
        file("m", "east", &["a", "b"]).raise(seen(6), |hints| hints.lease = lease(2));
        assert_eq!(file("m", "east", &["a", "b"]).read(), None, "an answer alone makes no mark");
        file("m", "east", &["a", "b"]).make(seen(6));
        file("m", "east", &["a", "b"]).raise(seen(7), |hints| hints.lease = lease(3));
        let read = |machine, cluster, endpoints: &[&str]| {
            let mark = file(machine, cluster, endpoints).read()?;
            Some((mark.seen.revision, mark.hints.lease))
        };
        assert_eq!(read("m", "east", &["b", "a"]), Some((7, lease(3))));
        assert_eq!(read("m", "east", &["a"]), Some((7, None)), "the lease is of another etcd");
        let elsewhere = |endpoints| file("m", "east", endpoints).read().map(|mark| mark.seen.elsewhere);
        assert_eq!((elsewhere(&["b", "a"]), elsewhere(&["a"])), (Some(false), Some(true)));
        file("m", "east", &["a"]).leave(|hints| hints.lease = lease(4));
        assert_eq!(elsewhere(&["a"]), Some(true), "nothing was seen there");
        let other = HighWater { store: "other".to_owned(), ..seen(9) };
        file("m", "east", &["a"]).raise(other, |_| {});
        assert_eq!(elsewhere(&["a"]), Some(true), "what is of another store changes nothing");
        file("m", "east", &["a"]).raise(seen(8), |_| {});
        assert_eq!(elsewhere(&["a"]), Some(false), "it was seen there, too");
        file("m", "east", &["a", "b"]).raise(seen(8), |hints| hints.lease = lease(3));
        assert_eq!(read("other", "east", &["a", "b"]), None);
        assert_eq!(read("m", "west", &["a", "b"]), None);
    }

    #[test]
    fn runs_that_end_at_the_same_time_lose_nothing_of_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = MarkFile::new(folder.path(), &identity("m", "east"), &[]);
        file.make(seen(0));
        std::thread::scope(|scope| {
            for revision in 1..=8 {
                let file = file.clone();
                scope.spawn(move || {
                    file.raise(seen(revision), |hints| {
                        hints.cooling.insert(revision as u32, lease(revision).expect("a lease"));
                    });
                });
            }
        });
        let mark = file.read().expect("a mark");
        assert_eq!((mark.seen.revision, mark.hints.cooling.len()), (8, 8));
    }

    #[test]
    fn no_lease_is_used_that_etcd_would_take_for_none() {
        let start = RunStart { boot: "b".into(), ns: 5 };
        for (id, serves) in [(7, true), (0, false), (-1, false)] {
            let lease = Some(NodeLease { id, since: RunStart { ns: 4, ..start.clone() } });
            let hints =
                Hints { lease: lease.clone(), tickets: lease.clone(), tombstones: lease, ..Hints::default() };
            assert_eq!(hints.lease_for(&start).is_some(), serves, "{id}");
            assert_eq!(hints.tickets_for(&start).is_some(), serves, "{id}");
            assert_eq!(hints.tombstones_for(&start).is_some(), serves, "{id}");
        }
    }

    #[test]
    fn half_of_one_mark_and_half_of_another_make_no_third() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = MarkFile::new(folder.path(), &identity("m", "east"), &[]);
        file.make(seen(0));
        let write = |revision: i64| {
            file.raise(seen(revision), |hints| hints.lease = lease(revision * 7));
            let read = file.read().map(|mark| (mark.seen.revision, mark.hints.lease));
            assert_eq!(read, Some((revision, lease(revision * 7))));
            (read, std::fs::read(&file.path).expect("it was written"))
        };
        let [(first, old), (second, new)] = [12_399_999, 12_400_000].map(write);
        assert_eq!(old.len(), new.len());
        for cut in 0..old.len() {
            std::fs::write(&file.path, [&new[..cut], &old[cut..]].concat()).expect("written");
            let read = file.read().map(|mark| (mark.seen.revision, mark.hints.lease));
            assert!(read.is_none() || [&first, &second].contains(&&read), "cut at {cut}");
        }
        for garbage in ["", "{}", "                                                "] {
            std::fs::write(&file.path, garbage).expect("written");
            assert_eq!(file.read(), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_hint_serves_for_a_while_on_one_boot() {
        let at = |boot: &str, ms: u64| RunStart { boot: boot.into(), ns: ms * 1_000_000 };
        let lease = Some(NodeLease { id: 7, since: at("b", 1000) });
        let crowded = Some(at("b", 1000));
        let hints = Hints {
            lease: lease.clone(),
            tickets: lease.clone(),
            tombstones: lease,
            crowded,
            ..Hints::default()
        };
        for (start, expected) in [
            (at("b", 1000), [true, true, true]),
            (at("b", 1999), [true, true, true]),
            (at("b", 2001), [true, true, false]),
            (at("b", 9999), [true, true, false]),
            (at("b", 10_001), [false, true, false]),
            (at("b", 300_999), [false, true, false]),
            (at("b", 301_001), [false, false, false]),
            (at("b", 999), [false, false, true]),
            (at("a", 1001), [false, false, false]),
        ] {
            let found = [
                hints.lease_for(&start).is_some() && hints.tickets_for(&start).is_some(),
                hints.tombstones_for(&start).is_some(),
                hints.is_crowded(&start),
            ];
            assert_eq!(found, expected, "{start:?}");
        }
    }
}

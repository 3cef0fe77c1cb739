//! Frees that could not be carried out because the store could not be reached. They are kept on the node, one file for
//! each owner and start, until a later run carries them out.
//!
//! A disk may have been copied from another machine together with its spool. What that machine meant to free may be in
//! use there, so an entry names its machine and cluster, and is carried out there alone. A cluster that the machine was
//! in under a former name is its own, too. An entry of another machine or cluster is moved into a folder that is named
//! after both. So only one run reads it here, and the disk finds it again where it belongs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::files;
use super::names::NamesFile;
use super::node::Identity;
use metes_core::keys::digest_hex;
use metes_core::limits;
use metes_core::pool::{ClusterName, Owner, PodUid, RunStart};

/// A free to carry out later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spooled {
    /// The owner whose addresses are to be freed.
    pub owner: Owner,
    /// The start of the run that could not finish. Only what that run or an older one has reserved is freed.
    pub start: RunStart,
    /// The machine of that run; empty if it has no id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The pod's UID, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<PodUid>,
    /// If set, only what that very run has reserved is freed, and only if no other run has answered with it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unanswered: bool,
}

/// A free as it was found in its file.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The owner to free.
    pub spooled: Spooled,
    file: PathBuf,
}

/// The content of a spool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The frees of this machine and cluster that wait.
    pub own: usize,
    /// When the oldest of them was written.
    pub oldest: Option<SystemTime>,
    /// The frees of another machine or cluster, which stay.
    pub others: usize,
    /// The frees that cannot be read, and stay.
    pub unreadable: usize,
}

/// The folder in the spool with the entries of others: a folder for each machine and cluster.
const OTHERS: &str = "others";

/// The folder of spooled frees.
#[derive(Debug, Clone)]
pub struct Spool {
    folder: PathBuf,
    /// Where runs of others have put what is of this machine and cluster.
    put_aside: PathBuf,
    machine: String,
    cluster: Option<ClusterName>,
    names: NamesFile,
}

impl Spool {
    /// The spool in a node's folder.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity) -> Self {
        let Identity { machine, cluster, .. } = identity.clone();
        let names = NamesFile::new(folder, identity);
        let folder = folder.join("spool");
        let put_aside = folder_aside(&folder, &machine, cluster.as_ref());
        Self { folder, put_aside, machine, cluster, names }
    }

    /// Keeps a free; returns when it is on disk.
    ///
    /// # Errors
    /// [`io::Error`] if it cannot be kept.
    pub fn keep(&self, spooled: &Spooled) -> io::Result<()> {
        #[cfg(feature = "failpoints")]
        metes_engine::failpoints::pass("spool.before");
        files::make_folder(&self.folder)?;
        let content = serde_json::to_vec(spooled)?;
        files::write_whole(&self.path(spooled), &content)?;
        #[cfg(feature = "failpoints")]
        metes_engine::failpoints::pass("spool.after");
        Ok(())
    }

    /// Forgets a free that was carried out.
    pub fn forget(&self, kept: &Kept) {
        // Another run may have carried it out at the same time.
        if let Err(e) = fs::remove_file(&kept.file)
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(error = %e, "a spooled DEL that was carried out cannot be removed");
        }
    }

    /// The frees of one owner, in an order that the names of their files decide.
    #[must_use]
    pub fn of(&self, owner: &Owner) -> Vec<Kept> {
        let prefix = file_prefix(owner);
        let kept = self.read_own(self.files(|name| name.starts_with(&prefix)), usize::MAX);
        kept.into_iter().filter(|kept| kept.spooled.owner == *owner).collect()
    }

    /// At most `limit` frees of any owner. `seed` says where to begin, so that entries which cannot be carried out do
    /// not keep the others waiting.
    #[must_use]
    pub fn some(&self, limit: usize, seed: u64) -> Vec<Kept> {
        let mut files = self.files(|_| true);
        if files.is_empty() {
            return Vec::new();
        }
        let start = (seed % files.len() as u64) as usize;
        files.rotate_left(start);
        self.read_own(files, limit)
    }

    /// The content of the folder, without carrying anything out.
    ///
    /// # Errors
    /// Why nothing of it is carried out: somebody else may have written it.
    pub fn survey(&self) -> io::Result<Survey> {
        let mut survey = Survey::default();
        for path in all_in(&self.folder)?.chain(all_in(&self.put_aside)?).filter(|path| is_del(path)) {
            match read_spooled(&path) {
                Ok(spooled) if self.is_own(&spooled) => {
                    survey.own += 1;
                    let written = fs::metadata(&path).and_then(|meta| meta.modified()).ok();
                    survey.oldest = survey.oldest.into_iter().chain(written).min();
                }
                Ok(_) => survey.others += 1,
                Err(_) => survey.unreadable += 1,
            }
        }
        for folder in all_in(&self.folder.join(OTHERS))?.filter(|folder| *folder != self.put_aside) {
            survey.others += all_in(&folder)?.filter(|path| is_del(path)).count();
        }
        Ok(survey)
    }

    fn is_own(&self, Spooled { owner, machine, .. }: &Spooled) -> bool {
        let is_of_cluster =
            || owner.cluster == self.cluster || self.names.has_been_in(owner.cluster.as_ref());
        *machine == self.machine && is_of_cluster()
    }

    /// At most `limit` entries of this machine and cluster. Those of others that are met are put aside.
    fn read_own(&self, files: Vec<PathBuf>, limit: usize) -> Vec<Kept> {
        let (mut own, mut moved) = (Vec::new(), 0);
        for kept in files.iter().take(limits::SPOOL_READS).filter_map(|path| read_one(path)) {
            if !self.is_own(&kept.spooled) {
                moved += usize::from(self.set_aside(&kept));
                continue;
            }
            own.push(kept);
            if own.len() == limit {
                break;
            }
        }
        if moved > 0 {
            let folder = self.folder.join(OTHERS);
            tracing::warn!(
                moved, folder = %folder.display(), this_machine = %self.machine,
                "spooled DELs of another machine or cluster are not carried out and were put aside; remove them if \
                 this disk was copied"
            );
        }
        own
    }

    /// Moves an entry to the folder where its own machine and cluster find it. Returns true if this run has moved it.
    fn set_aside(&self, Kept { spooled, file }: &Kept) -> bool {
        let folder = folder_aside(&self.folder, &spooled.machine, spooled.owner.cluster.as_ref());
        let moved = files::make_folder(&folder)
            .and_then(|()| fs::rename(file, folder.join(file.file_name().unwrap_or_default())));
        match moved {
            Ok(()) => true,
            // Another run did.
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => {
                tracing::warn!(
                    file = %file.display(), error = %e,
                    "a spooled DEL of another machine or cluster is not carried out, and cannot be put aside"
                );
                false
            }
        }
    }

    /// The files that may be of this machine and cluster and whose names are meant, in the order of their names.
    fn files(&self, is_meant: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let is_meant =
            |path: &PathBuf| is_del(path) && path.file_name().and_then(OsStr::to_str).is_some_and(&is_meant);
        let mut files = Vec::new();
        for folder in [&self.folder, &self.put_aside] {
            match all_in(folder) {
                Ok(found) => files.extend(found.filter(is_meant).take(limits::SPOOL_NAMES)),
                Err(e) => tracing::warn!(
                    error = %e, "spooled DELs are not carried out: somebody else may have written them"
                ),
            }
        }
        files.sort();
        files
    }

    fn path(&self, spooled: &Spooled) -> PathBuf {
        let RunStart { boot, ns } = &spooled.start;
        let start = digest_hex(boot.as_bytes());
        self.folder.join(format!("{}{}-{ns}.del", file_prefix(&spooled.owner), &start[..8]))
    }
}

/// The paths in a folder; none if there is no such folder.
fn all_in(folder: &Path) -> io::Result<impl Iterator<Item = PathBuf> + use<>> {
    let entries = fs::read_dir(folder).ok();
    if entries.is_some() {
        files::check_folder(folder)?;
    }
    Ok(entries.into_iter().flatten().flatten().map(|entry| entry.path()))
}

fn is_del(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "del")
}

/// Where the entries of a machine in a cluster are put by runs of others.
fn folder_aside(folder: &Path, machine: &str, cluster: Option<&ClusterName>) -> PathBuf {
    let cluster = cluster.map_or("-", ClusterName::as_str);
    folder.join(OTHERS).join(digest_hex(format!("{machine}/{cluster}").as_bytes()))
}

fn file_prefix(owner: &Owner) -> String {
    let Owner { node, container_id, ifname, .. } = owner;
    let path = format!("{}/{node}/{container_id}/{ifname}", owner.cluster_or_dash());
    format!("{}-", digest_hex(path.as_bytes()))
}

fn read_one(path: &Path) -> Option<Kept> {
    match read_spooled(path) {
        Ok(spooled) => Some(Kept { spooled, file: path.to_owned() }),
        Err(e) => {
            tracing::warn!(file = %path.display(), error = %e, "a spooled DEL cannot be read and stays");
            None
        }
    }
}

fn read_spooled(path: &Path) -> io::Result<Spooled> {
    let bytes = files::read_trusted(path, 64 << 10, files::Trust::OwnerReads)?;
    serde_json::from_slice(&bytes).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spooled(container: &str, ns: u64) -> Spooled {
        let owner = Owner::named(["east", "n", container, "eth0"]).expect("plain names");
        let (start, machine) = (RunStart { boot: "b".into(), ns }, "m".into());
        Spooled { owner, start, machine, pod_uid: "u".parse().ok(), unanswered: ns == 2 }
    }

    fn identity(machine: &str, cluster: &str) -> Identity {
        let node = "n".parse().expect("a node name");
        Identity { node, cluster: cluster.parse().ok(), machine: machine.into() }
    }

    /// The number of entries that wait for this machine and cluster, and for others.
    fn counts(spool: &Spool) -> (usize, usize, usize) {
        let Survey { own, others, unreadable, .. } = spool.survey().expect("an own folder");
        (own, others, unreadable)
    }

    #[test]
    fn what_another_machine_or_cluster_has_spooled_is_put_aside_and_found_where_it_belongs() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Spool::new(folder.path(), &identity("m", "east"));
        own.keep(&spooled("a", 1)).expect("kept");
        own.keep(&Spooled { machine: "copied".into(), ..spooled("b", 1) }).expect("kept");
        for _ in 0..2 {
            assert_eq!(counts(&own), (1, 1, 0));
            assert_eq!(own.some(9, 0).len(), 1);
            let in_spool = all_in(&own.folder).expect("readable").filter(|path| is_del(path)).count();
            assert_eq!(in_spool, 1, "no further run reads it");
        }
        assert!(own.survey().expect("an own folder").oldest.is_some());
        for (machine, cluster) in [("m", "west"), ("other", "east"), ("", "east")] {
            let other = Spool::new(folder.path(), &identity(machine, cluster));
            assert!(other.some(9, 0).is_empty() && other.of(&spooled("a", 1).owner).is_empty(), "{machine}");
            assert_eq!(counts(&other), (0, 2, 0), "{machine}");
        }
        // The disk goes back, and to the other machine.
        let copied = Spool::new(folder.path(), &identity("copied", "east"));
        assert_eq!(copied.some(9, 0)[0].spooled.owner.container_id.as_str(), "b");
        assert_eq!(copied.of(&spooled("b", 1).owner).len(), 1);
        let kept = own.some(9, 0).remove(0);
        assert_eq!(kept.spooled, spooled("a", 1));
        own.forget(&kept);
        assert_eq!((counts(&own), counts(&copied)), ((0, 1, 0), (1, 0, 0)));
    }

    /// A run reads a bounded number of entries, however many there are, and finds those of its own owner.
    #[test]
    fn a_run_reads_a_bounded_number_of_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Spool::new(folder.path(), &identity("m", "east"));
        own.keep(&spooled("a", 1)).expect("kept");
        let file = own.path(&spooled("a", 1));
        let foreign =
            serde_json::to_vec(&Spooled { machine: "copied".into(), ..spooled("b", 1) }).expect("JSON");
        for i in 0..3 * limits::SPOOL_READS {
            let path = own.folder.join(format!("{i:032x}-00000000-1.del"));
            fs::copy(&file, &path).expect("a file with its mode");
            fs::write(path, &foreign).expect("written");
        }
        let put_aside = || {
            all_in(&folder_aside(&own.folder, "copied", Some(&"east".parse().expect("a name"))))
                .expect("readable")
                .count()
        };
        assert_eq!((own.of(&spooled("a", 1).owner).len(), put_aside()), (1, 0));
        let own_read = own.some(usize::MAX, 0).len();
        assert_eq!(own_read + put_aside(), limits::SPOOL_READS);
        (0..3).for_each(|seed| _ = own.some(16, seed));
        assert_eq!(counts(&own), (1, 3 * limits::SPOOL_READS, 0));
        assert_eq!(put_aside(), 3 * limits::SPOOL_READS);
    }

    #[test]
    fn keeps_one_file_for_each_owner_and_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path(), &identity("m", "east"));
        for s in [spooled("a", 1), spooled("a", 1), spooled("a", 2), spooled("b", 1)] {
            spool.keep(&s).expect("kept");
        }
        let kept = spool.of(&spooled("a", 1).owner);
        let mut of_a: Vec<Spooled> = kept.iter().map(|kept| kept.spooled.clone()).collect();
        of_a.sort_by_key(|s| s.start.ns);
        assert_eq!(of_a, [spooled("a", 1), spooled("a", 2)]);
        assert_eq!(spool.some(2, 1).len(), 2);
        spool.forget(&kept[0]);
        assert_eq!(spool.some(9, 0).len(), 2);
    }

    #[test]
    fn only_root_reads_it_and_garbage_is_left_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path(), &identity("m", "east"));
        spool.keep(&spooled("a", 1)).expect("kept");
        let file = spool.path(&spooled("a", 1));
        let mode = fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(folder.path().join("spool/junk.del"), "{").expect("written");
        assert_eq!(spool.some(9, 0).len(), 1);
        assert!(folder.path().join("spool/junk.del").exists());
    }
}

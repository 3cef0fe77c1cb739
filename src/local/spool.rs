//! Frees that could not be carried out because the store could not be reached. They are kept on the node, one file for
//! each owner and start, until a later run carries them out.
//!
//! A disk may have been copied from another machine together with its spool. What that machine meant to free may be in
//! use there, so an entry names its machine and cluster, and is carried out there alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::files;
use super::node::Identity;
use crate::pool::names::{ClusterName, PodUid};
use crate::pool::record::{Owner, RunStart};
use crate::store::keys::digest_hex;

/// A free to carry out later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spooled {
    /// Whose addresses.
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
    /// What to free.
    pub spooled: Spooled,
    file: PathBuf,
}

/// What is in a spool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// How many frees of this machine and cluster wait.
    pub own: usize,
    /// When the oldest of them was written.
    pub oldest: Option<SystemTime>,
    /// How many are of another machine or cluster, and stay.
    pub others: usize,
    /// How many cannot be read, and stay.
    pub unreadable: usize,
}

/// The folder of spooled frees.
#[derive(Debug, Clone)]
pub struct Spool {
    folder: PathBuf,
    machine: String,
    cluster: Option<ClusterName>,
}

impl Spool {
    /// The spool in a node's folder.
    #[must_use]
    pub fn new(folder: &Path, identity: &Identity) -> Self {
        let Identity { machine, cluster, .. } = identity.clone();
        Self { folder: folder.join("spool"), machine, cluster }
    }

    /// Keeps a free; returns when it is on disk.
    ///
    /// # Errors
    /// [`io::Error`] if it cannot be kept.
    pub fn keep(&self, spooled: &Spooled) -> io::Result<()> {
        #[cfg(feature = "failpoints")]
        crate::failpoints::pass("spool.before");
        files::make_folder(&self.folder)?;
        let content = serde_json::to_vec(spooled)?;
        files::write_whole(&self.path(spooled), &content)?;
        #[cfg(feature = "failpoints")]
        crate::failpoints::pass("spool.after");
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
        let files = self.files().into_iter().filter(|name| name.starts_with(&prefix));
        files
            .filter_map(|name| self.read_own(&self.folder.join(name)))
            .filter(|kept| kept.spooled.owner == *owner)
            .collect()
    }

    /// At most `limit` frees of any owner. `seed` says where to begin, so that entries which cannot be carried out do
    /// not keep the others waiting.
    #[must_use]
    pub fn some(&self, limit: usize, seed: u64) -> Vec<Kept> {
        let mut files = self.files();
        if files.is_empty() {
            return Vec::new();
        }
        let start = (seed % files.len() as u64) as usize;
        files.rotate_left(start);
        files.iter().filter_map(|name| self.read_own(&self.folder.join(name))).take(limit).collect()
    }

    /// What is in the folder, without carrying anything out.
    ///
    /// # Errors
    /// Why nothing of it is carried out: somebody else may have written it.
    pub fn survey(&self) -> io::Result<Survey> {
        let mut survey = Survey::default();
        let Ok(entries) = fs::read_dir(&self.folder) else { return Ok(survey) };
        files::check_folder(&self.folder)?;
        let paths = entries.flatten().map(|entry| entry.path());
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == "del")) {
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
        Ok(survey)
    }

    fn is_own(&self, Spooled { owner, machine, .. }: &Spooled) -> bool {
        *machine == self.machine && owner.cluster == self.cluster
    }

    /// An entry of this machine and cluster. One of another machine stays: the disk may go back to where it belongs.
    fn read_own(&self, path: &Path) -> Option<Kept> {
        let kept = read_one(path)?;
        if self.is_own(&kept.spooled) {
            return Some(kept);
        }
        let Spooled { owner, machine, .. } = &kept.spooled;
        tracing::warn!(
            file = %path.display(), %owner, %machine, this_machine = %self.machine,
            "a spooled DEL of another machine or cluster is not carried out; remove the file if this disk was copied"
        );
        None
    }

    fn files(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        if let Err(e) = files::check_folder(&self.folder) {
            tracing::warn!(error = %e, "spooled DELs are not carried out: somebody else may have written them");
            return Vec::new();
        }
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".del")).collect();
        names.sort();
        names
    }

    fn path(&self, spooled: &Spooled) -> PathBuf {
        let RunStart { boot, ns } = &spooled.start;
        let start = digest_hex(boot.as_bytes());
        self.folder.join(format!("{}{}-{ns}.del", file_prefix(&spooled.owner), &start[..8]))
    }
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

    #[test]
    fn what_another_machine_or_cluster_has_spooled_is_not_read_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Spool::new(folder.path(), &identity("m", "east"));
        own.keep(&spooled("a", 1)).expect("kept");
        own.keep(&Spooled { machine: "copied".into(), ..spooled("b", 1) }).expect("kept");
        assert_eq!(own.some(9, 0).len(), 1);
        let survey = own.survey().expect("an own folder");
        assert_eq!((survey.own, survey.others, survey.unreadable), (1, 1, 0));
        assert!(survey.oldest.is_some());
        for (machine, cluster) in [("m", "west"), ("other", "east"), ("", "east")] {
            let other = Spool::new(folder.path(), &identity(machine, cluster));
            assert!(other.some(9, 0).is_empty() && other.of(&spooled("a", 1).owner).is_empty(), "{machine}");
        }
        let copied = Spool::new(folder.path(), &identity("copied", "east"));
        assert_eq!(copied.some(9, 0)[0].spooled.owner.container_id.as_str(), "b");
        assert_eq!(own.some(9, 0)[0].spooled, spooled("a", 1));
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

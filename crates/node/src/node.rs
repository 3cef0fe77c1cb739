//! The node and the machine of a run, and its start.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use super::files;
use metes_config::cni::{Code, Error};
use metes_core::keys::{NodeKey, digest_hex};
use metes_core::pool::{ClusterName, NodeName, RunStart};
use metes_engine::random::random_id;

/// The kernel's id of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Where the machine's id may be; the first file that has one counts.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// The file with the id of a machine that has none of its own.
const MACHINE_FILE: &str = "machine";

/// A node's identity: to other nodes by its names, and to itself by the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node's name, unique in its cluster.
    pub node: NodeName,
    /// The cluster's name, if it has one.
    pub cluster: Option<ClusterName>,
    /// 32 hex digits that tell this machine from others, to which a host file or a disk may have been copied. Empty if
    /// the machine has no id and none can be kept.
    pub machine: String,
}

impl Identity {
    /// A node of no cluster, on a machine that cannot be told from others.
    #[must_use]
    pub fn of(node: NodeName) -> Self {
        Self { node, cluster: None, machine: String::new() }
    }

    /// The names in the own key that its runs leave in the store.
    #[must_use]
    pub fn key(&self) -> NodeKey {
        let Self { node, cluster, machine } = self.clone();
        NodeKey { cluster, node, machine }
    }
}

/// The digest that tells this machine from others. It is made of the machine id, which itself is secret. A machine
/// without one gets an id that is made once and kept in `folder`. Empty if that fails.
pub(crate) fn machine(folder: &Path) -> String {
    if let Some(Machine { digest, .. }) = known_machine(folder) {
        return digest;
    }
    let file = folder.join(MACHINE_FILE);
    match make_machine(folder, &file) {
        Ok(machine) => machine,
        Err(e) => {
            tracing::warn!(file = %file.display(), error = %e, "this machine has no id, and none can be kept");
            String::new()
        }
    }
}

/// A machine that has an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The digest that tells it from others, see [`machine`].
    pub digest: String,
    /// Where its id is.
    pub file: PathBuf,
}

/// The same, where the machine has an id already: nothing is made.
#[must_use]
pub fn known_machine(folder: &Path) -> Option<Machine> {
    if let Some((file, id)) = machine_id() {
        return Some(Machine { digest: digest_hex(format!("metes {id}").as_bytes()), file: file.into() });
    }
    let file = folder.join(MACHINE_FILE);
    Some(Machine { digest: kept_machine(&file).ok()?, file })
}

/// The machine's id, and where it is.
fn machine_id() -> Option<(&'static str, String)> {
    let is_id = |id: &String| id.len() >= 8 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let read = |path: &'static str| Some((path, fs::read_to_string(path).ok()?.trim().to_owned()));
    MACHINE_ID.into_iter().filter_map(read).find(|(_, id)| is_id(id))
}

fn kept_machine(file: &Path) -> io::Result<String> {
    let bytes = files::read_trusted(file, 64, files::Trust::OwnerWrites)?;
    let id = String::from_utf8_lossy(&bytes).trim().to_owned();
    let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { Ok(id) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "it holds no id")) }
}

/// Makes and keeps an id. If several runs do so at the same time, the first one counts.
fn make_machine(folder: &Path, file: &Path) -> io::Result<String> {
    files::make_folder(folder)?;
    let id = random_id();
    let made = folder.join(format!("{MACHINE_FILE}.{}", &id[..16]));
    files::write_whole(&made, id.as_bytes())?;
    let linked = fs::hard_link(&made, file);
    fs::remove_file(&made)?;
    match linked {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => kept_machine(file),
    }
}

/// The start of this run. It is the first thing that main reads.
///
/// # Errors
/// Code 5 if the kernel does not tell the boot id.
pub fn start() -> Result<RunStart, Error> {
    let boot = fs::read_to_string(BOOT_ID)
        .map_err(|e| Error::new(Code::Io, format!("this run has no start: {BOOT_ID}: {e}")))?;
    Ok(RunStart { boot: boot.trim().to_owned(), ns: boottime_ns() })
}

/// The present moment as a start. `start` is this process' own, so the boot is the same.
#[must_use]
pub fn later(start: &RunStart) -> RunStart {
    RunStart { boot: start.boot.clone(), ns: boottime_ns() }
}

/// True if a run that began at `start` has lasted longer than `most` at the moment `now`.
///
/// While the host is suspended, tokio's clock stands still; etcd's leases and other machines go on.
#[must_use]
pub fn has_outlasted(start: &RunStart, now: &RunStart, most: Duration) -> bool {
    now.since(start).is_some_and(|gap| gap > most)
}

fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// A name for a node whose host file gives none: `<host name>-<first 8 hex of the machine id>`.
///
/// Container ids alone do not tell hosts apart: cnitool derives them from a path.
///
/// # Errors
/// A text that says what the machine lacks.
pub(crate) fn derived_name() -> Result<NodeName, String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let machine_id = machine_id()
        .map(|(_, id)| id)
        .filter(|id| id.bytes().take(8).all(|b| b.is_ascii_hexdigit()))
        .ok_or_else(|| format!("neither of {} has a machine id", MACHINE_ID.join(", ")))?;
    let name = format!("{host}-{}", &machine_id[..8]);
    name.parse().map_err(|_| format!("the host name {host:?} cannot be used"))
}

/// True if `netns` is the network namespace of this process. A path that cannot be read is not: the main plugin has to
/// deal with that.
#[must_use]
pub fn is_own_netns(netns: &str) -> bool {
    let id = |path: &str| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    matches!((id(netns), id("/proc/self/ns/net")), (Some(a), Some(b)) if a == b)
}

/// The time of day, RFC 3339 in UTC, for people.
#[must_use]
pub fn timestamp() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_an_id_gets_one_for_good() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(MACHINE_FILE);
        let made: Vec<String> = std::thread::scope(|scope| {
            let make = || make_machine(folder.path(), &file).expect("one can be kept");
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        assert!(made.iter().all(|one| *one == made[0] && one.len() == 32), "{made:?}");
        assert_eq!(kept_machine(&file).expect("it is kept"), made[0]);
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1, "nothing else is left");
    }

    #[test]
    fn a_later_run_has_a_later_start() {
        let first = start().expect("a boot id");
        let second = start().expect("a boot id");
        assert!(!first.is_after(Some((&second, 1)), None));
    }

    /// The clocks after a suspension during which a monotonic clock stood still.
    #[test]
    fn a_run_that_was_suspended_has_outlasted_its_deadline() {
        let most = Duration::from_secs(20);
        let at = |s: u64| RunStart { boot: "b".into(), ns: s * 1_000_000_000 };
        for (now, expected) in [(100, false), (119, false), (120, false), (121, true), (7300, true)] {
            assert_eq!(has_outlasted(&at(100), &at(now), most), expected, "{now} s");
        }
        let start = start().expect("a boot id");
        assert!(!has_outlasted(&start, &later(&start), most));
        assert!(has_outlasted(&RunStart { ns: 0, ..start.clone() }, &later(&start), Duration::ZERO));
    }
}

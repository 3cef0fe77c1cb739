//! The snapshots of etcd in one folder: each has its time as its name, so none overwrites another one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::Client;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use time::{Date, Month, OffsetDateTime, Time};
use tokio::time::timeout;

use crate::arguments::{KeptArgs, SnapshotCopyArgs, SnapshotPrintArgs, SnapshotsArgs};
use crate::client::in_words;
use crate::failure::Failure;
use crate::files;

const BEGIN: &str = "etcd-";
const END: &str = ".db";
/// The name of a snapshot that is being written.
const NEW: &str = ".new.db";
/// The time in which etcd sends its whole database.
const RECEIVE: Duration = Duration::from_secs(600);
/// The part of a snapshot that is in memory at a time, in bytes.
const PIECE: usize = 1 << 16;

/// Takes a snapshot of the member that the client asks, and keeps it. Says what it has done.
pub(crate) async fn take(client: &mut Client, kept: &KeptArgs) -> Result<String, Failure> {
    let mut new = New::create(kept)?;
    let received = timeout(RECEIVE, receive(client, &mut new)).await;
    received.unwrap_or_else(|_| Err(Failure::new(format!("no end in {} s", RECEIVE.as_secs()))))?;
    Ok(format!("took the snapshot {}", new.keep(&name(OffsetDateTime::now_utc()))?))
}

/// Writes what etcd sends.
async fn receive(client: &mut Client, new: &mut New<'_>) -> Result<(), Failure> {
    let failed = |e: etcd_client::Error| Failure::new(in_words(&e));
    let mut stream = client.snapshot().await.map_err(failed)?;
    while let Some(part) = stream.message().await.map_err(failed)? {
        new.file.write_all(part.blob()).map_err(Failure::on("write", &new.path))?;
    }
    Ok(())
}

/// Copies the newest snapshot of this node, unless its copy is there. Says what it has done.
pub(crate) fn copy(arguments: &SnapshotCopyArgs) -> Result<String, Failure> {
    let SnapshotCopyArgs { from, kept } = arguments;
    let now = OffsetDateTime::now_utc();
    let newest = newest(from, now)?.ok_or_else(|| none_in(from))?;
    // Each node has one of every night, so a failed night is a failed copy.
    if newest < name(now - time::Duration::DAY) {
        let why = "is older than a day: the container `care` of etcd's pod on this node says why";
        return Err(Failure::new(format!("{newest}, the newest snapshot in {}, {why}", from.display())));
    }
    let (original, copy) = (from.join(&newest), kept.folder.join(&newest));
    let whole = digest(&original)?;
    if copy.exists() && digest(&copy).is_ok_and(|digest| digest == whole) {
        return Ok(format!("{} is there already", copy.display()));
    }
    let mut new = New::create(kept)?;
    let copied = File::open(&original).and_then(|mut original| io::copy(&mut original, &mut new.file));
    copied.map_err(Failure::on("copy", &original))?;
    Ok(format!("copied to {}", new.keep(&newest)?))
}

/// Prints the snapshot of this name, or the newest.
pub(crate) fn print(arguments: &SnapshotPrintArgs) -> Result<(), Failure> {
    let SnapshotPrintArgs { folder, name } = arguments;
    let newest = || newest(folder, OffsetDateTime::now_utc())?.ok_or_else(|| none_in(folder));
    let path = folder.join(name.clone().map_or_else(newest, Ok)?);
    digest(&path)?;
    let mut out = io::stdout().lock();
    let printed = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut out));
    printed.and_then(|_| out.flush()).map_err(Failure::on("print", &path))
}

fn none_in(folder: &Path) -> Failure {
    Failure::new(format!("{} has no snapshot", folder.display()))
}

/// A snapshot that is being written. It is removed with this value, unless it is kept.
struct New<'a> {
    kept: &'a KeptArgs,
    path: PathBuf,
    file: File,
}

impl<'a> New<'a> {
    /// Root alone may read it: it has everything that etcd has.
    fn create(kept: &'a KeptArgs) -> Result<Self, Failure> {
        let path = kept.folder.join(NEW);
        // A process that was killed has left it.
        files::remove_if_there(&path)?;
        let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = open.map_err(Failure::on("write", &path))?;
        Ok(Self { kept, path, file })
    }

    /// Gives it this name if it is whole, and removes the oldest ones. Returns its path and size.
    fn keep(self, name: &str) -> Result<String, Failure> {
        let KeptArgs { folder, keep } = self.kept;
        self.file.sync_all().map_err(Failure::on("write", &self.path))?;
        digest(&self.path)?;
        let path = folder.join(name);
        fs::rename(&self.path, &path).map_err(Failure::on("write", &path))?;
        files::sync(folder)?;
        // After a clock was wrong, the new one may not have the newest name.
        let older = snapshots(folder)?.into_iter().filter(|(older, _)| older != name);
        for (older, _) in older.skip(usize::from(*keep).saturating_sub(1)) {
            files::remove_if_there(&folder.join(older))?;
        }
        let size = fs::metadata(&path).map_err(Failure::on("read", &path))?.len();
        Ok(format!("{}, {} KiB", path.display(), size.div_ceil(1024)))
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        let _ = files::remove_if_there(&self.path);
    }
}

/// The name of the newest snapshot. One from the future was taken while the clock was wrong, and does not count.
pub(crate) fn newest(folder: &Path, now: OffsetDateTime) -> Result<Option<String>, Failure> {
    let (now, all) = (name(now), snapshots(folder)?);
    Ok(all.into_iter().map(|(name, _)| name).find(|name| *name <= now))
}

/// Lists what is there, the newest first.
pub(crate) fn list(arguments: &SnapshotsArgs) -> Result<(), Failure> {
    let lines: String = snapshots(&arguments.folder)?
        .iter()
        .map(|(name, size)| format!("{name}  {} KiB  {}\n", size.div_ceil(1024), arguments.node))
        .collect();
    io::stdout().lock().write_all(lines.as_bytes()).map_err(Failure::on("write", Path::new("the list")))
}

/// The name of a snapshot that was taken at this time. Names sort by it.
pub(crate) fn name(at: OffsetDateTime) -> String {
    format!("{BEGIN}{}{END}", stamp(at))
}

/// When a snapshot of this name was taken, in seconds since 1970.
pub(crate) fn taken_at(name: &str) -> Option<u64> {
    let stamp = name.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let part = |from: usize, to: usize| stamp.get(from..to)?.parse::<u8>().ok();
    let month = Month::try_from(part(4, 6)?).ok()?;
    let date = Date::from_calendar_date(stamp.get(..4)?.parse().ok()?, month, part(6, 8)?).ok()?;
    let time = Time::from_hms(part(9, 11)?, part(11, 13)?, part(13, 15)?).ok()?;
    OffsetDateTime::new_utc(date, time).unix_timestamp().try_into().ok()
}

/// The time as it stands in names: they sort by it.
pub(crate) fn stamp(now: OffsetDateTime) -> String {
    let (date, time) = (now.date(), now.time());
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Names and sizes of what this program has kept, the newest first.
fn snapshots(folder: &Path) -> Result<Vec<(String, u64)>, Failure> {
    let mut found = Vec::new();
    for path in files::list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_ours(&name) {
            found.push((name, fs::metadata(&path).map_err(Failure::on("read", &path))?.len()));
        }
    }
    found.reverse();
    Ok(found)
}

/// True if this program gave the name. A copy that somebody has made is never removed.
fn is_ours(name: &str) -> bool {
    let time = name.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    time.is_some_and(|time| {
        time.len() == 16 && time.bytes().all(|b| b.is_ascii_digit() || b == b'T' || b == b'Z')
    })
}

/// The digest at the end of a snapshot, which says that the rest of it is as etcd sent it.
pub(crate) fn digest(path: &Path) -> Result<String, Failure> {
    let (said, found) = digests(path).map_err(Failure::on("read", path))?;
    if said.is_empty() || said != found {
        return Err(Failure::new(format!(
            "{} is not a whole snapshot: its digest is not that of its content; take another one",
            path.display()
        )));
    }
    Ok(said.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The digest at the end of the file, and the digest of the rest; both empty if the file has no more than a digest.
fn digests(path: &Path) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let Some(mut left) = size.checked_sub(SHA256_OUTPUT_LEN as u64).filter(|left| *left > 0) else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let next = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        file.read_exact(&mut piece[..next])?;
        context.update(&piece[..next]);
        left -= next as u64;
    }
    let mut said = vec![0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut said)?;
    Ok((said, context.finish().as_ref().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_times_and_sort_by_them() {
        let at = |seconds| stamp(OffsetDateTime::from_unix_timestamp(seconds).expect("a time"));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(1_795_402_020), "20261123T024700Z");
        assert!(at(1_795_402_020) < at(1_795_402_021));
        assert_eq!(taken_at(&format!("etcd-{}.db", at(1_795_402_021))), Some(1_795_402_021));
        assert_eq!(taken_at("etcd-20261323T024700Z.db"), None);
        assert!(is_ours(&format!("etcd-{}.db", at(0))));
        for other in
            ["etcd.db", "etcd-.db", "restore.db", "etcd-20261123T024700Z.db.part", "etcd-before-upgrade.db"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}

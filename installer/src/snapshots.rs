//! The snapshots of etcd on one node: each has its time as its name, so none overwrites another one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use etcd_client::Client;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use time::OffsetDateTime;
use tokio::time::timeout;

use crate::arguments::{KeptArgs, SnapshotsArgs};
use crate::client::in_words;
use crate::failure::Failure;
use crate::files;

const BEGIN: &str = "etcd-";
const END: &str = ".db";
/// The name of a snapshot that is being received.
const NEW: &str = ".new.db";
/// The time in which etcd sends its whole database.
const RECEIVE: Duration = Duration::from_secs(600);
/// The part of a snapshot that is in memory at a time, in bytes.
const PIECE: usize = 1 << 16;

/// Takes a snapshot of the member that the client asks, keeps it if it is whole, and removes the oldest. Says what it
/// has done.
pub(crate) async fn take(client: &mut Client, kept: &KeptArgs) -> Result<String, Failure> {
    let KeptArgs { folder, keep } = kept;
    let new = folder.join(NEW);
    // A process that was killed has left it.
    files::remove_if_there(&new)?;
    let received = timeout(RECEIVE, receive(client, &new)).await;
    let size = received.unwrap_or_else(|_| Err(Failure::new(format!("no end in {} s", RECEIVE.as_secs()))));
    let size = size.inspect_err(|_| drop(files::remove_if_there(&new)))?;
    digest(&new)?;
    let path = folder.join(name(OffsetDateTime::now_utc()));
    fs::rename(&new, &path).map_err(Failure::on("write", &path))?;
    files::sync(folder)?;
    // After a clock was wrong, the new one may not have the newest name.
    let older =
        snapshots(folder)?.into_iter().map(|(name, _)| folder.join(name)).filter(|older| *older != path);
    for older in older.skip(usize::from(*keep).saturating_sub(1)) {
        files::remove_if_there(&older)?;
    }
    Ok(format!("took the snapshot {}, {} KiB", path.display(), size.div_ceil(1024)))
}

/// Writes what etcd sends to a file that root alone may read: it has everything that etcd has. Returns its size in
/// bytes.
async fn receive(client: &mut Client, new: &Path) -> Result<u64, Failure> {
    let failed = |e: etcd_client::Error| Failure::new(in_words(&e));
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new);
    let mut file = open.map_err(Failure::on("write", new))?;
    let mut stream = client.snapshot().await.map_err(failed)?;
    let mut size = 0;
    while let Some(part) = stream.message().await.map_err(failed)? {
        file.write_all(part.blob()).map_err(Failure::on("write", new))?;
        size += part.blob().len() as u64;
    }
    file.sync_all().map_err(Failure::on("write", new))?;
    Ok(size)
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
            "{} is no whole snapshot: its digest is not that of its content; take another one",
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
        assert!(is_ours(&format!("etcd-{}.db", at(0))));
        for other in
            ["etcd.db", "etcd-.db", "restore.db", "etcd-20261123T024700Z.db.part", "etcd-before-upgrade.db"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}

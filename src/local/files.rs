//! Reading and writing files as root on a machine where others may write too: only regular files
//! are read, sizes are bounded, nothing is written through a symbolic link, and a file appears whole
//! or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::random::random;

/// The permission bit by which a group reads.
const GROUP_READ: u32 = 0o040;

/// Which permission bits a trusted file must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nobody but the owner may write it.
    OwnerWrites,
    /// Nobody but the owner may read or write it.
    OwnerReads,
    /// As [`Trust::OwnerReads`], and a group that runs this program may read it: how a secret is given to a
    /// container that does not run as root.
    GroupReads,
    /// Whoever may write it.
    Anybody,
}

impl Trust {
    fn forbidden(self) -> u32 {
        match self {
            Trust::OwnerWrites => 0o022,
            Trust::OwnerReads => 0o177,
            Trust::GroupReads => 0o137,
            Trust::Anybody => 0,
        }
    }
}

/// Reads a file of at most `limit` bytes that belongs to root (or to the user that runs this
/// program) and keeps to `trust`.
///
/// # Errors
/// An [`io::Error`] whose text says what is wrong with the file, without any of its content.
pub fn read_trusted(path: &Path, limit: u64, trust: Trust) -> io::Result<Vec<u8>> {
    let refuse = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    // Opening a device may do something; opening a FIFO waits for somebody who writes to it.
    if !fs::metadata(path)?.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    let me = rustix::process::geteuid().as_raw();
    if trust != Trust::Anybody && meta.uid() != 0 && meta.uid() != me {
        return refuse(format!("it belongs to user {}, not to root", meta.uid()));
    }
    let mode = meta.mode() & 0o7777;
    if mode & trust.forbidden() != 0 {
        return refuse(format!("its mode is {mode:04o}; remove the bits {:04o}", mode & trust.forbidden()));
    }
    if trust == Trust::GroupReads && mode & GROUP_READ != 0 && !is_own_group(meta.gid()) {
        return refuse(format!(
            "its mode is {mode:04o}, and its group {} is none of this program's; remove the bits {GROUP_READ:04o}",
            meta.gid()
        ));
    }
    let mut bytes = Vec::with_capacity(meta.len().min(limit) as usize + 1);
    read_into(&mut bytes, file, limit)?;
    Ok(bytes)
}

/// Whether this program runs in the group.
fn is_own_group(group: u32) -> bool {
    let others = rustix::process::getgroups().unwrap_or_default();
    rustix::process::getegid().as_raw() == group || others.iter().any(|other| other.as_raw() == group)
}

/// Reads all of `source`, which must not hold more than `limit` bytes.
///
/// # Errors
/// [`io::Error`], [`io::ErrorKind::FileTooLarge`] if there is more.
pub fn read_bounded(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(&mut bytes, source, limit)?;
    Ok(bytes)
}

fn read_into(bytes: &mut Vec<u8>, source: impl Read, limit: u64) -> io::Result<()> {
    source.take(limit + 1).read_to_end(bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(())
}

/// Makes a folder, and those above it, that only its owner may enter.
///
/// # Errors
/// [`io::Error`]
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a folder", path.display())))
}

/// Overwrites a file of mode 0600 in place; what is read meanwhile may be half of each.
///
/// For what every run writes: replacing a file by another makes some file systems write it to disk
/// at once, and that competes with whoever waits for the disk.
///
/// # Errors
/// [`io::Error`]
pub fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    let length = file.metadata()?.len();
    file.write_all(content)?;
    if length > content.len() as u64 { file.set_len(content.len() as u64) } else { Ok(()) }
}

/// Writes a file of mode 0600 that appears under its name only when it is whole and on disk.
///
/// # Errors
/// [`io::Error`]
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Process ids alone do not tell processes of different pid namespaces apart.
    name.push(format!(".{}-{:016x}.tmp", std::process::id(), random()));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Opens a log to append to; made with mode 0600, and never through a symbolic link.
///
/// # Errors
/// [`io::Error`]
pub fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

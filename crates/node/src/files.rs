//! Reading and writing files as root on a machine where others may write too. Only regular files are read, sizes are
//! bounded, nothing is written through a symbolic link, and a file appears whole or not at all.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

use metes_core::limits;
use metes_engine::random::random;

/// The permission bit by which a group reads.
const GROUP_READ: u32 = 0o040;

/// The permission bit by which everybody writes.
const EVERYBODY_WRITES: u32 = 0o002;
/// The bit of a folder in which nobody may remove the files of others.
const STICKY: u32 = 0o1000;
/// A path may lead through so many links, as for Linux itself.
const LINKS: u32 = 40;

/// Permission bits that a trusted file must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nobody but the owner may write it.
    OwnerWrites,
    /// Nobody but the owner may read or write it.
    OwnerReads,
    /// As [`Trust::OwnerReads`], and a group that runs this program may read it: how a secret is given to a
    /// container that does not run as root.
    GroupReads,
    /// Anybody may write it.
    Anybody,
}

impl Trust {
    /// For the key that a person's command uses. Root keeps it to itself. Another user may share it with a group, as a
    /// container does that does not run as root.
    #[must_use]
    pub fn of_commands() -> Self {
        if rustix::process::geteuid().is_root() { Trust::OwnerReads } else { Trust::GroupReads }
    }

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
    // Opening a device may have an effect; opening a FIFO waits for somebody who writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if trust != Trust::Anybody && !is_trusted_owner(&meta) {
        return Err(refused(format!("it belongs to user {}, not to root", meta.uid())));
    }
    let mode = meta.mode() & 0o7777;
    if mode & trust.forbidden() != 0 {
        return Err(refused(format!(
            "its mode is {mode:04o}; remove the bits {:04o}",
            mode & trust.forbidden()
        )));
    }
    if trust == Trust::GroupReads && mode & GROUP_READ != 0 && !is_own_group(meta.gid()) {
        return Err(refused(format!(
            "its mode is {mode:04o}, and its group {} is none of this program's; remove the bits {GROUP_READ:04o}",
            meta.gid()
        )));
    }
    let mut bytes = Vec::with_capacity(meta.len().min(limit) as usize + 1);
    read_into(&mut bytes, file, limit)?;
    Ok(bytes)
}

/// True if this program runs in the group.
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

/// Makes a folder, and those above it, that only its owner may enter, and judges it as [`check_folder`] does.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check_folder(path)
}

/// Tries whether [`make_folder`] could make this folder, and whether a file could be written in it. It leaves nothing.
///
/// The folder that it makes has a name of its own: a run could come upon the real one meanwhile, and rely on it.
///
/// # Errors
/// [`io::Error`] that names the nearest folder that exists.
pub fn try_folder(path: &Path) -> io::Result<()> {
    let nearest = path.ancestors().find(|at| fs::symlink_metadata(at).is_ok()).unwrap_or(path);
    check_folder(nearest)?;
    let trial = nearest.join(format!(".metes-{:016x}.tmp", random()));
    let made = make_folder(&trial).and_then(|()| write_whole(&trial.join("trial"), b"trial"));
    let _ = fs::remove_dir_all(&trial);
    made.map_err(|e| {
        io::Error::new(e.kind(), format!("nothing can be written in {}: {e}", nearest.display()))
    })
}

/// Checks that nobody but root, or the user that runs this program, decides what `path` leads to. Each folder and link
/// on the way must belong to one of them, and nobody else may be able to put another one in its place.
///
/// # Errors
/// [`io::Error`] that names what somebody else could have planted.
pub(crate) fn check_folder(path: &Path) -> io::Result<()> {
    // A run writes several files of one folder within a few milliseconds. With a folder, those above it were judged.
    let is_judged = |(at, judged): &(Instant, PathBuf)| judged.starts_with(path) && at.elapsed() < AGAIN;
    if JUDGED.with_borrow(|last| last.as_ref().is_some_and(is_judged)) {
        return Ok(());
    }
    judge_folder(path)?;
    JUDGED.set(Some((Instant::now(), path.to_owned())));
    Ok(())
}

thread_local! {
    /// The folder that was judged last, and when.
    static JUDGED: RefCell<Option<(Instant, PathBuf)>> = const { RefCell::new(None) };
}

/// A folder that was judged so short a time ago is not judged again.
const AGAIN: Duration = Duration::from_millis(100);

fn judge_folder(path: &Path) -> io::Result<()> {
    let mut links = 0;
    let mut at = PathBuf::new();
    let mut ahead = parts_reversed(&std::path::absolute(path)?);
    while let Some(part) = ahead.pop() {
        // All links on the way here are resolved.
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        at.push(&part);
        if !check_part(&at)? {
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let target = fs::read_link(&at)?;
        at.pop();
        ahead.extend(parts_reversed(&target));
    }
    if fs::metadata(path)?.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a folder", path.display())))
}

fn parts_reversed(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// Judges one part of a path. Returns true if it is a link.
fn check_part(part: &Path) -> io::Result<bool> {
    let meta = fs::symlink_metadata(part)?;
    let refuse = |why: String| Err(refused(format!("{} {why}", part.display())));
    if !is_trusted_owner(&meta) {
        return refuse(format!("belongs to user {}, not to root", meta.uid()));
    }
    // In a folder with the sticky bit nobody can replace what belongs to another.
    let is_open = meta.mode() & EVERYBODY_WRITES != 0 && meta.mode() & STICKY == 0;
    if meta.is_dir() && is_open {
        return refuse("may be written by everybody".to_owned());
    }
    Ok(meta.is_symlink())
}

fn is_trusted_owner(meta: &Metadata) -> bool {
    meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw()
}

/// Overwrites a file of mode 0600 in place. Who reads it meanwhile may get half of the old and half of the new content.
///
/// This is for what every run writes. Replacing a file makes some file systems write it to disk at once, which competes
/// with others that wait for the disk. Only a file with a second name (a hard link) is replaced, so that the content
/// under the other name stays as it is.
pub(crate) fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let (file, meta) = open_trusted(OpenOptions::new().write(true).create(true).truncate(false), path)?;
    overwrite_open((file, &meta), path, content)
}

/// Overwrites a file that is open at its beginning.
fn overwrite_open((mut file, meta): (File, &Metadata), path: &Path, content: &[u8]) -> io::Result<()> {
    if has_other_name(meta) {
        return write_whole(path, content);
    }
    file.write_all(content)?;
    if meta.len() > content.len() as u64 { file.set_len(content.len() as u64) } else { Ok(()) }
}

/// Changes a file of mode 0600 in place, as [`overwrite`] does, while no other run changes it so. `change` gets what is
/// in it, nothing for a file that is made, and returns the new content, or none to leave it.
///
/// # Errors
/// [`io::Error`], [`io::ErrorKind::WouldBlock`] if others change it for longer than `within`.
pub(crate) fn change(
    path: &Path,
    (limit, within): (u64, Duration),
    change: impl FnOnce(&[u8]) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let (mut file, meta) = open_trusted(options.read(true).write(true).create(true).truncate(false), path)?;
    lock(&file, within)?;
    let mut before = Vec::new();
    // What is larger than any run writes is worth nothing.
    if meta.len() <= limit {
        // With room for the end of the file, one read takes all of it.
        before.reserve(meta.len() as usize + 1);
        read_into(&mut before, &file, limit)?;
    }
    let Some(content) = change(&before)? else { return Ok(()) };
    file.rewind()?;
    overwrite_open((file, &meta), path, &content)
}

/// Locks a file against those who lock it too. The lock ends with the file's last descriptor, so with the process.
fn lock(file: &File, within: Duration) -> io::Result<()> {
    let until = Instant::now() + within;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(limits::LOCK_PAUSE),
            locked => return Ok(locked?),
        }
    }
}

/// Opens a file to write to as [`open_trusted`] does, and refuses a file with a second name (a hard link).
fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let (file, meta) = open_trusted(options, path)?;
    match has_other_name(&meta) {
        true => Err(refused("it has another name, as a hard link".to_owned())),
        false => Ok(file),
    }
}

fn has_other_name(meta: &Metadata) -> bool {
    meta.is_file() && meta.nlink() > 1
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Opens a file to write to, and makes it with mode 0600. It follows no symbolic link, and the folder must pass
/// [`check_folder`]. What is no regular file of root (or of this program's user) is refused without waiting for it.
fn open_trusted(options: &mut OpenOptions, path: &Path) -> io::Result<(File, Metadata)> {
    if let Some(folder) = path.parent() {
        check_folder(folder)?;
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !is_trusted_owner(&meta) {
        return Err(refused(format!("it belongs to user {}, not to root", meta.uid())));
    }
    match meta.is_file() || meta.file_type().is_char_device() {
        true => Ok((file, meta)),
        false => Err(refused("it is not a regular file".to_owned())),
    }
}

/// Writes a file of mode 0600 that appears under its name only when it is whole and on disk.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Processes in different pid namespaces can have the same id.
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
    let mut file = open_own(OpenOptions::new().write(true).create_new(true), path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Opens a log to append to; made with mode 0600, and never through a link.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    open_own(OpenOptions::new().append(true).create(true), path)
}

/// Adds to the end of a file of mode 0600, with one write, unless it has `most` bytes already. A file that is not there
/// is made. It waits for nobody, and leaves alone what is no regular file of its own, or has a second name.
pub(crate) fn append(path: &Path, content: &[u8], most: u64) -> io::Result<()> {
    let (mut file, meta) = open_trusted(OpenOptions::new().append(true).create(true), path)?;
    expect_own_file(&meta)?;
    if meta.len() < most { file.write_all(content) } else { Ok(()) }
}

/// Overwrites a part of a file of mode 0600 in place, from this byte on. A file that is not there is made. It leaves
/// alone what is no regular file of its own, or has a second name.
pub(crate) fn overwrite_at(path: &Path, at: u64, content: &[u8]) -> io::Result<()> {
    let (file, meta) = open_trusted(OpenOptions::new().write(true).create(true).truncate(false), path)?;
    expect_own_file(&meta)?;
    file.write_all_at(content, at)
}

/// Reads so many bytes of such a file, from this byte on; fewer if it ends before.
pub(crate) fn read_own_at(path: &Path, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let (file, _) = open_own_to_read(path)?;
    let mut found = vec![0; bytes];
    let read = file.read_at(&mut found, at)?;
    found.truncate(read);
    Ok(found)
}

/// Opens a file to read that [`append`] would add to.
pub(crate) fn open_own_to_read(path: &Path) -> io::Result<(File, Metadata)> {
    let (file, meta) = open_trusted(OpenOptions::new().read(true), path)?;
    expect_own_file(&meta)?;
    Ok((file, meta))
}

fn expect_own_file(meta: &Metadata) -> io::Result<()> {
    match (meta.is_file(), has_other_name(meta)) {
        (false, _) => Err(refused("it is not a regular file".to_owned())),
        (true, true) => Err(refused("it has another name, as a hard link".to_owned())),
        (true, false) => Ok(()),
    }
}

/// Makes a file of mode 0600 to append to, which must not exist.
///
/// # Errors
/// [`io::Error`]
pub fn make_new(path: &Path) -> io::Result<File> {
    let file = open_own(OpenOptions::new().append(true).create_new(true), path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_name_is_replaced_and_the_other_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, other] = ["mark", "other"].map(|name| folder.path().join(name));
        let read = |path: &Path| fs::read_to_string(path).expect("readable");
        let number = |path: &Path| fs::metadata(path).expect("it is there").ino();
        overwrite(&path, b"first, and long").expect("written");
        let first = number(&path);
        fs::hard_link(&path, &other).expect("a link can be made");
        overwrite(&path, b"second").expect("replaced");
        assert_eq!([read(&path), read(&other)], ["second", "first, and long"]);
        let second = number(&path);
        assert_ne!(second, first);
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, 0o600);
        // From then on it is overwritten in place again.
        overwrite(&path, b"3").expect("written");
        assert_eq!([read(&path), read(&other)], ["3", "first, and long"]);
        assert_eq!(number(&path), second);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "a temporary file is left");
    }

    #[test]
    fn a_folder_is_tried_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().join(path);
        fs::write(at("file"), "").expect("written");
        std::os::unix::fs::symlink(at("nowhere"), at("link")).expect("a link can be made");
        for path in ["", "new", "new/below"] {
            try_folder(&at(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        for path in ["file", "file/below", "link", "link/below"] {
            assert!(try_folder(&at(path)).is_err() && make_folder(&at(path)).is_err(), "{path}");
        }
        let why = try_folder(Path::new("/proc/nope/below")).expect_err("nobody makes a folder there");
        assert!(why.to_string().starts_with("nothing can be written in /proc: "), "{why}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "something is left");
    }

    #[test]
    fn what_is_written_goes_through_no_symbolic_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, other] = ["mark", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "precious").expect("written");
        std::os::unix::fs::symlink(&other, &path).expect("a link can be made");
        assert!(overwrite(&path, b"x").is_err());
        assert_eq!(fs::read(&other).expect("readable"), b"precious");
    }
}

//! The data folder of a member of etcd: empty, or with a member that can be named.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::proto::Fields;
use crate::failure::Failure;
use crate::files;

/// The content of a data folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Nothing,
    Member(EtcdIdentity),
    /// A member, but its log does not name it.
    Unreadable,
}

/// The member, and its etcd, that wrote a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EtcdIdentity {
    pub(super) member: u64,
    pub(super) cluster: u64,
}

/// The bytes that are read of each file of the log. The record that names the member is among them, behind one with a
/// checksum.
const BEGINNING: u64 = 4096;
/// The type of the record that names the member.
const METADATA: u64 = 1;
/// Folders that were set aside and that nobody has removed.
const ASIDE_MAX: u32 = 1000;

/// A folder without a log has no member.
pub(super) fn look(data: &Path) -> Result<Content, Failure> {
    let mut logs = files::list(&data.join("member/wal"))?;
    logs.retain(|path| path.extension() == Some(OsStr::new("wal")));
    if logs.is_empty() {
        return Ok(Content::Nothing);
    }
    // Their names begin with their numbers, so the newest is the last.
    for log in logs.iter().rev() {
        let mut beginning = Vec::new();
        let file = File::open(log).map_err(Failure::on("open", log))?;
        file.take(BEGINNING).read_to_end(&mut beginning).map_err(Failure::on("read", log))?;
        if let Some(identity) = identity(&beginning) {
            return Ok(Content::Member(identity));
        }
    }
    Ok(Content::Unreadable)
}

/// Renames a folder without a log, if there is anything of a member in it. etcd would take the database, and leave out
/// what it commits until it comes to the place in the log that the database names.
pub(super) fn set_remains_aside(data: &Path) -> Result<Option<PathBuf>, Failure> {
    if files::list(&data.join("member/snap"))?.is_empty() { Ok(None) } else { set_aside(data).map(Some) }
}

/// Renames the folder, and returns where it is now.
pub(super) fn set_aside(data: &Path) -> Result<PathBuf, Failure> {
    let aside = |n: u32| PathBuf::from(format!("{}.removed-{n}", data.display()));
    let free = (1..=ASIDE_MAX).map(aside).find(|path| fs::symlink_metadata(path).is_err());
    let to = free.ok_or_else(|| {
        Failure::new(format!("{} to {ASIDE_MAX} are all there: remove what is old", aside(1).display()))
    })?;
    fs::rename(data, &to).map_err(Failure::on("rename", data))?;
    files::sync(data.parent().unwrap_or(Path::new("/")))?;
    Ok(to)
}

/// A log is a row of records, each behind its length in 8 bytes. The highest bit of the length says that padding
/// follows, and the lowest three bits of that byte how much of it.
fn identity(mut log: &[u8]) -> Option<EtcdIdentity> {
    loop {
        let (length, rest) = log.split_first_chunk()?;
        let length = u64::from_le_bytes(*length);
        let padding = if length >> 63 == 1 { (length >> 56) & 7 } else { 0 };
        let size = usize::try_from(length & (u64::MAX >> 8)).ok().filter(|size| *size > 0)?;
        let record = Fields::read(rest.get(..size)?)?;
        if record.number(1)? == METADATA {
            let metadata = Fields::read(record.bytes(3)?)?;
            return Some(EtcdIdentity { member: metadata.number(1)?, cluster: metadata.number(2)? });
        }
        log = rest.get(size + padding as usize..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As etcd 3.6.14 wrote it: a record with a checksum, one that names the member, and a snapshot.
    const LOG: &str = "0400000000000084 0804100000000000 2000000000000000 080110e3effee304 1a1608bea1a8fbde \
                       f6cbafa401109a96 e1e1d6fce9988a01 0e00000000000082 080510e896b9be0f 1a04080010000000";
    /// Where the record that names the member ends.
    const NAMED: usize = 56;

    #[test]
    fn a_log_names_its_member() {
        let digits: String = LOG.split_whitespace().collect();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        let log: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let expected = EtcdIdentity { member: 0xa45f_2fb5_ef6a_10be, cluster: 0x8a31_a7e5_6c38_4b1a };
        for end in 0..=log.len() {
            assert_eq!(identity(&log[..end]), (end >= NAMED).then_some(expected), "{end} bytes");
        }
        assert_eq!(identity(&[0; 64]), None, "a file that was made and not written");
        assert_eq!(identity(&[0xff; 64]), None);
    }

    #[test]
    fn folders_that_were_set_aside_stay() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let data = folder.path().join("data");
        for n in 1..=2 {
            fs::create_dir_all(data.join("member/wal")).expect("a folder can be made");
            assert_eq!(look(&data).expect("it can be read"), Content::Nothing);
            let aside = folder.path().join(format!("data.removed-{n}"));
            assert_eq!(set_aside(&data).expect("it can be renamed"), aside);
            assert!(aside.join("member/wal").is_dir() && !data.exists());
        }
    }
}

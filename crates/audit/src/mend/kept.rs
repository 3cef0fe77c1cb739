//! The file that keeps the keys that mends delete and replace: lines of JSON. The first one names the store, each other
//! one has a key as it was. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::Kind;
use metes_core::keys::{Bytes, Key, Keys};
use metes_core::pool::{Owner, PodIndex, Record, Reservation, SeatRecord};
use metes_core::txn::Entry;

/// The version of the format that this program writes and reads.
const FORMAT: u32 = 1;

/// The first line: it names the store that the keys are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    metes_mended: u32,
    prefix: String,
    /// The store's id; none if its meta could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// The time when the file was made, RFC 3339 in UTC; for people only.
    at: String,
}

/// A key as it was before a mend deleted or replaced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntry {
    /// The finding that was mended.
    mended: String,
    key: Stored,
    value: Stored,
    mod_revision: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    lease: i64,
    /// The owner that had it, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
}

/// Bytes, as text if they are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Text(String),
    Base64 { base64: String },
}

/// All that one owner had, or one key of nobody. It is put back together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptGroup {
    /// The owner that had it.
    pub owner: Option<Owner>,
    /// The keys as they were. Their mod revision is that of then.
    pub entries: Vec<Entry>,
}

/// The reason why a file is not used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFile {
    /// It is another file.
    #[error("its first line is not that of a file which `metes check --mend` made: {0}")]
    NoHeading(String),
    /// A newer program made it.
    #[error("it is of format {0}, and this metes reads format {FORMAT}: use the metes that made it")]
    Newer(u32),
    /// It is of other keys.
    #[error("it is of the prefix {found:?}, and this is {asked:?}: use it there")]
    OtherPrefix {
        /// The prefix that the file names.
        found: String,
        /// The prefix that it was to be used on.
        asked: String,
    },
    /// It is of another store.
    #[error("it is of the store {found}, and this is {asked}: use it there")]
    OtherStore {
        /// The id that the file names.
        found: String,
        /// The id of the store that it was to be used on.
        asked: String,
    },
    /// A line is damaged.
    #[error("line {line} does not decode: {why}")]
    Line {
        /// Its number.
        line: usize,
        /// The parser's words.
        why: String,
    },
}

impl Heading {
    /// The heading of a file that is made now.
    #[must_use]
    pub fn new(keys: &Keys, store: Option<&str>, now: &str) -> Self {
        let prefix = prefix(keys);
        Self { metes_mended: FORMAT, prefix, store: store.map(str::to_owned), at: now.to_owned() }
    }

    fn judge(self, keys: &Keys, store: Option<&str>) -> Result<(), BadFile> {
        let asked = prefix(keys);
        match (self.store, store) {
            _ if self.metes_mended != FORMAT => Err(BadFile::Newer(self.metes_mended)),
            _ if self.prefix != asked => Err(BadFile::OtherPrefix { found: self.prefix, asked }),
            (Some(found), Some(asked)) if found != asked => {
                Err(BadFile::OtherStore { found, asked: asked.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

impl KeptEntry {
    pub(super) fn new(keys: &Keys, kind: Kind, entry: &Entry) -> Self {
        let owner = match keys.parse(&entry.key) {
            Ok(Key::Owner(owner)) => Some(owner),
            Ok(Key::Ip(..)) => Reservation::decode(&entry.value).ok().map(|record| record.owner),
            Ok(Key::Pod(interface)) => {
                PodIndex::decode(&entry.value).ok().map(|index| interface.owner(index))
            }
            Ok(Key::Seat(_)) => SeatRecord::decode(&entry.value).ok().map(|seat| seat.user),
            Ok(Key::Hold(network, address)) => Some(Owner::of_hold(&network, address)),
            _ => None,
        };
        let Entry { key, value, mod_revision, lease, .. } = entry;
        Self {
            mended: kind.name().to_owned(),
            key: Stored::new(key),
            value: Stored::new(value),
            mod_revision: *mod_revision,
            lease: *lease,
            owner,
        }
    }

    fn entry(&self) -> Result<Entry, String> {
        Ok(Entry {
            key: self.key.bytes()?,
            value: self.value.bytes()?,
            create_revision: 0,
            mod_revision: self.mod_revision,
            lease: self.lease,
        })
    }
}

impl Stored {
    fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64 { base64: BASE64.encode(bytes) },
        }
    }

    fn bytes(&self) -> Result<Bytes, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64 { base64 } => BASE64.decode(base64).map_err(|e| e.to_string()),
        }
    }
}

/// One line of a file.
#[must_use]
pub fn line(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("it has only string keys") + "\n"
}

/// All groups of a file, meta last: the others rely on meta as it is. A last line without an end was not written whole,
/// so the mend that it was for has not begun.
///
/// # Errors
/// [`BadFile`]
pub fn groups(text: &str, keys: &Keys, store: Option<&str>) -> Result<Vec<KeptGroup>, BadFile> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = (1..).zip(whole.lines());
    let (_, first) = lines.next().unwrap_or((1, text));
    let heading: Heading = serde_json::from_str(first).map_err(|e| BadFile::NoHeading(e.to_string()))?;
    heading.judge(keys, store)?;
    let mut of_owners: BTreeMap<Owner, BTreeMap<Bytes, Entry>> = BTreeMap::new();
    let mut of_none: BTreeMap<Bytes, Entry> = BTreeMap::new();
    for (line, text) in lines {
        let bad = |why| BadFile::Line { line, why };
        let kept: KeptEntry = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        let entry = kept.entry().map_err(bad)?;
        let group = match kept.owner {
            Some(owner) => of_owners.entry(owner).or_default(),
            None => &mut of_none,
        };
        group.insert(entry.key.clone(), entry);
    }
    let of_owner = |(owner, entries): (Owner, BTreeMap<Bytes, Entry>)| KeptGroup {
        owner: Some(owner),
        entries: entries.into_values().collect(),
    };
    let mut groups: Vec<KeptGroup> = of_owners.into_iter().map(of_owner).collect();
    groups.extend(of_none.into_values().map(|entry| KeptGroup { owner: None, entries: vec![entry] }));
    groups.sort_by_key(|group| group.entries.iter().any(|entry| entry.key == keys.meta()));
    Ok(groups)
}

fn prefix(keys: &Keys) -> String {
    String::from_utf8_lossy(&keys.root()).into_owned()
}

fn is_zero(lease: &i64) -> bool {
    *lease == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{clean, keys, owner};

    fn file() -> String {
        let kept = |entry: &Entry| line(&KeptEntry::new(&keys(), Kind::UndecodableOwner, entry));
        let lines: String = clean().iter().map(kept).collect();
        line(&Heading::new(&keys(), Some("0f"), "2026-01-02T03:04:05Z")) + &lines
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_by_owners_and_meta_last() {
        let groups = groups(&file(), &keys(), Some("0f")).expect("it decodes");
        assert_eq!(groups[0].owner, Some(owner()));
        assert_eq!(groups[0].entries.len(), 4, "a record, two reservations and an index");
        assert_eq!(groups.last().expect("groups").entries[0].key, keys().meta());
        let mut read: Vec<Entry> = groups.into_iter().flat_map(|group| group.entries).collect();
        let mut expected = clean();
        expected.iter_mut().for_each(|entry| entry.create_revision = 0);
        [&mut read, &mut expected].into_iter().for_each(|all| all.sort_by(|a, b| a.key.cmp(&b.key)));
        assert_eq!(read, expected);
    }

    #[test]
    fn only_a_whole_file_of_this_store_is_used() {
        let whole = file();
        let read = |text: &str, store| groups(text, &keys(), store).map(|groups| groups.len());
        let all = read(&whole, Some("0f")).expect("it decodes");
        assert_eq!(read(&whole, None), Ok(all), "a store without meta");
        assert_eq!(read(&(whole.clone() + "{\"mended"), Some("0f")), Ok(all), "a line that was cut off");
        let other = BadFile::OtherStore { found: "0f".into(), asked: "0e".into() };
        assert_eq!(read(&whole, Some("0e")), Err(other));
        assert_eq!(read(&whole.replacen(":1", ":2", 1), Some("0f")), Err(BadFile::Newer(2)));
        assert!(matches!(read(&(whole.clone() + "{}\n"), None), Err(BadFile::Line { line: 13, .. })));
        assert!(matches!(groups(&whole, &Keys::new("/m/"), None), Err(BadFile::OtherPrefix { .. })));
        for other in ["", "{}", "{}\n", "pool: a\n"] {
            assert!(matches!(read(other, None), Err(BadFile::NoHeading(_))), "{other:?}");
        }
    }
}

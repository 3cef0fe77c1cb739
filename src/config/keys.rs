//! The keys of `ipam`: which are known, to which form they belong, and what to say of others.

use crate::cni::{Error, Section};

/// Keys that only whereabouts' form has.
pub(super) const WHEREABOUTS: [&str; 6] =
    ["range", "range_start", "range_end", "exclude", "ipRanges", "enable_overlapping_ranges"];

/// Keys that only host-local's form has.
pub(super) const HOST_LOCAL: [&str; 5] = ["subnet", "rangeStart", "rangeEnd", "ranges", "resolvConf"];

/// Keys of one of whereabouts' `ipRanges`.
pub(super) const WHEREABOUTS_ENTRY: [&str; 4] = ["range", "range_start", "range_end", "exclude"];

/// Keys of one of host-local's ranges.
pub(super) const HOST_LOCAL_ENTRY: [&str; 4] = ["subnet", "rangeStart", "rangeEnd", "gateway"];

/// Keys that every form may have.
const COMMON: [&str; 10] = [
    "type",
    "gateway",
    "routes",
    "dns",
    "addresses",
    "network_name",
    "order",
    "configuration_path",
    "log_file",
    "log_level",
];

/// Keys of other programs that mean nothing here.
const IGNORED: [&str; 10] = [
    "kubernetes",
    "leader_lease_duration",
    "leader_renew_deadline",
    "leader_retry_period",
    "node_slice_size",
    "sleep_for_race",
    "reconciler_cron_expression",
    "datastore",
    "dataDir",
    "fast_ipam",
];

/// Keys that say which etcd is meant, and who asks. Those after the first belong inside of it;
/// beside it they mean nothing, but with a host file they are refused all the same.
const STORE: [&str; 6] = ["etcd", "ca_file", "cert_file", "key_file", "server_name", "password_file"];

/// The prefix of whereabouts' names for the same.
const STORE_PREFIX: &str = "etcd_";

/// How many unknown keys are named before the rest is left out.
const UNKNOWN_NAMED_MAX: usize = 16;

/// The longest key for which a similar known one is looked for, in bytes.
const SIMILAR_MAX: usize = 64;

/// Whether a key of `ipam` says something about the store.
pub(super) fn is_store_key(key: &str) -> bool {
    is_one_of(&STORE, key) || has_store_prefix(key)
}

/// The error for keys of two forms together.
pub(super) fn two_forms(key: &str, form: &str, other: &str, other_form: &str) -> Error {
    Error::invalid_config(format!(
        "`{key}` ({form}'s form) and `{other}` ({other_form}'s form) do not go together"
    ))
    .with_details("write all of `ipam` in one form")
}

/// One line for each key of `ipam` that has no effect.
pub(super) fn notes(ipam: &Section<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for key in IGNORED.into_iter().filter(|key| ipam.get(key).is_some()) {
        notes.push(format!("key `{}` is ignored: it has no meaning for metes", ipam.at(key)));
    }
    for key in STORE[1..].iter().filter(|key| ipam.get(key).is_some()) {
        notes.push(format!("key `{}` is ignored: it belongs into `{}`", ipam.at(key), ipam.at("etcd")));
    }
    let known = [&WHEREABOUTS[..], &HOST_LOCAL, &COMMON, &STORE[..1]].concat();
    notes.extend(unknown(ipam, &known, |key| is_one_of(&IGNORED, key) || is_store_key(key)));
    notes
}

/// One line for each key of a section that is not in `known`, with the nearest that is.
pub(super) fn unknown(section: &Section<'_>, known: &[&str], accepted: impl Fn(&str) -> bool) -> Vec<String> {
    let keys = section.pairs().iter().map(|(key, _)| key.as_str());
    let mut unknown: Vec<_> = keys.filter(|key| !is_one_of(known, key) && !accepted(key)).collect();
    unknown.dedup();
    unknown.into_iter().take(UNKNOWN_NAMED_MAX).map(|key| note_unknown(section, key, known)).collect()
}

fn note_unknown(section: &Section<'_>, key: &str, known: &[&str]) -> String {
    let shown: String = key.chars().take(SIMILAR_MAX).collect();
    match nearest(key, known) {
        Some(near) => format!("unknown key `{}` (nearest known key `{near}`)", section.at(&shown)),
        None => format!("unknown key `{}`", section.at(&shown)),
    }
}

fn is_one_of(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|k| k.eq_ignore_ascii_case(key))
}

fn has_store_prefix(key: &str) -> bool {
    key.get(..STORE_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(STORE_PREFIX))
}

/// The known key that takes the fewest edits, unless it has nothing to do with what was written.
fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |key: &str| key.to_ascii_lowercase().replace('_', "");
    let written = plain(key);
    if written.len() > SIMILAR_MAX {
        return None;
    }
    let (edits, near) = known.iter().map(|k| (edits(&written, &plain(k)), *k)).min_by_key(|(n, _)| *n)?;
    (edits * 2 <= near.len()).then_some(near)
}

/// The Levenshtein distance in bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Json;
    use crate::cni::section::Shows;

    fn notes_of(text: &str) -> Vec<String> {
        let json = Json::parse(text.as_bytes()).expect("valid JSON");
        notes(&Section::new("ipam", json.pairs().expect("an object"), Shows::Values))
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        let table = [
            ("gatway", "unknown key `ipam.gatway` (nearest known key `gateway`)"),
            ("excludes", "unknown key `ipam.excludes` (nearest known key `exclude`)"),
            ("networkName", "unknown key `ipam.networkName` (nearest known key `network_name`)"),
            ("zzzzzzzzzzzz", "unknown key `ipam.zzzzzzzzzzzz`"),
            ("key_file", "key `ipam.key_file` is ignored: it belongs into `ipam.etcd`"),
        ];
        for (key, expected) in table {
            assert_eq!(notes_of(&format!(r#"{{"{key}":1}}"#)), [expected]);
        }
    }

    #[test]
    fn known_keys_need_no_note_but_ignored_ones_do() {
        assert!(
            notes_of(r#"{"type":"metes","RANGE":"x","Gateway":"","etcd_host":"x","etcd":{}}"#).is_empty()
        );
        let notes = notes_of(r#"{"kubernetes":{},"datadir":"/x","leader_lease_duration":1}"#);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("key `ipam.kubernetes` is ignored"));
    }

    #[test]
    fn the_number_of_notes_is_bounded() {
        let keys: Vec<_> = (0..500).map(|i| format!("\"{}{i}\":1", "k".repeat(200))).collect();
        assert_eq!(notes_of(&format!("{{{}}}", keys.join(","))).len(), UNKNOWN_NAMED_MAX);
    }

    #[test]
    fn store_keys() {
        for key in ["etcd", "ETCD_host", "etcd_anything", "key_file", "password_file"] {
            assert!(is_store_key(key), "{key}");
        }
        for key in ["etc", "etcd-host", "range", "ä"] {
            assert!(!is_store_key(key), "{key}");
        }
    }
}

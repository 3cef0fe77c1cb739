//! The keys of a configuration: the known ones and their forms, those that make it ambiguous if they are misspelt, and
//! the remarks about all others.

use std::collections::{HashMap, HashSet};

use super::sections::Sections;
use crate::cni::{Error, Section};
use metes_core::pool::PoolName;

/// Keys that only whereabouts' form has.
pub(super) const WHEREABOUTS: [&str; 7] = [
    "range",
    "range_start",
    "range_end",
    "exclude",
    "pick_addresses",
    "ipRanges",
    "enable_overlapping_ranges",
];

/// Keys that only host-local's form has.
pub(super) const HOST_LOCAL: [&str; 5] = ["subnet", "rangeStart", "rangeEnd", "ranges", "resolvConf"];

/// Keys that only the form of pools has.
pub(super) const POOLS: [&str; 2] = ["pool", "pools"];

/// Keys of one of whereabouts' `ipRanges`.
pub(super) const WHEREABOUTS_ENTRY: [&str; 5] =
    ["range", "range_start", "range_end", "exclude", "pick_addresses"];

/// Keys of one of host-local's ranges.
pub(super) const HOST_LOCAL_ENTRY: [&str; 4] = ["subnet", "rangeStart", "rangeEnd", "gateway"];

/// Keys that every form may have.
const COMMON: [&str; 14] = [
    "type",
    "cooldown",
    "cooldown_when_full",
    "sticky",
    "keep",
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

/// The keys among them that say where the host file and the log are. Their values are texts.
pub(super) const SETTINGS: [&str; 3] = ["configuration_path", "log_file", "log_level"];

/// The keys among them that decide which addresses may be given.
const DECIDING_COMMON: [&str; 9] = [
    "gateway",
    "routes",
    "addresses",
    "network_name",
    "order",
    "cooldown",
    "cooldown_when_full",
    "sticky",
    "keep",
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

/// Keys that say which etcd is meant, and who asks. All but the first belong inside of that one. Beside it they mean
/// nothing, but next to a host file they are refused there too.
const STORE: [&str; 6] = ["etcd", "ca_file", "cert_file", "key_file", "server_name", "password_file"];

/// All of these: the keys of `ipam` that have a meaning, here or for another program.
const KNOWN: [&[&str]; 6] = [&WHEREABOUTS, &HOST_LOCAL, &POOLS, &COMMON, &IGNORED, &STORE];

/// The prefix of whereabouts' names for the keys of the store.
const STORE_PREFIX: &str = "etcd_";

/// Keys of the section `etcd`, of the host file too.
const ETCD_KEYS: [&str; 8] =
    ["endpoints", "prefix", "ca_file", "cert_file", "key_file", "server_name", "username", "password_file"];

/// The keys of one kind of object.
pub(super) struct Level<'a> {
    /// The keys that are read.
    pub(super) known: &'a [&'a str],
    /// The keys among them that decide which addresses may be given. If one of them is misspelt, other addresses would
    /// be given.
    pub(super) deciding: &'a [&'a str],
}

const WHEREABOUTS_RANGE: Level<'_> = Level { known: &WHEREABOUTS_ENTRY, deciding: &WHEREABOUTS_ENTRY };
const HOST_LOCAL_RANGE: Level<'_> = Level { known: &HOST_LOCAL_ENTRY, deciding: &HOST_LOCAL_ENTRY };
const ADDRESS: Level<'_> = Level { known: &["address", "gateway"], deciding: &["address", "gateway"] };
const ROUTE: Level<'_> =
    Level { known: &["dst", "gw", "mtu", "advmss", "priority", "table", "scope"], deciding: &["gw"] };
const DNS: Level<'_> = Level { known: &["nameservers", "domain", "search", "options"], deciding: &[] };
pub(super) const ETCD: Level<'_> = Level { known: &ETCD_KEYS, deciding: &["endpoints", "prefix"] };
const DOCUMENT: Level<'_> = Level { known: &["ipam", "args", "runtimeConfig"], deciding: &[] };
const RUNTIME: Level<'_> = Level { known: &["ips", "ipRanges"], deciding: &["ips", "ipRanges"] };
const NO_LEVEL: Level<'_> = Level { known: &[], deciding: &[] };
// Users who start pods write there for all plugins of a network.
const ARGS: Level<'_> = Level { known: &["cni"], deciding: &[] };
const ARGS_CNI: Level<'_> = Level { known: &["ips"], deciding: &[] };

/// The most keys that are named because they are unknown or given twice.
const NAMED_MAX: usize = 16;

/// The longest key for which a similar known one is looked for, in bytes.
const SIMILAR_MAX: usize = 64;

/// An unknown key that is at most so many edits from a deciding one is taken for that one, misspelt.
pub const SLIP_EDITS: usize = 2;

/// Keys of other programs, each with the word for it here.
const SYNONYMS: [(&str, &str); 4] =
    [("gw", "gateway"), ("gateway", "gw"), ("via", "gw"), ("conf_path", "configuration_path")];

/// A shorter key is not sought inside of another one.
const CONTAINED_LEAST: usize = 4;

/// Other words for keys that decide. They are no slips of the pen, and mean the same.
const OTHER_WORDS: [(&str, &str); 4] = [
    ("network", "network_name"),
    ("cluster_name", "cluster"),
    ("node", "node_name"),
    ("resolvConf", "resolv_conf"),
];

/// True if a key of `ipam` says something about the store.
pub(super) fn is_store_key(key: &str) -> bool {
    is_one_of(&STORE, key) || has_store_prefix(key)
}

/// True if a key of the host file names the records of this node in the store.
fn is_name(key: &str) -> bool {
    is_one_of(&["cluster", "node_name"], key)
}

pub(super) fn two_forms(key: &str, form: &str, other: &str, other_form: &str) -> Error {
    Error::invalid_config(format!(
        "`{key}` (the form of {form}) and `{other}` (the form of {other_form}) cannot be combined"
    ))
    .with_details("write all of `ipam` in one form")
}

/// The keys of a network configuration, at every level that is read.
pub(super) fn judge(sections: &Sections<'_>) -> Findings {
    let mut found = Findings::default();
    found.shared(&sections.document, &DOCUMENT);
    found.ipam(&sections.ipam);
    if let Some(runtime) = &sections.runtime {
        found.shared(runtime, &RUNTIME);
        found.ranges(runtime, "ipRanges");
    }
    if let Some(args) = &sections.args {
        found.shared(args, &ARGS);
    }
    if let Some(args) = &sections.args_cni {
        found.shared(args, &ARGS_CNI);
    }
    found
}

/// The findings about keys.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first reason why the addresses that are meant are unclear.
    pub(super) refused: Option<String>,
    /// True if one of the unclear keys says where the store is, or names this node's records there. It is for host
    /// files.
    pub(super) is_store_unclear: bool,
    /// One line for each key that has no effect, and for each further reason.
    pub(super) notes: Vec<String>,
    /// The number of keys named so far that are unknown or given twice.
    named: usize,
}

impl Findings {
    fn ipam(&mut self, ipam: &Section<'_>) {
        for key in IGNORED.into_iter().filter(|key| ipam.get(key).is_some()) {
            self.notes.push(format!("key `{}` is ignored: it has no meaning for metes", ipam.at(key)));
        }
        for key in STORE[1..].iter().filter(|key| ipam.get(key).is_some()) {
            self.notes.push(format!(
                "key `{}` is ignored: it belongs in `{}`",
                ipam.at(key),
                ipam.at("etcd")
            ));
        }
        let mut known = KNOWN.concat();
        known.extend(ipam.pairs().iter().map(|(key, _)| key.as_str()).filter(|key| has_store_prefix(key)));
        let deciding = [&WHEREABOUTS[..], &HOST_LOCAL[..4], &POOLS, &DECIDING_COMMON].concat();
        self.own(ipam, &Level { known: &known, deciding: &deciding });
        let entries = |key| ipam.sections(key).unwrap_or_default();
        entries("ipRanges").iter().for_each(|range| self.own(range, &WHEREABOUTS_RANGE));
        self.ranges(ipam, "ranges");
        entries("addresses").iter().for_each(|address| self.own(address, &ADDRESS));
        entries("routes").iter().for_each(|route| self.own(route, &ROUTE));
        for (key, level) in [("dns", DNS), ("etcd", ETCD)] {
            if let Ok(Some(section)) = ipam.section(key) {
                self.own(&section, &level);
            }
        }
    }

    /// host-local's ranges, in their sets.
    fn ranges(&mut self, section: &Section<'_>, key: &str) {
        for (i, set) in section.list(key).unwrap_or_default().iter().enumerate() {
            let ranges = section.sections_in(&format!("{key}[{i}]"), set.items().unwrap_or_default());
            ranges.unwrap_or_default().iter().for_each(|range| self.own(range, &HOST_LOCAL_RANGE));
        }
    }

    /// Judges an object of metes' own. An unknown key in it has no effect.
    pub(super) fn own(&mut self, section: &Section<'_>, level: &Level<'_>) {
        self.own_beside(section, level, ("", &NO_LEVEL));
    }

    /// The same, where each key of another object (its path and its keys) that stands here was meant for that one.
    pub(super) fn own_beside(&mut self, section: &Section<'_>, level: &Level<'_>, other: (&str, &Level<'_>)) {
        self.given_once(section, |key| is_one_of(level.known, key) || is_known(key));
        let (other_path, other) = other;
        for key in unknown(section, level) {
            if let Some(meant) = misplaced(key, other) {
                let meant =
                    if other_path.is_empty() { meant.to_owned() } else { format!("{other_path}.{meant}") };
                self.refuse(&meant, wrong_place(section, key, &meant));
            } else if let Some(meant) = slip_of(key, level) {
                self.refuse(&section.at(meant), unknown_key(section, key, Some(meant)));
            } else {
                self.note(|| unknown_key(section, key, meant_by(key, level.known)));
            }
        }
    }

    /// Judges an object in which other programs have keys of their own.
    fn shared(&mut self, section: &Section<'_>, level: &Level<'_>) {
        self.given_once(section, |key| is_one_of(level.known, key));
        for key in unknown(section, level) {
            if let Some(meant) = slip_of(key, level) {
                self.refuse(&section.at(meant), unknown_key(section, key, Some(meant)));
            }
        }
    }

    /// Refuses a known key that stands twice, in any case. The last one would count, and a program that sorts keys may
    /// have put either of them last.
    fn given_once(&mut self, section: &Section<'_>, is_known: impl Fn(&str) -> bool) {
        let mut seen = HashMap::new();
        for (key, _) in section.pairs().iter().filter(|(key, _)| is_known(key)) {
            if let Some(first) = seen.insert(key.to_ascii_lowercase(), key) {
                let (first, again) = (section.at(first), section.at(key));
                self.refuse(
                    &first,
                    if first == again {
                        format!("`{first}` is given twice")
                    } else {
                        format!("`{first}` and `{again}` are one key, which is given twice")
                    },
                );
            }
        }
    }

    /// Refuses a name that stands twice, where each key is a name that keeps its case.
    pub(super) fn names_once(&mut self, section: &Section<'_>) {
        let mut seen = HashSet::new();
        for (name, _) in section.pairs() {
            if !seen.insert(name) {
                let shown: String = name.chars().take(SIMILAR_MAX).collect();
                let name = section.at(&shown);
                self.refuse(&name, format!("`{name}` is given twice"));
            }
        }
    }

    /// `key` is the known one that is unclear, with those around it.
    fn refuse(&mut self, key: &str, why: String) {
        let is_of_store = |key: &str| is_store_key(key) || is_name(key);
        self.is_store_unclear |= key.split('.').next().is_some_and(is_of_store);
        match self.refused {
            None => self.refused = Some(why),
            Some(_) => self.note(|| why),
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.named < NAMED_MAX {
            self.named += 1;
            self.notes.push(text());
        }
    }
}

fn unknown<'a>(section: &Section<'a>, level: &Level<'_>) -> impl Iterator<Item = &'a str> {
    section.pairs().iter().map(|(key, _)| key.as_str()).filter(|key| !is_one_of(level.known, key))
}

fn unknown_key(section: &Section<'_>, key: &str, near: Option<&str>) -> String {
    let shown: String = key.chars().take(SIMILAR_MAX).collect();
    match near {
        Some(near) => format!("unknown key `{}`; did you mean `{near}`?", section.at(&shown)),
        None => format!("unknown key `{}`", section.at(&shown)),
    }
}

/// Says that a key has no effect where it stands, and where it would have one.
fn wrong_place(section: &Section<'_>, key: &str, meant: &str) -> String {
    let key = section.at(key);
    let place = |path: &str| match path.rsplit_once('.') {
        Some((around, _)) => format!("in `{around}`"),
        None => "at the top level".to_owned(),
    };
    format!("`{key}` stands {} and has no effect there: `{meant}` belongs {}", place(&key), place(meant))
}

/// The key of another level that stands at this one. If it decides, it may be misspelt, too.
fn misplaced<'a>(key: &str, other: &Level<'a>) -> Option<&'a str> {
    let known = other.known.iter().copied().find(|known| known.eq_ignore_ascii_case(key));
    known.or_else(|| slip_of(key, other))
}

/// The deciding key that was most likely meant. A key that any form or program knows is no slip of the pen.
fn slip_of<'a>(key: &str, level: &Level<'a>) -> Option<&'a str> {
    let is_meant =
        |own: &&str| OTHER_WORDS.iter().any(|(other, of)| of == own && nearest(key, &[other], 0).is_some());
    let meant = level.deciding.iter().copied().find(is_meant);
    meant.or_else(|| nearest(key, level.deciding, SLIP_EDITS).filter(|_| !is_known(key)))
}

/// True if a key has a meaning at some level of `ipam`, or for another program.
fn is_known(key: &str) -> bool {
    KNOWN.iter().any(|keys| is_one_of(keys, key))
}

fn is_one_of(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|k| k.eq_ignore_ascii_case(key))
}

fn has_store_prefix(key: &str) -> bool {
    key.get(..STORE_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(STORE_PREFIX))
}

/// The known key that is most like an unknown one, or means the same.
#[must_use]
pub fn meant_by<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let is_meant =
        |meant: &str| SYNONYMS.iter().any(|(other, own)| key.eq_ignore_ascii_case(other) && *own == meant);
    let synonym = known.iter().copied().find(|meant| is_meant(meant));
    synonym.or_else(|| contained_in(key, known)).or_else(|| nearest(key, known, SIMILAR_MAX))
}

/// The only known key that has this one in it, or is in it; case, `_` and `-` do not count.
fn contained_in<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let key = plain(key);
    let is_in = |one: &str, other: &str| one.len() >= CONTAINED_LEAST && other.contains(one);
    let mut contained = known.iter().filter(|near| {
        let near = plain(near);
        is_in(&near, &key) || is_in(&key, &near)
    });
    contained.next().copied().filter(|_| contained.next().is_none())
}

/// A key without what people often write differently.
fn plain(key: &str) -> String {
    key.to_ascii_lowercase().replace(['_', '-'], "")
}

/// The known key that takes the fewest edits, at most `most` and at most a third of the shorter one. Case, `_` and `-`
/// count only between keys that take as many edits.
#[must_use]
pub fn nearest<'a>(key: &str, known: &[&'a str], most: usize) -> Option<&'a str> {
    if key.len() > SIMILAR_MAX {
        return None;
    }
    let (lower, plain_key) = (key.to_ascii_lowercase(), plain(key));
    let distance = |near: &'a str| {
        let (near_lower, near_plain) = (near.to_ascii_lowercase(), plain(near));
        let third = plain_key.len().min(near_plain.len()) / 3;
        let most = most.min(third.max(1));
        let can_be = plain_key.len().abs_diff(near_plain.len()) <= most;
        let found = if can_be { edits(&plain_key, &near_plain) } else { usize::MAX };
        (found <= most).then(|| (found, edits(&lower, &near_lower), near))
    };
    known
        .iter()
        .copied()
        .filter_map(distance)
        .min_by_key(|(plain, lower, _)| (*plain, *lower))
        .map(|(.., near)| near)
}

/// A question for the known name that contains this one, or else is nearest, to stand behind a sentence; nothing if
/// there is none.
#[must_use]
pub fn did_you_mean(name: &str, known: &[&str], most: usize) -> String {
    let near = contained_in(name, known).or_else(|| nearest(name, known, most));
    near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

/// The most edits by which the name of a pool may differ from a similar one.
const SIMILAR_POOL_EDITS: usize = 2;

/// Says that there is no pool of this name. Of the known pools, only a similar one is named.
#[must_use]
pub fn no_such_pool<'a>(name: &PoolName, known: impl IntoIterator<Item = &'a PoolName>) -> String {
    let names: Vec<&str> = known.into_iter().map(PoolName::as_str).collect();
    let similar = did_you_mean(name.as_str(), &names, SIMILAR_POOL_EDITS);
    format!("there is no pool {:?}{similar}", name.as_str())
}

/// How many bytes must be added, removed or replaced, or change places with the next one (the optimal string alignment
/// distance).
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            next[j] = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Json;
    use crate::cni::section::Shows;

    fn found_in(text: &str) -> Findings {
        let json = Json::parse(text.as_bytes()).expect("valid JSON");
        let mut found = Findings::default();
        found.ipam(&Section::new("ipam", json.pairs().expect("an object"), Shows::Values));
        found
    }

    fn notes_of(text: &str) -> Vec<String> {
        let found = found_in(text);
        assert_eq!(found.refused, None, "{text}");
        found.notes
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        let table = [
            (r#"{"log_flie":1}"#, "unknown key `ipam.log_flie`; did you mean `log_file`?"),
            (r#"{"conf_path":1}"#, "unknown key `ipam.conf_path`; did you mean `configuration_path`?"),
            (r#"{"zzzzzzzzzzzz":1}"#, "unknown key `ipam.zzzzzzzzzzzz`"),
            (r#"{"exclude_gateway":1}"#, "unknown key `ipam.exclude_gateway`"),
            (r#"{"key_file":1}"#, "key `ipam.key_file` is ignored: it belongs in `ipam.etcd`"),
            (r#"{"gw":1}"#, "unknown key `ipam.gw`; did you mean `gateway`?"),
            (r#"{"routes":[{"via":1}]}"#, "unknown key `ipam.routes[0].via`; did you mean `gw`?"),
            (r#"{"routes":[{"Gateway":1}]}"#, "unknown key `ipam.routes[0].Gateway`; did you mean `gw`?"),
            (r#"{"routes":[{"hop":1}]}"#, "unknown key `ipam.routes[0].hop`"),
            (r#"{"dns":{"nameserver":1}}"#, "unknown key `ipam.dns.nameserver`; did you mean `nameservers`?"),
            (
                r#"{"etcd":{"username_file":1}}"#,
                "unknown key `ipam.etcd.username_file`; did you mean `username`?",
            ),
            (r#"{"addresses":[{"netmask":1}]}"#, "unknown key `ipam.addresses[0].netmask`"),
            // Nothing is near, and neither half is the whole.
            (r#"{"foo":1}"#, "unknown key `ipam.foo`"),
            (r#"{"cluster_name":1}"#, "unknown key `ipam.cluster_name`"),
            (r#"{"poolName":1}"#, "unknown key `ipam.poolName`; did you mean `pool`?"),
        ];
        for (ipam, expected) in table {
            assert_eq!(notes_of(ipam), [expected], "{ipam}");
        }
    }

    #[test]
    fn a_slip_of_a_key_that_decides_is_refused() {
        let table = [
            (r#"{"excludes":1}"#, "`ipam.excludes`; did you mean `exclude`?"),
            (r#"{"Excldue":1}"#, "`ipam.Excldue`; did you mean `exclude`?"),
            (r#"{"rnage":1}"#, "`ipam.rnage`; did you mean `range`?"),
            (r#"{"range ":1}"#, "`ipam.range `; did you mean `range`?"),
            (r#"{"range_strat":1}"#, "`ipam.range_strat`; did you mean `range_start`?"),
            (r#"{"rangeStrat":1}"#, "`ipam.rangeStrat`; did you mean `rangeStart`?"),
            (r#"{"range-end":1}"#, "`ipam.range-end`; did you mean `range_end`?"),
            (r#"{"ip_range":1}"#, "`ipam.ip_range`; did you mean `ipRanges`?"),
            (r#"{"networkName":1}"#, "`ipam.networkName`; did you mean `network_name`?"),
            (r#"{"network":1}"#, "`ipam.network`; did you mean `network_name`?"),
            (r#"{"gatway":1}"#, "`ipam.gatway`; did you mean `gateway`?"),
            (r#"{"subnets":1}"#, "`ipam.subnets`; did you mean `subnet`?"),
            (r#"{"route":1}"#, "`ipam.route`; did you mean `routes`?"),
            (r#"{"ordr":1}"#, "`ipam.ordr`; did you mean `order`?"),
            (r#"{"pick_adresses":1}"#, "`ipam.pick_adresses`; did you mean `pick_addresses`?"),
            (
                r#"{"overlapping_ranges":1,"enable_overlapping_range":1}"#,
                "did you mean `enable_overlapping_ranges`?",
            ),
            (r#"{"ipRanges":[{},{"exlude":1}]}"#, "`ipam.ipRanges[1].exlude`; did you mean `exclude`?"),
            (
                r#"{"ranges":[[{}],[{},{"rangestat":1}]]}"#,
                "`ipam.ranges[1][1].rangestat`; did you mean `rangeStart`?",
            ),
            (r#"{"addresses":[{"gateways":1}]}"#, "`ipam.addresses[0].gateways`; did you mean `gateway`?"),
            (r#"{"routes":[{"gws":1}]}"#, "`ipam.routes[0].gws`; did you mean `gw`?"),
            (r#"{"etcd":{"prefx":1}}"#, "`ipam.etcd.prefx`; did you mean `prefix`?"),
        ];
        for (ipam, expected) in table {
            let refused = found_in(ipam).refused.unwrap_or_else(|| panic!("accepted: {ipam}"));
            assert!(refused.starts_with("unknown key ") && refused.ends_with(expected), "{ipam}: {refused}");
        }
    }

    #[test]
    fn what_is_known_somewhere_is_no_slip() {
        let known = [&WHEREABOUTS[..], &HOST_LOCAL, &COMMON, &IGNORED, &STORE, &WHEREABOUTS_ENTRY].concat();
        for key in
            known.iter().chain(&["etcd_host", "omit_ranges", "l3", "pool", "name", "mtu", "via", "tags"])
        {
            for key in [(*key).to_owned(), key.to_ascii_uppercase()] {
                let nested = [
                    format!(r#"{{"{key}":null}}"#),
                    format!(r#"{{"ipRanges":[{{"{key}":1}}]}}"#),
                    format!(r#"{{"ranges":[[{{"{key}":1}}]]}}"#),
                    format!(r#"{{"routes":[{{"{key}":1}}]}}"#),
                    format!(r#"{{"addresses":[{{"{key}":1}}]}}"#),
                    format!(r#"{{"dns":{{"{key}":1}}}}"#),
                    format!(r#"{{"etcd":{{"{key}":1}}}}"#),
                ];
                for ipam in nested {
                    assert_eq!(found_in(&ipam).refused, None, "{ipam}");
                }
            }
        }
    }

    #[test]
    fn a_key_is_given_once() {
        let table = [
            (r#"{"range":1,"Range":2}"#, "`ipam.range` and `ipam.Range` are one key, which is given twice"),
            (r#"{"exclude":null,"exclude":[]}"#, "`ipam.exclude` is given twice"),
            (
                r#"{"ETCD_host":1,"etcd_host":1}"#,
                "`ipam.ETCD_host` and `ipam.etcd_host` are one key, which is given twice",
            ),
            (
                r#"{"ranges":[[{"subnet":1,"SUBNET":1}]]}"#,
                "`ipam.ranges[0][0].subnet` and `ipam.ranges[0][0].SUBNET` are one key, which is given twice",
            ),
        ];
        for (ipam, expected) in table {
            assert_eq!(found_in(ipam).refused.as_deref(), Some(expected));
        }
        assert_eq!(notes_of(r#"{"x":1,"X":2}"#).len(), 2, "what means nothing may stand twice");
    }

    #[test]
    fn further_reasons_are_noted() {
        let found = found_in(r#"{"excludes":1,"rnage":1,"zz":1}"#);
        assert!(found.refused.is_some_and(|why| why.contains("excludes")));
        assert_eq!(found.notes, ["unknown key `ipam.rnage`; did you mean `range`?", "unknown key `ipam.zz`"]);
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
        assert_eq!(notes_of(&format!("{{{}}}", keys.join(","))).len(), NAMED_MAX);
        let ranges: Vec<_> = (0..500).map(|_| r#"{"zz":1}"#).collect();
        assert_eq!(notes_of(&format!(r#"{{"ipRanges":[{}]}}"#, ranges.join(","))).len(), NAMED_MAX);
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

//! The documents for users and the code say the same: every key stands there, every sample is accepted, and links lead
//! somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use metes_config::cni::{Code, Environment, Error, Json, Request};
use metes_config::validate::IssueId;
use metes_config::{Config, HostFile, Settings};
use metes_core::pool::choose::Order;
use serde_json::{Value, json};

use crate::read;

/// Has the tables of all keys and error codes.
const CONFIGURATION: &str = "docs/configuration.md";

/// Keys below those of `ipam`, each as a configuration that gives it a value of a wrong type: if the
/// parser reads it, the error names it.
const NESTED: [(&str, &str); 16] = [
    ("dst", r#"{"routes":[{"dst":{}}]}"#),
    ("gw", r#"{"routes":[{"dst":"10.0.0.0/8","gw":{}}]}"#),
    ("mtu", r#"{"routes":[{"dst":"10.0.0.0/8","mtu":{}}]}"#),
    ("advmss", r#"{"routes":[{"dst":"10.0.0.0/8","advmss":{}}]}"#),
    ("priority", r#"{"routes":[{"dst":"10.0.0.0/8","priority":{}}]}"#),
    ("table", r#"{"routes":[{"dst":"10.0.0.0/8","table":{}}]}"#),
    ("scope", r#"{"routes":[{"dst":"10.0.0.0/8","scope":{}}]}"#),
    ("nameservers", r#"{"dns":{"nameservers":{}}}"#),
    ("domain", r#"{"dns":{"domain":{}}}"#),
    ("search", r#"{"dns":{"search":{}}}"#),
    ("options", r#"{"dns":{"options":{}}}"#),
    ("address", r#"{"addresses":[{"address":{}}]}"#),
    ("gateway", r#"{"addresses":[{"address":"10.0.0.5/24","gateway":{}}]}"#),
    ("range", r#"{"ipRanges":[{"range":{}}]}"#),
    ("exclude", r#"{"ipRanges":[{"range":"10.0.0.0/24","exclude":{}}]}"#),
    ("subnet", r#"{"ranges":[[{"subnet":{}}]]}"#),
];

/// The fenced blocks of a language, in order.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(found) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if found == language {
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// The keys of the section `etcd`, which `ipam` and the host file may have: known inside of it alone.
const ETCD_KEYS: &str = "ETCD_KEYS";

/// The strings of those constant arrays of a source file whose name is `wanted`; each as long as it says.
fn key_lists(file: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let text = read(file);
    let production = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut keys = Vec::new();
    let parts: Vec<&str> = production.split(": [&str; ").collect();
    for pair in parts.windows(2) {
        let [before, list] = pair else { unreachable!("two at a time") };
        if !before.rsplit(' ').next().is_some_and(&wanted) {
            continue;
        }
        let (len, rest) = list.split_once(']').expect("a length");
        let (_, rest) = rest.split_once('[').expect("a list");
        let (list, _) = rest.split_once(']').expect("an end");
        let found: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(found.len().to_string(), len, "{file}: {list}");
        keys.extend(found.into_iter().map(str::to_owned));
    }
    keys
}

/// True if a key stands in a document as code: by itself, in a path, or in a list of keys.
fn is_documented(document: &str, key: &str) -> bool {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut spans = document.split('`').skip(1).step_by(2);
    spans.any(|span| span.split(|c| !in_word(c)).any(|word| word == key))
}

fn config(ipam: &Value) -> Result<Config, Error> {
    let stdin = json!({"cniVersion": "1.0.0", "name": "readme", "ipam": ipam}).to_string();
    parse(stdin.as_bytes())
}

fn parse(stdin: &[u8]) -> Result<Config, Error> {
    let environment = Environment::from_lookup(|name| {
        let value = match name {
            "CNI_COMMAND" => "ADD",
            "CNI_CONTAINERID" => "c1",
            "CNI_NETNS" => "/run/netns/one",
            "CNI_IFNAME" => "net1",
            "CNI_PATH" => "/opt/cni/bin",
            _ => return None,
        };
        Some(value.to_owned())
    });
    Config::parse(&Request::parse(&environment, stdin)?)
}

#[test]
fn the_first_screen_has_two_commands() {
    let readme = read("README.md");
    let first = readme.split("\n## ").next().unwrap_or_default();
    assert_eq!(blocks(first, ""), ["hack/demo", "hack/test"]);
    assert_eq!(first.matches("```").count(), 4);
}

#[test]
fn figures_in_readme_are_those_of_their_pages() {
    let readme = read("README.md");
    let (_, rest) = readme.split_once("\n## Why trust it\n").expect("a section with figures");
    let section = rest.split("\n## ").next().unwrap_or_default();
    let numbers = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_digit() || ".,".contains(c)));
        words.map(|word| word.trim_matches(['.', ',']).to_owned()).filter(|word| word.len() > 1).collect()
    };
    let measured = numbers(&(read("docs/testing.md") + &read("docs/performance.md")));
    let strange: Vec<String> = numbers(section).into_iter().filter(|n| !measured.contains(n)).collect();
    assert!(numbers(section).len() > 15 && strange.is_empty(), "in no page with figures: {strange:?}");
}

/// A document without its fenced blocks.
fn prose(document: &str) -> String {
    let mut in_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    };
    document.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// The documents, from the root of the repository.
fn documents() -> Vec<PathBuf> {
    let files = ["", "docs"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(support::root().join(folder)).expect(folder);
        entries.map(move |entry| Path::new(folder).join(entry.expect(folder).file_name()))
    });
    files.filter(|file| file.extension().is_some_and(|ext| ext == "md")).collect()
}

/// The anchors that may follow `#` in a link, as code hosts make them of headings.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = prose(document);
    let headings = headings.lines().filter_map(|line| line.strip_prefix('#')?.split_once(' '));
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    headings.map(|(_, heading)| heading.chars().filter_map(kept).collect()).collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let (mut links, mut broken) = (0, Vec::new());
    for file in documents() {
        let folder = file.parent().expect("a file is in a folder");
        let text = prose(&read(file.to_str().expect("UTF-8")));
        // Code may have the same brackets.
        let text: String = text.split('`').step_by(2).collect();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link)) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if path.is_empty() { file.clone() } else { folder.join(path) };
            let whole = support::root().join(path);
            let is_there = match anchor {
                "" => whole.exists(),
                anchor => fs::read_to_string(&whole).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !is_there {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(links > 100, "only {links} links are found");
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

#[test]
fn every_key_of_ipam_is_documented_and_known() {
    let configuration = read(CONFIGURATION);
    let keys = key_lists("crates/config/src/keys.rs", |name| name != ETCD_KEYS);
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        assert!(is_documented(&configuration, &key), "`{key}` is not in {CONFIGURATION}");
        // Without a value it says nothing, so the configuration stays valid whatever the key is.
        let mut ipam = json!({"type": "metes"});
        ipam[&key] = Value::Null;
        ipam["addresses"] = json!([{"address": "10.0.0.5/24"}]);
        let notes = config(&ipam).expect(&key).notes;
        assert!(!notes.iter().any(|note| note.starts_with("unknown")), "{key}: {notes:?}");
    }
}

#[test]
fn every_key_below_them_is_too() {
    let configuration = read(CONFIGURATION);
    for (key, ipam) in NESTED {
        assert!(is_documented(&configuration, key), "`{key}` is not in {CONFIGURATION}");
        let error = config(&serde_json::from_str(ipam).expect(ipam)).expect_err(ipam);
        assert!(error.msg.contains(&format!(".{key}`")), "{ipam}: {}", error.msg);
    }
}

#[test]
fn every_key_of_the_host_file_is_documented_and_known() {
    let configuration = read(CONFIGURATION);
    let mut keys = key_lists("crates/config/src/host.rs", |_| true);
    keys.extend(key_lists("crates/config/src/keys.rs", |name| name == ETCD_KEYS));
    assert!(keys.len() > 20, "{keys:?}");
    for key in keys {
        assert!(is_documented(&configuration, &key), "`{key}` is not in {CONFIGURATION}");
        let either = |text: String| {
            HostFile::parse(text.as_bytes()).and_then(Settings::from_host).expect(&key).notes.is_empty()
        };
        let outside = either(format!(r#"{{"{key}":null}}"#));
        let inside = either(format!(r#"{{"etcd":{{"{key}":null}}}}"#));
        assert!(outside || inside, "{key} is not a key of the host file");
    }
}

#[test]
fn json_that_documents_show_is_accepted() {
    let (mut configurations, mut host_files) = (0, 0);
    let shown = ["README.md", CONFIGURATION, "docs/install.md"].map(|file| blocks(&read(file), "json"));
    for text in shown.into_iter().flatten() {
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"));
        let found = accept_ipams(&value);
        configurations += found;
        if found == 0 {
            host_files += 1;
            accept_host_file(&text);
        }
    }
    for text in blocks(&read("README.md"), "yaml") {
        let (_, text) = text.split_once(": |").expect("a block scalar");
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"));
        configurations += accept_ipams(&value);
    }
    assert!(configurations >= 5 && host_files >= 2, "{configurations} and {host_files} examples");
}

/// Every object that is for metes, wherever it stands: how many there were.
fn accept_ipams(value: &Value) -> usize {
    if value["type"] == "metes" {
        let config = config(value).unwrap_or_else(|e| panic!("{e} in {value:#}"));
        assert!(config.notes.is_empty(), "{:?} in {value:#}", config.notes);
        return 1;
    }
    match value {
        Value::Array(items) => items.iter().map(accept_ipams).sum(),
        Value::Object(map) => map.values().map(accept_ipams).sum(),
        _ => 0,
    }
}

fn accept_host_file(text: &str) {
    assert!(Json::parse(text.as_bytes()).is_ok(), "{text}");
    let file = HostFile::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e} in {text}"));
    let settings = Settings::from_host(file).unwrap_or_else(|e| panic!("{e} in {text}"));
    assert!(settings.notes.is_empty(), "{:?} in {text}", settings.notes);
}

#[test]
fn every_order_is_documented() {
    let configuration = read(CONFIGURATION);
    let row = configuration.lines().find(|line| line.starts_with("| `order` |")).expect("a row for `order`");
    for name in Order::ALL.map(Order::name) {
        assert!(row.contains(&format!("`{name}`:")), "{CONFIGURATION} does not say what `{name}` does");
    }
}

#[test]
fn every_finding_of_validate_stands_in_its_page() {
    let page = read("docs/validate.md");
    for id in IssueId::ALL {
        let row = format!("\n| `{id}` | {} | ", id.severity());
        assert!(page.contains(&row), "docs/validate.md has no row for {id}");
    }
    assert_eq!(page.matches("\n| `").count(), IssueId::ALL.len(), "rows of findings that there are not");
}

#[test]
fn every_code_of_its_own_is_documented() {
    let configuration = read(CONFIGURATION);
    let codes = [
        Code::IncompatibleVersion,
        Code::Environment,
        Code::Io,
        Code::Decode,
        Code::InvalidConfig,
        Code::InvalidNetns,
        Code::TryAgain,
        Code::NotAvailable,
        Code::NoFreeAddress,
        Code::AddressNotAvailable,
        Code::StoredState,
        Code::Refused,
        Code::PermissionDenied,
        Code::Internal,
    ];
    for code in codes {
        assert!(
            configuration.contains(&format!("\n| {} | ", code.number())),
            "{code:?} is not in {CONFIGURATION}"
        );
    }
}

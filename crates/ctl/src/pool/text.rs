//! Texts of pools: YAML documents, of which JSON is a part. Pure.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use yaml_serde::Deserializer;

use crate::places::{Places, TextPlace};
use metes_config::cni::Json;
use metes_config::keys::meant_by;
use metes_core::pool::{POOL_BYTES, PoolDefinition, UncheckedPool};

/// A fault in the text of a pool, with its place.
#[derive(Debug)]
pub(crate) struct PoolTextFault {
    /// Key, reason, and what to do.
    pub(crate) what: String,
    pub(crate) place: Option<TextPlace>,
}

/// The pools in the documents of a text; `name` is the text's, for errors.
///
/// # Errors
/// A sentence that begins with `FILE:LINE:COLUMN: `, or with the file and the number of the document if the place is
/// not known. It has the key, and what to do.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<PoolDefinition>, String> {
    let read = |(at, pool): (usize, Result<PoolDefinition, PoolTextFault>)| {
        pool.map_err(|PoolTextFault { what, place }| match place {
            Some(TextPlace { line, column }) => format!("{name}:{line}:{column}: {what}"),
            None => format!("{name}, document {}: {what}", at + 1),
        })
    };
    let pools = documents(text, None).map(read).collect::<Result<Vec<_>, _>>()?;
    if pools.is_empty() {
        return Err(format!("{name} has no pool in it: write at least `pool: NAME` and `ranges`"));
    }
    Ok(pools)
}

/// The pool of each document, or of those that are meant. After one that cannot be read, others may never end.
pub(crate) fn documents<'t>(
    text: &'t str,
    meant: Option<&'t [usize]>,
) -> impl Iterator<Item = (usize, Result<PoolDefinition, PoolTextFault>)> + 't {
    let sizes = sizes(text);
    let (mut places, mut names) = (None, BTreeSet::new());
    let is_meant = move |at: &usize| meant.is_none_or(|meant| meant.contains(at));
    let end = meant.map_or(usize::MAX, |meant| meant.last().map_or(0, |last| last + 1));
    let documents = Deserializer::from_str(text).enumerate().take(end);
    documents.filter(move |(at, _)| is_meant(at)).filter_map(move |(at, document)| {
        let mut fault = |what: String, key: &str| {
            let places: &Vec<Places> = places.get_or_insert_with(|| Places::of_documents(text));
            Some((at, Err(PoolTextFault { what, place: places.get(at).and_then(|of| of.of(key)) })))
        };
        if let Some((line, bytes)) = sizes.get(at).filter(|(_, bytes)| *bytes > POOL_BYTES) {
            let what = format!("it has {bytes} bytes: a pool has at most {POOL_BYTES}; make two pools of it");
            let place = Some(TextPlace { line: *line, column: 1 });
            return Some((at, Err(PoolTextFault { what, place })));
        }
        // A document without anything in it, as after a last `---`, is no pool.
        let pool = match Option::<UncheckedPool>::deserialize(document) {
            Ok(pool) => pool?,
            Err(e) => {
                let fault = json_fault(text, at).or_else(|| yaml_fault(text, at));
                let (what, place) = fault.unwrap_or_else(|| TextPlace::of_error(&e));
                return Some((at, Err(PoolTextFault { what: with_meant(in_plain_words(what)), place })));
            }
        };
        match pool.checked() {
            Err(wrong) => fault(wrong.to_string(), &wrong.key),
            Ok(pool) if !names.insert(pool.pool.clone()) => {
                fault(format!("pool {} stands in the file twice: keep one of them", pool.pool), "pool")
            }
            Ok(pool) => Some((at, Ok(pool))),
        }
    })
}

/// The fault of a text that looks like JSON and is not even YAML. YAML's own error would name two places, and none of
/// JSON's reasons.
fn json_fault(text: &str, document: usize) -> Option<(String, Option<TextPlace>)> {
    let is_json = text.trim_start().strip_prefix('{').is_some_and(|keys| keys.trim_start().starts_with('"'));
    let is_yaml =
        || Deserializer::from_str(text).next().is_some_and(|one| IgnoredAny::deserialize(one).is_ok());
    if document > 0 || !is_json || is_yaml() {
        return None;
    }
    let error = Json::parse(text.as_bytes()).err()?;
    let place = TextPlace::from((error.line(), error.column()));
    let what = error.to_string();
    let what = what.strip_suffix(&format!(" at {place}")).unwrap_or(&what);
    Some((format!("it is not JSON: {what}"), Some(place)))
}

/// The fault of a document that is not YAML. A key is judged as soon as it was read, so that error may come first.
fn yaml_fault(text: &str, document: usize) -> Option<(String, Option<TextPlace>)> {
    let error = IgnoredAny::deserialize(Deserializer::from_str(text).nth(document)?).err()?;
    let (what, place) = TextPlace::of_error(&error);
    Some((format!("it is not YAML: {what}"), place))
}

/// An error of serde without the words of programmers.
fn in_plain_words(what: String) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("expected a sequence", "expected a list"),
        ("invalid type: sequence", "invalid type: a list"),
        ("invalid type: map", "invalid type: an object"),
        ("invalid type: unit value", "invalid type: nothing"),
        ("floating point", "number"),
        ("expected i32", "expected a whole number from -2147483648 to 2147483647"),
        (
            "found character that cannot start any token",
            "no key or value begins with this character (YAML is indented with blanks, not with tabs)",
        ),
        ("invalid IP address syntax", "it is not an IP address: expected one such as 10.0.0.1"),
    ];
    WORDS.iter().fold(what, |what, (word, plain)| what.replace(word, plain))
}

/// An unknown field with the one that is most likely meant: the message names all that there are.
fn with_meant(what: String) -> String {
    // Nobody means to write a status.
    let mut names = what.split('`').skip(1).step_by(2).filter(|name| *name != "status");
    match what.contains("unknown field `").then(|| names.next()).flatten() {
        None => what,
        Some(unknown) => match meant_by(unknown, &names.collect::<Vec<_>>()) {
            None => what,
            Some(meant) => {
                let unknown = format!("unknown field `{unknown}`");
                what.replacen(&unknown, &format!("{unknown} (did you mean `{meant}`?)"), 1)
            }
        },
    }
}

/// The pools as documents that [`parse`] reads back.
pub(super) fn export<'a>(pools: impl IntoIterator<Item = &'a PoolDefinition>) -> String {
    let text = |pool| yaml_serde::to_string(pool).expect("a pool has only string keys");
    pools.into_iter().map(text).collect::<Vec<_>>().join("---\n")
}

/// The first line of each document, and how many bytes it has. A line that begins with `---` begins one wherever it
/// stands.
fn sizes(text: &str) -> Vec<(usize, usize)> {
    let mut sizes = vec![(1, 0)];
    let mut has_begun = false;
    for (at, line) in text.split_inclusive('\n').enumerate() {
        if line.starts_with("---") && std::mem::replace(&mut has_begun, true) {
            sizes.push((at + 1, 0));
        }
        has_begun |= !line.trim().is_empty() && !line.starts_with(['#', '%']);
        sizes.last_mut().expect("there is one").1 += line.len();
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
# Netops
pool: storage
network: blue
ranges:
- {range: 10.56.0.0/16, gateway: 10.56.255.254, exclude: [10.56.0.0/28]}
- {range: 10.57.0.0/20, state: draining}
order: next
routes: [{dst: 10.0.0.0/8, gw: 10.56.255.254}]
dns: {nameservers: [10.56.0.53, 'fd00::53'], domain: a.test, search: [b.test], options: [ndots:2]}
allow: {namespaces: [\"team-*\"]}
note: 'owner: netops, # 4711'
---
pool: six
ranges:
- range: fd00::/64
---
";

    #[test]
    fn what_is_exported_is_read_back() {
        let pools = parse("a.yaml", TWO).expect("two pools");
        assert_eq!(pools.iter().map(|pool| pool.pool.as_str()).collect::<Vec<_>>(), ["storage", "six"]);
        assert_eq!(parse("b.yaml", &export(&pools)).expect("two pools"), pools);
        let json = serde_json::to_string_pretty(&pools[0]).expect("JSON").replace("  ", "\t");
        assert_eq!(parse("a.json", &json).expect("JSON is YAML"), pools[..1]);
        for note in ["two\nlines", "---\n--- x", "\u{7}\u{1b}[2J", "'\"", " ", "null", "4711", "~"] {
            let pool = PoolDefinition { note: note.to_owned(), ..pools[0].clone() };
            assert_eq!(parse("a.yaml", &export([&pool])).expect(note), [pool], "{note:?}");
        }
    }

    #[test]
    fn the_example_of_the_help_is_a_pool() {
        let lines = super::super::POOL_AFTER_HELP.lines().filter_map(|line| line.strip_prefix("  "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        assert_eq!(parse("help", &text).expect("it is sound")[0].ranges.len(), 2);
    }

    #[test]
    fn errors_begin_with_file_line_and_column() {
        let big = format!("{TWO}pool: big\nranges: []\nnote: {}\n", "x".repeat(POOL_BYTES));
        let second = |text: &str| format!("pool: a\nranges: [{{range: 10.0.0.0/24}}]\n---\n{text}");
        let mut wrong = Vec::new();
        for (text, expected) in [
            (String::new(), "f.yaml has no pool in it"),
            ("---\n".to_owned(), "f.yaml has no pool in it"),
            (big, "f.yaml:16:1: it has 65568 bytes: a pool has at most 65536; make two pools of it"),
            (
                second("pool: a\nranges: [{range: 10.1.0.0/24}]\n"),
                "f.yaml:4:1: pool a stands in the file twice: keep one of them",
            ),
            (
                second("pool: b\nranges:\n- range: 10.0.0.0/24\n- range: 10.0.1.9-10.0.1.5/24\n"),
                "f.yaml:7:10: ranges[1].range: \"10.0.1.9-10.0.1.5/24\" is not a range: its start 10.0.1.9 is above \
                 its end 10.0.1.5",
            ),
            (
                second("pool: b\nranges:\n- range: 10.0.0.0/24\n- {range: 10.0.1.0/24, gateway: 10.9.0.1}\n"),
                "f.yaml:7:24: ranges[1].gateway: 10.9.0.1 is outside of 10.0.1.0/24: write an address of it",
            ),
            (
                second("pool: b\nrange: 10.0.0.0/24\n"),
                "f.yaml:5:1: unknown field `range` (did you mean `ranges`?), expected one of `pool`",
            ),
            (
                second("pool: b\nranges:\n- {range: 10.0.0.0/24, gatway: 10.0.0.1}\n"),
                "unknown field `gatway` (did you mean `gateway`?), expected one of `range`",
            ),
            (
                second("pool: b\nranges:\n- {range: 10.0.0.0/24, gw: 10.0.0.1}\n"),
                "unknown field `gw` (did you mean `gateway`?)",
            ),
            (
                second(
                    "pool: b\nranges:\n- range: 10.0.0.0/24\nroutes: [{dst: 10.0.0.0/8, via: 10.0.0.1}]\n",
                ),
                "unknown field `via` (did you mean `gw`?), expected `dst` or `gw`",
            ),
            (
                "{\"pool\": \"a\", \"ranges\": [{\"range\": \"10.0.0.0/24\"} 5]}\n".to_owned(),
                "f.yaml:1:51: it is not JSON: expected `,` or `]`",
            ),
            (second("pool: b\nranges: []\n"), "f.yaml:5:1: ranges: it is empty: write at least one range"),
            (second("pool: b\npool: c\nranges: []\n"), "f.yaml:4:1: duplicate"),
            (
                second("pool: b\nranges: 10.0.0.0/24\n"),
                "f.yaml:5:9: ranges: invalid type: string \"10.0.0.0/24\", expected a list",
            ),
            // The text before the fault would be another range.
            (
                second("pool: b\nranges:\n  - range: 10.0.0.0/24\n     gateway: 10.0.0.1\n"),
                "f.yaml:7:13: it is not YAML: mapping values are not allowed",
            ),
            (second("pool: [\n"), "f.yaml:"),
            (second("pool: b\n\tranges: []\n"), "f.yaml:5:1: it is not YAML: found a tab character"),
            (
                second("[1, 2]\n"),
                "f.yaml:4:1: invalid type: a list, expected a pool, with `pool` and `ranges`",
            ),
            (
                second("pool: b\nranges: [{range: 10.0.0.0/24}]\nnote: [4711]\n"),
                "note: invalid type: a list, expected a string",
            ),
        ] {
            let why = parse("f.yaml", &text).expect_err(&text);
            if !why.contains(expected) {
                wrong.push(format!("{why}\n  should have {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

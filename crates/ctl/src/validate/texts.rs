//! The documents in a text: definitions of networks, configurations, host files, pools. Pure.

use serde::Deserialize;
use serde_json::Value;
use yaml_serde::Deserializer;

use crate::places::{Places, TextPlace};
use metes_config::cni::Json;
use metes_config::host;
use metes_config::keys::{SLIP_EDITS, nearest};
use metes_config::nad::Nad;
use metes_config::workload::Workload;

/// A text, taken apart.
#[derive(Debug)]
pub(super) struct TakenApart {
    /// The parts that may concern metes.
    pub(super) parts: Vec<Part>,
    /// Why the rest cannot be read.
    pub(super) unreadable: Option<String>,
}

/// One thing of a text.
#[derive(Debug)]
pub(super) struct Part {
    /// The number of the document in the text, from 0 on.
    pub(super) document: usize,
    pub(super) subject: Subject,
}

impl Part {
    pub(super) fn is_pool(&self) -> bool {
        matches!(self.subject, Subject::Pool)
    }
}

#[derive(Debug)]
pub(super) enum Subject {
    /// A NetworkAttachmentDefinition.
    Nad(Nad),
    /// A configuration in the text itself: of a plugin, or a list of plugins.
    Network(String),
    /// An `ipam` section alone.
    Ipam(String),
    HostFile,
    Pool,
    /// An object whose pods have random names.
    Workload(Workload),
}

pub(super) fn take_apart(text: &str) -> TakenApart {
    let mut taken = TakenApart { parts: Vec::new(), unreadable: None };
    // YAML does not take every text of JSON.
    if let Ok(value) = serde_json::from_str(text) {
        taken.see(0, &value, text);
        return taken;
    }
    for (document, content) in Deserializer::from_str(text).enumerate() {
        let value = match Value::deserialize(content) {
            Ok(value) => value,
            Err(e) => {
                taken.unreadable = Some(why_unreadable(text, document, &e));
                break;
            }
        };
        taken.see(document, &value, text);
    }
    taken
}

impl TakenApart {
    fn see(&mut self, document: usize, value: &Value, text: &str) {
        let mut subjects = Vec::new();
        see(value, "", text, &mut subjects);
        self.parts.extend(subjects.into_iter().map(|subject| Part { document, subject }));
    }
}

/// The reason why a document cannot be read. A text that looks like JSON is judged as JSON.
fn why_unreadable(text: &str, document: usize, error: &yaml_serde::Error) -> String {
    match Json::parse(text.as_bytes()) {
        Err(e) if document == 0 && text.trim_start().starts_with('{') => format!("it is not JSON: {e}"),
        _ => format!("document {} is neither YAML nor JSON: {error}", document + 1),
    }
}

fn see(value: &Value, path: &str, text: &str, subjects: &mut Vec<Subject>) {
    let Value::Object(keys) = value else { return };
    let has = |key: &str| keys.keys().any(|found| found.eq_ignore_ascii_case(key));
    if let Some(kind) = value["kind"].as_str() {
        if let Some(nad) = Nad::of(value, path) {
            subjects.push(Subject::Nad(nad));
        } else if let Some(workload) = Workload::of(value, path) {
            subjects.push(Subject::Workload(workload));
        } else if kind.ends_with("List") {
            for (at, item) in value["items"].as_array().into_iter().flatten().enumerate() {
                see(item, &format!("items[{at}]"), text, subjects);
            }
        }
        return;
    }
    if has("plugins") || has("ipam") {
        subjects.push(Subject::Network(text.to_owned()));
    } else if has("pool") && !has("type") || has("ranges") && !has("type") {
        subjects.push(Subject::Pool);
    } else if has("type") {
        // One that is almost of metes is judged, so that its type is named.
        let is_ours =
            value["type"].as_str().is_some_and(|named| nearest(named, &["metes"], SLIP_EDITS).is_some());
        subjects.extend(is_ours.then(|| Subject::Ipam(text.to_owned())));
    } else if keys.keys().any(|key| host::is_key(key)) {
        subjects.push(Subject::HostFile);
    }
}

/// Where something is in a text: a text in a text has the lines of the outer one, if it is a block of YAML.
#[derive(Debug)]
pub(super) struct Locator<'t> {
    lines: Vec<&'t str>,
    documents: Vec<Places>,
}

impl<'t> Locator<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { lines: text.lines().collect(), documents: Places::of_documents(text) }
    }

    pub(super) fn key(&self, document: usize, key: &str) -> Option<TextPlace> {
        self.documents.get(document)?.of(key)
    }

    /// The place of a key, or of a line and column, in a text that is the value of `outer`.
    pub(super) fn inside(
        &self,
        document: usize,
        outer: &str,
        inner: &str,
        (key, at): (&str, Option<(usize, usize)>),
    ) -> Option<TextPlace> {
        let outer = self.key(document, outer)?;
        let at = at.map(TextPlace::from);
        let at = at.or_else(|| Places::of_documents(inner).first()?.of(key));
        let Some(at) = at.filter(|_| self.is_block(outer)) else { return Some(outer) };
        let line = outer.line + at.line;
        let (Some(shown), Some(written)) = (self.lines.get(line - 1), inner.lines().nth(at.line - 1)) else {
            return Some(outer);
        };
        let indent = shown.chars().count().saturating_sub(written.chars().count());
        Some(TextPlace { line, column: at.column + indent })
    }

    fn is_block(&self, key: TextPlace) -> bool {
        let line =
            self.lines.get(key.line - 1).map(|line| line.chars().skip(key.column - 1).collect::<String>());
        line.is_some_and(|line| {
            line.split_once(':').is_some_and(|(_, value)| value.trim_start().starts_with('|'))
        })
    }
}

//! The CNI error object, and the codes that metes gives.

use std::fmt;

use serde::Serialize;

/// The reason why a command failed, as a number that runtimes print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The configuration's cniVersion is not supported, or does not know the verb.
    IncompatibleVersion = 1,
    /// A CNI_* variable is missing or invalid, CNI_ARGS too.
    Environment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// stdin is not in the expected form.
    Decode = 6,
    /// The network configuration or the host file is invalid.
    InvalidConfig = 7,
    /// CNI_NETNS is the plugin's own network namespace.
    InvalidNetns = 8,
    /// etcd cannot be reached or is overloaded: try again later.
    TryAgain = 11,
    /// STATUS: an ADD could not be served.
    NotAvailable = 50,
    /// STATUS: as 50, and containers already attached may be impaired.
    Limited = 51,
    /// Every address of a range set is taken.
    NoFreeAddress = 100,
    /// The requested address lies in a range but cannot be given.
    AddressNotAvailable = 101,
    /// The stored state cannot be decoded, contradicts itself or is suspect.
    StoredState = 102,
    /// etcd refuses writes (out of space, limits).
    Refused = 103,
    /// etcd denies permission.
    PermissionDenied = 104,
    /// metes is at fault: a panic.
    Internal = 999,
}

impl Code {
    /// The number.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// The error that a runtime gets when a command fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The code.
    pub code: Code,
    /// One sentence that names the thing in question.
    pub msg: String,
    /// The remedy; may be empty.
    pub details: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}

impl Error {
    /// An error without details.
    #[must_use]
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    /// Adds the other oddities to the details: runtimes pass on an error, but seldom a log.
    #[must_use]
    pub fn with_notes(self, notes: &[String]) -> Self {
        let parts = (!self.details.is_empty()).then_some(&self.details).into_iter().chain(notes);
        let details = parts.map(String::as_str).collect::<Vec<_>>().join("; ");
        Self { details, ..self }
    }

    /// Code 1.
    pub(crate) fn incompatible_version(msg: impl Into<String>) -> Self {
        Self::new(Code::IncompatibleVersion, msg)
    }

    /// Code 4.
    pub(crate) fn environment(msg: impl Into<String>) -> Self {
        Self::new(Code::Environment, msg)
    }

    /// Code 5.
    #[must_use]
    pub fn io(msg: impl Into<String>) -> Self {
        Self::new(Code::Io, msg)
    }

    /// Code 6.
    pub(crate) fn decode(msg: impl Into<String>) -> Self {
        Self::new(Code::Decode, msg)
    }

    /// Code 7.
    #[must_use]
    pub fn invalid_config(msg: impl Into<String>) -> Self {
        Self::new(Code::InvalidConfig, msg)
    }

    /// The error object for stdout, with the configuration's cniVersion where it is known.
    #[must_use]
    pub fn to_json(&self, cni_version: Option<&str>) -> String {
        let object = Object {
            cni_version,
            code: self.code.number(),
            msg: &self.msg,
            details: Some(self.details.as_str()).filter(|d| !d.is_empty()),
        };
        serde_json::to_string(&object).expect("an error object has only string keys")
    }

    /// The same error, fit to be the answer to a DEL.
    ///
    /// containerd and Multus search the text of a failed DEL for phrases that mean "already gone". If they find one,
    /// they take the DEL for a success, and the address would leak in silence.
    #[must_use]
    pub fn for_del(self) -> Self {
        Self {
            code: self.code,
            msg: without_gone_phrases(self.msg),
            details: without_gone_phrases(self.details),
        }
    }
}

#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "cniVersion", skip_serializing_if = "Option::is_none")]
    cni_version: Option<&'a str>,
    code: u16,
    msg: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a str>,
}

/// Phrases that runtimes take for "already gone", each with its replacement.
const GONE_PHRASES: [(&str, &str); 2] =
    [("not found", "missing"), ("no such file or directory", "missing path")];

fn without_gone_phrases(text: String) -> String {
    GONE_PHRASES.iter().fold(text, |text, (phrase, instead)| {
        let mut rest = text.as_str();
        let mut kept = String::with_capacity(text.len());
        while let Some(at) = find_ignoring_case(rest, phrase) {
            kept.push_str(&rest[..at]);
            kept.push_str(instead);
            rest = &rest[at + phrase.len()..];
        }
        kept.push_str(rest);
        kept
    })
}

fn find_ignoring_case(text: &str, phrase: &str) -> Option<usize> {
    // Lowering ASCII only keeps every byte offset.
    text.to_ascii_lowercase().find(phrase)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_object_has_what_the_specification_wants() {
        let bare = Error::invalid_config("a \"bad\" key");
        assert_eq!(bare.to_json(None), r#"{"code":7,"msg":"a \"bad\" key"}"#);
        let full = bare.with_details("repair it");
        assert_eq!(
            full.to_json(Some("1.1.0")),
            r#"{"cniVersion":"1.1.0","code":7,"msg":"a \"bad\" key","details":"repair it"}"#
        );
        assert_eq!(full.to_string(), "a \"bad\" key; repair it");
        let notes = ["one".to_owned(), "two".to_owned()];
        assert_eq!(full.clone().with_notes(&notes).details, "repair it; one; two");
        assert_eq!(Error::io("x").with_notes(&notes).details, "one; two");
        assert_eq!(full.clone().with_notes(&[]), full);
    }

    #[test]
    fn a_failed_del_never_reads_as_already_gone() {
        let error = Error::io("Key NOT Found: no such not found")
            .with_details("open x: No such file or directory")
            .for_del();
        assert_eq!(error.msg, "Key missing: no such missing");
        assert_eq!(error.details, "open x: missing path");
        assert_eq!(error.code, Code::Io);
    }

    proptest! {
        #[test]
        fn no_text_survives_as_already_gone(words in prop::collection::vec(
            prop::sample::select(vec![
                "not", "found", " ", "no", "such", "file", "or", "directory", "t", "NOT FOUND", "ß",
            ]),
            0..24)
        ) {
            let error = Error::io(words.concat()).with_details(words.join(" ")).for_del();
            for text in [error.msg, error.details] {
                let text = text.to_lowercase();
                prop_assert!(!text.contains("not found") && !text.contains("no such file or directory"), "{text}");
            }
        }
    }
}

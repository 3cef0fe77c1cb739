//! The versions of the CNI protocol.

use super::{Error, Verb};

metes_core::named_enum! {
    /// A version of the protocol that metes speaks, oldest first.
    pub enum Version {
        /// 0.1.0, also meant by a configuration without cniVersion.
        V0_1_0 = "0.1.0",
        /// 0.2.0.
        V0_2_0 = "0.2.0",
        /// 0.3.0.
        V0_3_0 = "0.3.0",
        /// 0.3.1.
        V0_3_1 = "0.3.1",
        /// 0.4.0: the first with CHECK.
        V0_4_0 = "0.4.0",
        /// 1.0.0.
        V1_0_0 = "1.0.0",
        /// 1.1.0: the first with STATUS and GC.
        V1_1_0 = "1.1.0",
    }
}

/// The newest version.
pub const NEWEST: Version = Version::V1_1_0;

impl Version {
    /// The version that a configuration's `cniVersion` names exactly; empty means 0.1.0.
    #[must_use]
    pub fn exactly(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Version::V0_1_0);
        }
        Version::named(text)
    }

    /// The version to answer `verb` in, for a configuration whose `cniVersion` is `text`.
    ///
    /// # Errors
    /// Code 1 if metes does not speak the version or the version does not have the verb. The words are the CNI
    /// library's, because callers compare them. Code 6 if the verb compares versions and the text is none.
    pub(crate) fn for_verb(text: &str, verb: Verb) -> Result<Self, Error> {
        if let Some(oldest) = oldest_for(verb) {
            let numbers = numbers(text)
                .ok_or_else(|| Error::decode(format!("cniVersion {text:?} is not a version number")))?;
            if numbers < oldest.numbers() {
                return Err(Error::incompatible_version(format!("config version does not allow {verb}")));
            }
            if numbers > NEWEST.numbers() {
                return Err(Error::incompatible_version(format!("plugin version does not allow {verb}")));
            }
        }
        Self::exactly(text).ok_or_else(|| incompatible(text))
    }

    /// True if the protocol of this version knows the verb.
    #[must_use]
    pub fn allows(self, verb: Verb) -> bool {
        oldest_for(verb).is_none_or(|oldest| self >= oldest)
    }

    fn numbers(self) -> [i64; 3] {
        numbers(self.name()).expect("supported versions are numbers")
    }
}

/// The answer to VERSION.
#[must_use]
pub fn version_json() -> String {
    let supported = Version::ALL.map(Version::name);
    format!(r#"{{"cniVersion":"{NEWEST}","supportedVersions":{supported:?}}}"#)
}

fn oldest_for(verb: Verb) -> Option<Version> {
    match verb {
        Verb::Check => Some(Version::V0_4_0),
        Verb::Status | Verb::Gc => Some(Version::V1_1_0),
        Verb::Add | Verb::Del | Verb::Version => None,
    }
}

fn incompatible(text: &str) -> Error {
    let supported = Version::ALL.map(Version::name);
    Error::incompatible_version("incompatible CNI versions")
        .with_details(format!("config is {text:?}, plugin supports {supported:?}"))
}

/// One to three numbers; a missing number is 0, and an empty text is 0.1.0.
fn numbers(text: &str) -> Option<[i64; 3]> {
    if text.is_empty() {
        return Some([0, 1, 0]);
    }
    let mut numbers = [0; 3];
    for (i, part) in text.split('.').enumerate() {
        *numbers.get_mut(i)? = part.parse().ok()?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_and_del_need_a_version_named_exactly() {
        for verb in [Verb::Add, Verb::Del] {
            assert_eq!(Version::for_verb("", verb), Ok(Version::V0_1_0));
            for version in Version::ALL {
                assert_eq!(Version::for_verb(version.name(), verb), Ok(version));
            }
            for bad in ["0.3", "1.0", "abc", "1.2.0", "1.0.0.0"] {
                assert_eq!(Version::for_verb(bad, verb).unwrap_err().code.number(), 1, "{bad}");
            }
        }
    }

    #[test]
    fn newer_verbs_need_newer_versions() {
        let table = [
            (Verb::Check, "0.3.1", 1, "config version does not allow CHECK"),
            (Verb::Check, "", 1, "config version does not allow CHECK"),
            (Verb::Gc, "1.0.0", 1, "config version does not allow GC"),
            (Verb::Status, "0.4.0", 1, "config version does not allow STATUS"),
            (Verb::Check, "1.2.0", 1, "plugin version does not allow CHECK"),
            (Verb::Gc, "2", 1, "plugin version does not allow GC"),
            (Verb::Check, "1.0", 1, "incompatible CNI versions"),
            (Verb::Status, "abc", 6, "cniVersion \"abc\" is not a version number"),
            (Verb::Check, "1.0.0.0", 6, "cniVersion \"1.0.0.0\" is not a version number"),
        ];
        for (verb, text, code, msg) in table {
            let error = Version::for_verb(text, verb).unwrap_err();
            assert_eq!((error.code.number(), error.msg.as_str()), (code, msg));
            assert!(error.details.is_empty() || msg.starts_with("incompatible"), "{error}");
        }
        assert_eq!(Version::for_verb("0.4.0", Verb::Check), Ok(Version::V0_4_0));
        assert!(Version::V1_1_0.allows(Verb::Gc) && !Version::V1_0_0.allows(Verb::Gc));
        assert!(Version::V0_1_0.allows(Verb::Add));
    }

    #[test]
    fn the_answer_to_version_is_what_other_plugins_say() {
        let expected = serde_json::json!({"cniVersion": "1.1.0",
            "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&version_json()).expect("JSON"), expected);
    }
}

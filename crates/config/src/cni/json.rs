//! A JSON tree that keeps every pair of an object, in order.
//!
//! Runtimes and their users are used to Go's decoder. It matches keys without regard to case, and of duplicates the
//! last one counts. Serde's derived structs do neither, so the configuration is read from this tree (see
//! [`Section`](super::Section)).

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

/// A JSON value. serde_json's recursion limit bounds its depth.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: every pair, in the order written, duplicates too.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one JSON document; anything but white space after it is an error.
    ///
    /// # Errors
    /// serde_json's, which names line and column and repeats nothing of the text.
    pub fn parse(bytes: &[u8]) -> Result<Json, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The value of the last pair whose key is `key` without regard to ASCII case.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        last_of(self.pairs()?, key)
    }

    /// The pairs of an object, in the order written.
    #[must_use]
    pub fn pairs(&self) -> Option<&[(String, Json)]> {
        match self {
            Json::Object(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// The elements of an array.
    #[must_use]
    pub fn items(&self) -> Option<&[Json]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// The kind of the value, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::String(_) => "a string",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        }
    }
}

/// The value of the last pair whose key is `key` without regard to ASCII case.
pub(crate) fn last_of<'a>(pairs: &'a [(String, Json)], key: &str) -> Option<&'a Json> {
    pairs.iter().rev().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

/// Builds a [`Json`] out of any value.
struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Json::Object(pairs))
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(value) => value.serialize(serializer),
            Json::String(value) => serializer.serialize_str(value),
            Json::Array(items) => items.serialize(serializer),
            Json::Object(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).expect("valid JSON")
    }

    #[test]
    fn keys_match_without_regard_to_case_and_the_last_one_wins() {
        let tree = json(r#"{"Name":"a","name":"b","NAME":"c"}"#);
        assert_eq!(tree.get("name").and_then(Json::text), Some("c"));
        assert_eq!(tree.get("nam"), None);
        assert_eq!(json("[1]").get("name"), None);
    }

    #[test]
    fn what_was_read_is_written_back_unchanged() {
        for text in [r#"{"b":1,"a":[null,true,-3,1.5,"x\n"],"b":{}}"#, "null", "18446744073709551615"] {
            assert_eq!(json(text).to_string(), text);
        }
    }

    #[test]
    fn depth_is_bounded_and_rests_are_refused() {
        assert!(Json::parse("[".repeat(100_000).as_bytes()).is_err());
        for bad in ["", "{} {}", "{}x", "{'a':1}", "\u{feff}{}", "{\"a\":1e999}"] {
            assert!(Json::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}

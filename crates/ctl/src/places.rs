//! Where the keys of a text stand: YAML, of which JSON is a part. Pure.
//!
//! yaml_serde tells a place only in an error. So each key and each scalar is refused once it was read, the place is
//! taken from the error, and the walk goes on behind it.

use std::collections::HashMap;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A line and a column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextPlace {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl TextPlace {
    /// The message of an error of yaml_serde, and the place that it ends with. The first place of a text is not
    /// written there.
    pub(super) fn of_error(error: &yaml_serde::Error) -> (String, Option<Self>) {
        let place = error.location().map(|place| Self { line: place.line(), column: place.column() });
        let text = error.to_string();
        let what = place.and_then(|place| text.strip_suffix(&format!(" at {place}")));
        match (what, text.split_once(" at line ")) {
            (Some(what), _) => (what.to_owned(), place),
            // The place of the fault stands before that of what it is in.
            (None, Some((fault, rest))) => {
                let mut numbers =
                    rest.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
                let place = numbers.next().zip(numbers.next()).map(Self::from);
                (fault.to_owned(), place)
            }
            (None, None) => (text, place),
        }
    }

    /// The place in an error of yaml_serde whose type is not known here.
    fn in_error(error: &impl Error) -> Self {
        let text = error.to_string();
        let place = text.rsplit_once(" at line ").and_then(|(_, place)| {
            let (line, column) = place.split_once(" column ")?;
            Some(Self { line: line.parse().ok()?, column: column.parse().ok()? })
        });
        place.unwrap_or(Self { line: 1, column: 1 })
    }
}

impl From<(usize, usize)> for TextPlace {
    fn from((line, column): (usize, usize)) -> Self {
        Self { line, column }
    }
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)
    }
}

/// The places of all keys of one document, by paths like `ranges[1].gateway`. The case of letters does not count.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<String, TextPlace>);

impl Places {
    /// The places in each document of a text. What stands behind something that cannot be read has none.
    pub(super) fn of_documents(text: &str) -> Vec<Places> {
        let mut all = Vec::new();
        for document in yaml_serde::Deserializer::from_str(text) {
            let mut places = Places::default();
            let walked = KeyWalk { path: String::new(), places: &mut places }.deserialize(document);
            all.push(places);
            if walked.is_err() {
                break;
            }
        }
        all
    }

    /// The place of a key, or of the nearest one around it.
    pub(super) fn of(&self, path: &str) -> Option<TextPlace> {
        let mut path = path.to_ascii_lowercase();
        loop {
            if let Some(place) = self.0.get(&path) {
                return Some(*place);
            }
            path.truncate(path.rfind(['.', '['])?);
        }
    }
}

/// Goes through one value, and notes where the keys in it are.
struct KeyWalk<'a> {
    path: String,
    places: &'a mut Places,
}

impl KeyWalk<'_> {
    fn note(&mut self, place: TextPlace) {
        self.places.0.entry(self.path.to_ascii_lowercase()).or_insert(place);
    }
}

impl<'de> DeserializeSeed<'de> for KeyWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        let mut scalar = None;
        match deserializer.deserialize_any(PlaceVisitor { walk: Some(&mut self), scalar: &mut scalar }) {
            Err(e) if scalar.is_some() => {
                self.note(TextPlace::in_error(&e));
                Ok(())
            }
            walked => walked,
        }
    }
}

/// Refuses a scalar, whose text it leaves behind.
struct PlaceVisitor<'v, 'a> {
    /// The walk through arrays and objects. None for a key: one that is an array or an object is skipped.
    walk: Option<&'v mut KeyWalk<'a>>,
    scalar: &'v mut Option<String>,
}

impl PlaceVisitor<'_, '_> {
    fn refuse<E: Error>(self, scalar: String) -> Result<(), E> {
        *self.scalar = Some(scalar);
        Err(E::custom("here"))
    }
}

impl<'de> DeserializeSeed<'de> for PlaceVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PlaceVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value without a tag")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.refuse(text.to_owned())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.refuse(value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.refuse(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.refuse(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.refuse(value.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.refuse(String::new())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.refuse(String::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some(walk) = self.walk else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let mut at = 0;
        let item = |at: usize| format!("{}[{at}]", walk.path);
        while items.next_element_seed(KeyWalk { path: item(at), places: walk.places })?.is_some() {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        let Some(walk) = self.walk else {
            while pairs.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        loop {
            let mut key = None;
            let error = match pairs.next_key_seed(PlaceVisitor { walk: None, scalar: &mut key }) {
                Ok(None) => return Ok(()),
                Ok(Some(())) => {
                    pairs.next_value::<IgnoredAny>()?;
                    continue;
                }
                Err(e) => e,
            };
            let Some(key) = key else { return Err(error) };
            let place = TextPlace::in_error(&error);
            // What stands in an array is where its first key is.
            walk.note(place);
            let path = if walk.path.is_empty() { key } else { format!("{}.{key}", walk.path) };
            let mut inner = KeyWalk { path, places: walk.places };
            inner.note(place);
            pairs.next_value_seed(inner)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_key_and_element_has_its_place() {
        let text = "\
# a comment
pool: a
ranges:
- {range: 10.0.0.0/24, gateway: x}
-
  state: open
  range: &r [1, -2, 1.5, true, null, \"s\"]
again: *r
config: |
  {\"a\": 1}
1: {2: 3}
---
- a
- [b, {c: d}]
---
bad: {Key: 1,
  ok: 2, ]
";
        let places = Places::of_documents(text);
        let found = |document: usize, path: &str| {
            places[document].of(path).map(|place: TextPlace| (place.line, place.column))
        };
        for (document, path, line, column) in [
            (0, "pool", 2, 1),
            (0, "RANGES", 3, 1),
            (0, "ranges[0]", 4, 4),
            (0, "ranges[0].gateway", 4, 24),
            (0, "ranges[1].state", 6, 3),
            (0, "ranges[1].range[1]", 7, 17),
            (0, "ranges[1].range[5]", 7, 38),
            (0, "again[0]", 7, 14),
            (0, "config", 9, 1),
            (0, "1.2", 11, 5),
            // What is not there has the place of what is around it.
            (0, "ranges[1].gateway", 6, 3),
            (0, "config.ipam.range", 9, 1),
            (0, "ranges[7]", 3, 1),
            (1, "[0]", 13, 3),
            (1, "[1][1].c", 14, 8),
            (2, "bad.key", 16, 7),
            (2, "bad.ok", 17, 3),
        ] {
            assert_eq!(found(document, path), Some((line, column)), "{path}");
        }
        assert_eq!(Places::of_documents("a: 1").first().and_then(|p| p.of("a")).map(|p| p.line), Some(1));
        assert_eq!(Places::of_documents("a: 1")[0].of("b"), None);
    }

    proptest! {
        /// Also the walk of a visitor that goes on after an error. What is empty is at the end of the text.
        #[test]
        fn any_text_ends_the_walk(text in "[-:{}\\[\\]&*!?a1~\"'#,|> \t\n]{0,80}") {
            let lines = text.split('\n').count();
            for places in Places::of_documents(&text) {
                prop_assert!(places.0.values().all(|place| place.line <= lines + 1 && place.column >= 1), "{:?}", text);
            }
        }
    }

    #[test]
    fn odd_texts_end_the_walk() {
        for text in [
            "",
            "---\n",
            "!tag x",
            "a: !tag {b: 1}\nc: 1",
            "{[a]: b, {c: d}: e}",
            "a: *x",
            "\t",
            "[",
            "- - - 1",
        ] {
            Places::of_documents(text);
        }
        Places::of_documents(&"[".repeat(1000));
    }
}

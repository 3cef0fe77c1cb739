//! Typed reading of one JSON object, with errors that name the key and the value found.

use super::{Error, Json, json};

/// The longest piece of a found value that an error repeats, in characters.
const SHOWN_CHARS: usize = 120;

/// The part of a value that errors may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// Errors repeat the value.
    Values,
    /// Errors only name the kind of the value: it may be a secret, or the content of a file.
    Kinds,
}

/// One JSON object and its place in the document.
///
/// An absent key, `null` and, for text, the empty string all mean "not given".
#[derive(Clone)]
pub struct Section<'a> {
    path: String,
    pairs: &'a [(String, Json)],
    shows: Shows,
}

impl<'a> Section<'a> {
    /// A section over the pairs of an object; `path` is empty for a whole document.
    #[must_use]
    pub fn new(path: &str, pairs: &'a [(String, Json)], shows: Shows) -> Self {
        Self { path: path.to_owned(), pairs, shows }
    }

    /// The pairs, in the order written.
    pub(crate) fn pairs(&self) -> &'a [(String, Json)] {
        self.pairs
    }

    /// The key with its place in the document.
    pub(crate) fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of a key, unless it is null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Json> {
        json::last_of(self.pairs, key).filter(|value| **value != Json::Null)
    }

    /// True if the key is given at all.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.text() != Some(""))
    }

    /// A string.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        let text = self.read(key, "a string", Json::text)?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// A string that `parse` understands.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn parsed<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.read(key, expected, Json::text)?.filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => parse(text).map(Some).ok_or_else(|| self.misread(key, expected, text)),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        self.read(key, "true or false", |value| match value {
            Json::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A whole number.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, Error> {
        self.read(key, "a whole number", |value| match value {
            Json::Number(number) => number.as_i64(),
            _ => None,
        })
    }

    /// An array.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn list(&self, key: &str) -> Result<&'a [Json], Error> {
        Ok(self.read(key, "an array", Json::items)?.unwrap_or_default())
    }

    /// An array of strings; empty ones are left out.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<&'a str>, Error> {
        let expected = "an array of strings";
        let items = self.read(key, expected, Json::items)?.unwrap_or_default();
        let texts: Option<Vec<_>> = items.iter().map(Json::text).collect();
        let texts = texts.ok_or_else(|| self.invalid(key, expected))?;
        Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
    }

    /// An array of strings that `parse` understands; `expected` is what each of them must be. Empty ones are left out.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn parsed_list<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let parsed = |(at, item): (usize, &Json)| match item.text() {
            Some("") => None,
            None => Some(Err(self.invalid_value(&format!("{key}[{at}]"), expected, item))),
            Some(text) => {
                Some(parse(text).ok_or_else(|| self.misread(&format!("{key}[{at}]"), expected, text)))
            }
        };
        self.list(key)?.iter().enumerate().filter_map(parsed).collect()
    }

    /// An object.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub fn section(&self, key: &str) -> Result<Option<Section<'a>>, Error> {
        let pairs = self.read(key, "an object", Json::pairs)?;
        Ok(pairs.map(|pairs| Section { path: self.at(key), pairs, shows: self.shows }))
    }

    /// An array of objects.
    ///
    /// # Errors
    /// Code 7 if it is something else.
    pub(crate) fn sections(&self, key: &str) -> Result<Vec<Section<'a>>, Error> {
        self.sections_in(key, self.list(key)?)
    }

    /// The objects of an array that stands at `key` (a name such as `ranges[0]`) of this section.
    ///
    /// # Errors
    /// Code 7 if one is something else.
    pub(crate) fn sections_in(&self, key: &str, items: &'a [Json]) -> Result<Vec<Section<'a>>, Error> {
        let section = |(i, item): (usize, &'a Json)| {
            let key = format!("{key}[{i}]");
            let pairs = item.pairs().ok_or_else(|| self.invalid_value(&key, "an object", item))?;
            Ok(Section { path: self.at(&key), pairs, shows: self.shows })
        };
        items.iter().enumerate().map(section).collect()
    }

    /// The error for a key whose value is not the expected one.
    pub(crate) fn invalid(&self, key: &str, expected: &str) -> Error {
        self.invalid_value(key, expected, self.get(key).unwrap_or(&Json::Null))
    }

    /// The error for a value, found at `key`, that is not the expected one.
    pub(crate) fn invalid_value(&self, key: &str, expected: &str, found: &Json) -> Error {
        let found = match (found, self.shows) {
            (Json::Null, _) => "nothing".to_owned(),
            (_, Shows::Kinds) => found.kind().to_owned(),
            (_, Shows::Values) => shorten(&found.to_string()),
        };
        self.must_be(key, expected, &found)
    }

    /// The error for a string that does not have the expected form.
    fn misread(&self, key: &str, expected: &str, text: &str) -> Error {
        match self.shows {
            Shows::Values => self.invalid_value(key, expected, &Json::from(text)),
            Shows::Kinds => self.must_be(key, expected, "a string of another form"),
        }
    }

    fn must_be(&self, key: &str, expected: &str, found: &str) -> Error {
        Error::invalid_config(format!("`{}` must be {expected}, found {found}", self.at(key)))
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        as_type: impl FnOnce(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => as_type(value).map(Some).ok_or_else(|| self.invalid_value(key, expected, value)),
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Json::String(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_section(text: &str, shows: Shows, check: impl FnOnce(&Section<'_>)) {
        let json = Json::parse(text.as_bytes()).expect("valid JSON");
        check(&Section::new("ipam", json.pairs().expect("an object"), shows));
    }

    #[test]
    fn absent_null_and_empty_text_are_the_same() {
        with_section(r#"{"b":null,"c":""}"#, Shows::Values, |section| {
            for key in ["a", "b", "c"] {
                assert_eq!(section.text(key), Ok(None));
                assert!(!section.has(key));
            }
            assert_eq!(section.flag("b"), Ok(None));
            assert_eq!(section.texts("b"), Ok(vec![]));
        });
    }

    #[test]
    fn errors_name_the_key_and_what_was_found() {
        with_section(r#"{"a":5,"l":["x",1],"o":[{},7]}"#, Shows::Values, |section| {
            let msg = |error: Error| error.msg;
            assert_eq!(msg(section.text("a").unwrap_err()), "`ipam.a` must be a string, found 5");
            assert_eq!(
                msg(section.texts("l").unwrap_err()),
                "`ipam.l` must be an array of strings, found [\"x\",1]"
            );
            let error = section.sections("o").err().expect("refused");
            assert_eq!(msg(error), "`ipam.o[1]` must be an object, found 7");
        });
        with_section(r#"{"password":["secret"]}"#, Shows::Kinds, |section| {
            let error = section.text("password").unwrap_err();
            assert_eq!(error.msg, "`ipam.password` must be a string, found an array");
        });
    }
}

//! Reads the sources of a crate: its modules, the imports of each, and the types that each defines.
//!
//! It reads words, not meaning. It sees every path that begins with `crate::`, `super::` or a crate's name, in `use`
//! and elsewhere, and follows names that a module hands on by `pub use`. It does not see what a macro writes, nor which
//! names `*` stands for. Tests inside of files, and files that are only for tests, are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's name inside its crate: `["store", "keys"]`; a crate's root has an empty one.
pub(crate) type Name = Vec<String>;

pub(crate) struct Crate {
    pub(crate) modules: BTreeMap<Name, Module>,
}

pub(crate) struct Module {
    /// Without comments and tests.
    pub(crate) text: String,
}

impl Crate {
    pub(crate) fn read(folder: &Path) -> Self {
        let has_library = folder.join("lib.rs").exists();
        let mut modules = BTreeMap::new();
        let mut only_for_tests = BTreeSet::new();
        for file in rust_files(folder) {
            let name = name_of(file.strip_prefix(folder).expect("it is in there"), has_library);
            let (text, test_modules) = production(&fs::read_to_string(&file).expect("a source file"));
            only_for_tests
                .extend(test_modules.into_iter().map(|module| [name.clone(), vec![module]].concat()));
            modules.insert(name, Module { text });
        }
        modules.retain(|name, _| !only_for_tests.iter().any(|test: &Name| name.starts_with(test)));
        assert!(!modules.is_empty(), "no sources in {}", folder.display());
        Self { modules }
    }

    /// Every path that a module imports, from the crate's root on.
    pub(crate) fn imports(&self, name: &Name) -> BTreeSet<Name> {
        let mut found = BTreeSet::new();
        for path in paths(&self.modules[name].text, &["crate", "super"]) {
            let supers = path.iter().take_while(|word| *word == "super").count();
            found.insert(match path[0].as_str() {
                "crate" => path[1..].to_vec(),
                "super" => [&name[..name.len().saturating_sub(supers)], &path[supers..]].concat(),
                _ => path,
            });
        }
        found
    }

    /// The modules of this crate that a module takes names from.
    ///
    /// A folder's `mod.rs` and the files below it are one room: what they take from each other does not count.
    pub(crate) fn neighbours(&self, name: &Name) -> BTreeSet<Name> {
        let imported = self.imports(name).into_iter().map(|path| self.home(&path));
        imported.filter(|other| !name.starts_with(other) && !other.starts_with(name)).collect()
    }

    /// The module that defines the target of a path.
    fn home(&self, path: &Name) -> Name {
        let is_module = |length: &usize| self.modules.contains_key(&path[..*length]);
        let length = (0..=path.len()).rev().find(is_module).unwrap_or(0);
        let (module, rest) = path.split_at(length);
        let Some((wanted, text)) = rest.first().zip(self.modules.get(module).map(|module| &module.text))
        else {
            return module.to_vec();
        };
        let handed_on = text.split("use ").skip(1).filter_map(|tree| {
            let tree = tree.split(';').next()?;
            let child = tree.split("::").next()?.to_owned();
            let child = [module, &[child]].concat();
            let names = tree.split(|c: char| !c.is_alphanumeric() && c != '_');
            let module = self.modules.get(&child)?;
            let is_handed_on = match tree.ends_with("::*") {
                true => defines(&module.text, wanted),
                false => names.skip(1).any(|name| name == wanted),
            };
            is_handed_on.then_some(child)
        });
        handed_on
            .into_iter()
            .next()
            .map_or(module.to_vec(), |child| self.home(&[child, rest.to_vec()].concat()))
    }

    /// The modules that import themselves by way of others.
    pub(crate) fn on_circles(&self) -> Vec<String> {
        let neighbours: BTreeMap<&Name, BTreeSet<Name>> =
            self.modules.keys().map(|name| (name, self.neighbours(name))).collect();
        let reaches_itself = |name: &&Name| {
            let mut reached = BTreeSet::new();
            let mut next = vec![*name];
            while let Some(at) = next.pop() {
                for other in neighbours.get(at).into_iter().flatten() {
                    if reached.insert(other) {
                        next.push(other);
                    }
                }
            }
            reached.contains(name)
        };
        self.modules.keys().filter(reaches_itself).map(|name| name.join("/")).collect()
    }

    /// The number of definitions of each type name, aside from those inside of traits and functions.
    pub(crate) fn types(&self) -> BTreeMap<String, usize> {
        let mut types = BTreeMap::new();
        let lines = self.modules.values().flat_map(|module| {
            let before = std::iter::once("").chain(module.text.lines());
            before.zip(module.text.lines())
        });
        for (before, line) in lines {
            // The other build's form of the same type.
            if before.starts_with("#[cfg(not(") {
                continue;
            }
            let item = line
                .split_once("pub(")
                .and_then(|(_, item)| item.split_once(") "))
                .map_or(line, |(_, item)| item);
            let item = item.strip_prefix("pub ").unwrap_or(item);
            let Some((kind, rest)) = item.split_once(' ') else { continue };
            if ["struct", "enum", "trait", "union", "type"].contains(&kind) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                *types.entry(name).or_default() += 1;
            }
        }
        types
    }
}

/// True if a text has an item of this name.
fn defines(text: &str, wanted: &str) -> bool {
    const ITEMS: [&str; 7] = ["struct", "enum", "trait", "type", "fn", "const", "static"];
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    words.windows(2).any(|pair| ITEMS.contains(&pair[0]) && pair[1] == wanted)
}

/// Build output and hidden folders are left out.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")).collect()
}

/// Every file, as above.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn name_of(file: &Path, has_library: bool) -> Name {
    let file = file.with_extension("");
    let mut name: Name = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_root = name.len() == 1 && (name[0] == "lib" || name[0] == "main" && !has_library);
    if is_root || name.last().is_some_and(|last| last == "mod") {
        name.pop();
    }
    name
}

/// A file without comments and tests, and the modules in files of their own that it declares for tests.
pub(crate) fn production(text: &str) -> (String, Vec<String>) {
    let mut kept = String::new();
    let mut test_modules = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.push_str(without_comment(line));
            kept.push('\n');
            continue;
        }
        let item = lines.next().unwrap_or_default();
        match item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")) {
            Some((_, module)) => test_modules.push(module.to_owned()),
            // An item of several lines ends where a line closes it as far left as it began.
            None if item.ends_with('{') => while lines.next().is_some_and(|line| line != "}") {},
            None => {}
        }
    }
    (kept, test_modules)
}

fn without_comment(line: &str) -> &str {
    let is_comment = |(at, _): &(usize, &str)| line[..*at].matches('"').count().is_multiple_of(2);
    line.match_indices("//").find(is_comment).map_or(line, |(at, _)| &line[..at])
}

/// Every path in a text that begins with one of `roots`, word by word, the trees of `use` written out.
fn paths(text: &str, roots: &[&str]) -> Vec<Name> {
    let mut found = Vec::new();
    for root in roots {
        for (at, _) in text.match_indices(&format!("{root}::")) {
            let is_whole = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
            if text[..at].chars().next_back().is_none_or(is_whole) && !text[..at].ends_with("super::") {
                read_tree(&text[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads `a::b`, `a::{b, c::d}` or `a as b`, with `prefix` before it; returns the text after it.
fn read_tree<'a>(mut text: &'a str, prefix: &mut Name, found: &mut Vec<Name>) -> &'a str {
    let begun = prefix.len();
    loop {
        text = text.trim_start();
        if let Some(mut inner) = text.strip_prefix('{') {
            loop {
                inner = inner.trim_start();
                if let Some(rest) = inner.strip_prefix('}') {
                    prefix.truncate(begun);
                    return rest;
                }
                if inner.is_empty() {
                    return inner;
                }
                inner = read_tree(inner, prefix, found).trim_start();
                inner = inner.strip_prefix(|c| c != '}').unwrap_or(inner);
            }
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        prefix.push(word.to_owned());
        match rest.strip_prefix("::") {
            Some(more) if end > 0 => text = more,
            _ => {
                found.push(prefix.clone());
                prefix.truncate(begun);
                // A new name stands behind `as`.
                return match rest.strip_prefix(" as ") {
                    Some(renamed) => renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'),
                    None => rest,
                };
            }
        }
    }
}

#[test]
fn paths_are_read_word_by_word() {
    let text = "use crate::pool::{self, Addr, record::{Held, Owner as Other}};\n\
                fn f() { super::super::g(crate::limits::A, x::super_::b) }\nuse metes_core::keys::Keys;";
    let read: Vec<String> =
        paths(text, &["crate", "super", "metes_core"]).iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::pool::self",
        "crate::pool::Addr",
        "crate::pool::record::Held",
        "crate::pool::record::Owner",
        "crate::limits::A",
        "super::super::g",
        "metes_core::keys::Keys",
    ];
    assert_eq!(read, expected);
}

#[test]
fn tests_and_comments_are_no_production() {
    let text = "//! x\nuse a; // why\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\nlet c = \"http://d\";\n\
                #[cfg(test)]\npub(crate) mod fixture;\nlet e;\n";
    let (kept, test_modules) = production(text);
    assert_eq!(kept, "\nuse a; \nlet c = \"http://d\";\nlet e;\n");
    assert_eq!(test_modules, ["fixture"]);
}

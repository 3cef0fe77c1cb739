//! docs/testing.md names tests that are there, and one for each failure of its catalogue.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// F1 to this one.
const FAILURES: u32 = 38;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    fs::read_to_string(root().join("docs/testing.md")).expect("the document")
}

/// What stands in backquotes and looks like a test: `file::name`, perhaps with modules between.
fn named_tests(line: &str) -> Vec<(String, String)> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    quoted
        .filter_map(|text| {
            let words: Vec<&str> = text.split("::").collect();
            let whole = words.len() > 1 && words.iter().all(|word| is_word(word));
            whole.then(|| (words[0].to_owned(), words[words.len() - 1].to_owned()))
        })
        .collect()
}

/// The functions of every file of this name, or in a folder of this name, below the folders that tests are in.
fn functions_of(file: &str) -> BTreeSet<String> {
    let mut functions = BTreeSet::new();
    for folder in ["tests", "src", "reconciler", "installer", "sim", "fuzz"] {
        collect(&root().join(folder), file, false, &mut functions);
    }
    functions
}

fn collect(folder: &Path, file: &str, inside: bool, functions: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "target" {
            continue;
        }
        let meant = inside || stem == file;
        if path.is_dir() {
            collect(&path, file, meant, functions);
        } else if meant && path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            functions.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_is_named_is_there() {
    let named: BTreeSet<(String, String)> = document().lines().flat_map(named_tests).collect();
    assert!(named.len() > 60, "only {} tests are named", named.len());
    let missing: Vec<String> = named
        .into_iter()
        .filter(|(file, name)| !functions_of(file).contains(name))
        .map(|(file, name)| format!("{file}::{name}"))
        .collect();
    assert!(missing.is_empty(), "docs/testing.md names what is not there: {missing:#?}");
}

#[test]
fn every_failure_has_a_test() {
    let document = document();
    for number in 1..=FAILURES {
        let begin = format!("| F{number} |");
        let line = document.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("docs/testing.md has no line for F{number}"));
        assert!(!named_tests(line).is_empty(), "no test is named for F{number}");
    }
}

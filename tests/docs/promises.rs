//! docs/testing.md names tests that are there, and one for each failure of its catalogue; other documents name files,
//! functions and keys that are there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use metes_audit::{Explanation, Kind};
use metes_config::cni::Verb;
use metes_core::keys::Keys;
use metes_core::pool::choose::Order;

use crate::layout::sources::rust_files;
use crate::read;

/// F1 to this one.
const FAILURES: u32 = 38;

fn document() -> String {
    read("docs/testing.md")
}

/// The texts in backquotes that look like a test: `file::name`, perhaps with modules between.
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

/// The tests of every file of this name, or in a folder of this name, below the folders that tests are in.
fn tests_of(file: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for folder in ["tests", "src", "crates", "reconciler", "installer", "sim", "fuzz"] {
        collect(&support::root().join(folder), file, false, &mut tests);
    }
    tests
}

/// The functions that `cargo test` runs: others may have the name of a test and check nothing.
fn tests_in(source: &str) -> Vec<String> {
    let mut lines = source.lines().map(str::trim_start);
    let mut tests = Vec::new();
    while lines.any(|line| line == "#[test]" || line.starts_with("#[tokio::test")) {
        // Other attributes and words about the test may stand between.
        let function = lines.by_ref().filter(|line| !line.starts_with("//")).find_map(|line| {
            let (before, rest) = line.split_once("fn ")?;
            matches!(before, "" | "async ").then(|| rest.split(['(', '<']).next().unwrap_or_default())
        });
        tests.extend(function.map(str::to_owned));
    }
    tests
}

fn collect(folder: &Path, file: &str, inside: bool, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "target" {
            continue;
        }
        let meant = inside || stem == file;
        if path.is_dir() {
            collect(&path, file, meant, tests);
        } else if meant && path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            tests.extend(tests_in(&text));
        }
    }
}

#[test]
fn only_what_cargo_runs_is_a_test() {
    let source = "
        fn helper() {}
        #[test]
        /// What the fn is for.
        #[allow(clippy::print_stdout, reason = \"figures\")]
        fn first() { fn inner() {} }
        // #[test]
        fn second() {}
        #[tokio::test(flavor = \"current_thread\")]
        async fn third() {}
    ";
    assert_eq!(tests_in(source), ["first", "third"]);
}

#[test]
fn every_test_that_is_named_is_there() {
    let documents = document() + &read("docs/security.md");
    let named: BTreeSet<(String, String)> = documents.lines().flat_map(named_tests).collect();
    assert!(named.len() > 60, "only {} tests are named", named.len());
    let missing: Vec<String> = named
        .into_iter()
        .filter(|(file, name)| !tests_of(file).contains(name))
        .map(|(file, name)| format!("{file}::{name}"))
        .collect();
    assert!(missing.is_empty(), "documents name what is not there: {missing:#?}");
}

/// hack/test names the test programs one by one, because it runs them in halves.
#[test]
fn hack_test_runs_every_test_program() {
    let is_program = |file: &&PathBuf| {
        let folder = |levels: usize| file.ancestors().nth(levels).and_then(Path::file_name);
        // tests/NAME/main.rs, or a file right in a folder of tests.
        let (name, above) = (file.file_name().unwrap_or_default(), folder(1));
        let is_tests = |folder: Option<&OsStr>| folder.is_some_and(|folder| folder == "tests");
        let is_source = file.components().any(|part| part.as_os_str() == "src");
        !is_source && (name == "main.rs" && is_tests(folder(2)) || is_tests(above))
    };
    let sources = rust_files(support::root());
    let programs: Vec<_> = sources.iter().filter(is_program).collect();
    assert!(programs.len() > 5, "{programs:?}");
    let run = read("hack/test");
    for folder in programs.iter().filter_map(|program| program.parent()?.file_name()) {
        let option = format!("--test {}", folder.display());
        assert!(run.contains(&option), "hack/test has no {option}");
    }
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

/// The rows of the table below this heading, without its head.
fn rows<'a>(document: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = rest.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Each promise about real clusters is shown by somebody, and the steps that are named are there, as in the table that
/// tells of each step.
#[test]
fn every_promise_of_real_clusters_is_shown() {
    let list = read("hack/e2e.d/list.sh");
    let names = list.lines().filter_map(|line| line.strip_prefix("    \"")?.split(": ").next());
    let steps: Vec<&str> = names.collect();
    let scripts: String = fs::read_dir(support::root().join("hack/e2e.d/steps"))
        .expect("a folder")
        .map(|script| fs::read_to_string(script.expect("a script").path()).expect("a script"))
        .collect();
    for step in &steps {
        assert!(
            scripts.contains(&format!("\nstep_{}() {{\n", step.replace('-', "_"))),
            "no script has {step}"
        );
    }
    let document = document();
    let mut shown = BTreeSet::new();
    let promises = rows(&document, "Real clusters");
    assert!(promises.len() > 30, "{promises:?}");
    for row in promises {
        let [promise, tests, by_steps] = row[..] else { panic!("it has other columns: {row:?}") };
        // Another test checks of the whole page that the tests are there.
        assert_eq!(quoted(tests).len(), named_tests(tests).len(), "no test is called so: {tests}");
        assert!(!named_tests(tests).is_empty() || !quoted(by_steps).is_empty(), "nobody shows: {promise}");
        for step in quoted(by_steps) {
            assert!(steps.contains(&step), "hack/e2e has no step {step}: {promise}");
            shown.insert(step);
        }
    }
    let hidden: Vec<&&str> = steps.iter().filter(|step| !shown.contains(**step)).collect();
    assert!(hidden.is_empty(), "the table of real clusters in docs/testing.md lacks {hidden:?}");
    let whole = rows(&document, "A whole cluster");
    let told: Vec<&str> = whole.iter().flat_map(|row| quoted(row[0])).collect();
    assert_eq!(told, steps, "the steps of hack/e2e, in their order");
}

/// The paths of Rust files in a document, each with the function that stands behind a colon.
fn named_files(text: &str) -> Vec<(String, Option<String>)> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    // A name in capitals stands for one that is to be chosen.
    let is_chosen = |word: &&str| !word.contains(|c: char| c.is_ascii_uppercase());
    let words = text.split(|c| !in_name(c)).filter(|word| word.contains('/') && word.contains(".rs"));
    let words = words.filter(is_chosen);
    words
        .map(|word| match word.split_once(".rs:") {
            Some((file, function)) => (format!("{file}.rs"), Some(function.to_owned())),
            None => (word.trim_end_matches(['.', ':']).to_owned(), None),
        })
        .collect()
}

#[test]
fn the_files_and_functions_that_documents_name_are_there() {
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(document);
        let named = named_files(&text);
        assert!(named.len() > 10, "{document} names only {named:?}");
        for (file, function) in named {
            let source = fs::read_to_string(support::root().join(&file));
            let source = source.unwrap_or_else(|e| panic!("{document} names {file}: {e}"));
            if let Some(name) = function {
                let is_there =
                    [format!("fn {name}("), format!("fn {name}<")].iter().any(|f| source.contains(f));
                assert!(is_there, "{document} names {file}:{name}");
            }
        }
    }
}

#[test]
fn every_key_stands_in_the_table_of_keys() {
    let keys = read("crates/core/src/keys.rs");
    let architecture = read("ARCHITECTURE.md");
    let mut forms =
        keys.lines().filter_map(|line| line.trim_start().strip_prefix("/// `v1/")?.strip_suffix('`'));
    let missing: Vec<&str> =
        forms.by_ref().filter(|form| !architecture.contains(&format!("| `v1/{form}` |"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md lacks {missing:?}");
    assert!(architecture.matches("| `v1/").count() == keys.matches("/// `v1/").count(), "a key is gone");
}

/// docs/troubleshooting.md says the same of each kind as `metes check --explain`.
#[test]
fn every_kind_of_finding_is_explained() {
    let found = read("docs/troubleshooting.md");
    let row = |kind: Kind| {
        let Explanation { meaning, remedy } = kind.explain();
        format!("| `{kind}` | {meaning} | {remedy} |")
    };
    let lacks: Vec<String> = Kind::ALL.map(row).into_iter().filter(|row| !found.contains(row)).collect();
    assert!(lacks.is_empty(), "docs/troubleshooting.md lacks\n{}", lacks.join("\n"));
}

/// A key of a form: a plain name in place of each part that stands in angle brackets.
fn sample(form: &str) -> String {
    let parts = form.split('/').map(|part| match part {
        "<hex>" => "0".repeat(32),
        "<id>" if form.starts_with("ticket") => "0".repeat(16),
        "<id>" | "<digest>" => "0".repeat(32),
        "<ip>" => "10.0.0.1".to_owned(),
        "<n>" => "0".to_owned(),
        part => part.replace(['<', '>'], ""),
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_key_is_parsed_and_tested() {
    let keys = read("crates/core/src/keys.rs");
    let (layout, golden) = keys.split_once("#[cfg(test)]").expect("tests of the layout");
    let foreign = read("tests/cni/foreign.rs");
    let mut lines = layout.lines().map(str::trim_start);
    let mut forms = 0;
    while let Some(form) = lines.find_map(|line| line.strip_prefix("/// `v1/")?.strip_suffix('`')) {
        let variant = lines.next().and_then(|line| line.split(['(', ',']).next()).expect("a variant");
        let parsed = Keys::new("/metes/").parse(format!("/metes/v1/{}", sample(form)).as_bytes());
        let parsed = format!("{:?}", parsed.unwrap_or_else(|e| panic!("`parse_path` lacks an arm: {e}")));
        assert_eq!(parsed.split('(').next(), Some(variant), "{form}");
        // The text before the first part that may vary, and the kind of key of a network.
        let fixed = form.replace("<network>", "default");
        let fixed = fixed.split('<').next().unwrap_or_default();
        // A cursor's id is a digest. fuzz/src/config.rs parses what is built.
        let is_golden = variant == "Cursor" || golden.contains(&format!("\"/metes/v1/{fixed}"));
        assert!(is_golden, "`golden_keys_and_back` lacks {form}");
        let is_tried = foreign.contains(&format!("\"v1/{fixed}"));
        assert!(is_tried, "tests/cni/foreign.rs has no value under {form} that does not decode");
        forms += 1;
    }
    assert!(forms > 10, "only {forms} keys are told by their forms");
}

#[test]
fn every_record_is_tested() {
    let records = read("crates/core/src/pool/record.rs");
    let (production, golden) = records.split_once("#[cfg(test)]").expect("tests of the records");
    let fuzzed = read("fuzz/src/stored.rs");
    let kinds: Vec<&str> = production
        .lines()
        .filter_map(|line| line.strip_prefix("impl Record for ")?.split(' ').next())
        .collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    for kind in kinds {
        assert!(golden.contains(&format!("{kind}::")), "`golden_records` lacks {kind}");
        assert!(fuzzed.contains(&format!("check_record::<{kind}>")), "fuzz/src/stored.rs lacks {kind}");
    }
}

#[test]
fn every_verb_and_every_order_is_tried_with_the_real_binary() {
    for verb in Verb::ALL.into_iter().filter(|verb| *verb != Verb::Version) {
        for file in ["tests/cni/bad_input.rs", "tests/cni/cni_contract.rs", "tests/cni/secrets.rs"] {
            assert!(read(file).contains(&format!("\"{verb}\"")), "{file} does not try {verb}");
        }
    }
    for order in Order::ALL {
        let file = "tests/cni/large_ranges.rs";
        assert!(read(file).contains(&format!("\"{order}\"")), "{file} does not try {order}");
    }
}

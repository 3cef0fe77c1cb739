//! What must not grow again: the flow of an ADD, documents, test programs, and doc comments that begin with a question.

use std::path::Path;

use crate::layout::sources::{files, rust_files};
use crate::read;

/// The flow of an ADD is read in one go.
const ADD_LINES: usize = 150;
const ARCHITECTURE_WORDS: usize = 6_000;
const DOCS_WORDS: usize = 31_000;
/// Each links all of metes.
const TEST_PROGRAMS: usize = 8;
/// Doc comments have a noun where these words would begin a clause: at most one line in so many begins with one.
const QUESTIONS: [&str; 5] = ["What", "Whether", "Who", "How", "Which"];
const LINES_A_QUESTION: usize = 25;

fn words(file: impl AsRef<Path>) -> usize {
    read(file).split_whitespace().count()
}

#[test]
fn the_flow_of_an_add_stays_short() {
    let lines = read("src/commands/add.rs").lines().count();
    assert!(lines <= ADD_LINES, "src/commands/add.rs has {lines} lines, and may have {ADD_LINES}");
}

#[test]
fn documents_stay_short() {
    let architecture = words("ARCHITECTURE.md");
    assert!(architecture <= ARCHITECTURE_WORDS, "{architecture} words, of {ARCHITECTURE_WORDS}");
    let pages = files(&support::root().join("docs"));
    let pages = pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let docs: usize = pages.map(words).sum();
    assert!(docs <= DOCS_WORDS, "docs/ has {docs} words, of {DOCS_WORDS}");
}

#[test]
fn test_programs_stay_few() {
    let is_program = |file: &&std::path::PathBuf| {
        let folder = |levels: usize| file.ancestors().nth(levels).and_then(Path::file_name);
        // tests/NAME/main.rs, or a file right in a folder of tests.
        let (name, above) = (file.file_name().unwrap_or_default(), folder(1));
        let is_tests = |folder: Option<&std::ffi::OsStr>| folder.is_some_and(|folder| folder == "tests");
        let is_source = file.components().any(|part| part.as_os_str() == "src");
        !is_source && (name == "main.rs" && is_tests(folder(2)) || is_tests(above))
    };
    let sources = rust_files(support::root());
    let programs: Vec<_> = sources.iter().filter(is_program).collect();
    assert!(programs.len() <= TEST_PROGRAMS, "more than {TEST_PROGRAMS} test programs: {programs:#?}");
    // hack/test runs them in halves.
    let run = read("hack/test");
    for folder in programs.iter().filter_map(|program| program.parent()?.file_name()) {
        let option = format!("--test {}", folder.display());
        assert!(run.contains(&option), "hack/test has no {option}");
    }
}

#[test]
fn few_doc_comments_begin_with_a_question() {
    let (mut all, mut questions) = (0, Vec::new());
    for file in rust_files(support::root()) {
        let text = read(&file);
        for (number, line) in text.lines().map(str::trim_start).enumerate() {
            let Some(said) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
            let Some(first) = said.split_whitespace().next() else { continue };
            all += 1;
            if QUESTIONS.contains(&first) {
                questions.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    let most = all / LINES_A_QUESTION;
    assert!(questions.len() <= most, "{} of {all} lines, of {most}: {questions:#?}", questions.len());
}

//! Inputs that somebody thought of, those that fuzzing found interesting, and those that once broke something, through
//! the functions of `fuzz/` on a plain build. `hack/fuzz` looks for more of them.

#[allow(missing_docs, unreachable_pub, dead_code, reason = "a library of its own, for libFuzzer")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const KINDS: [&str; 3] = ["seeds", "corpus", "regressions"];

/// The least number of inputs of each target, of each kind: none is thrown away, and `hack/fuzz --keep` leaves about as
/// many in a corpus each time.
const LEAST: [(&str, [usize; 3]); 13] = [
    ("args", [11, 130, 0]),
    ("choice", [0, 130, 0]),
    ("definitions", [50, 200, 0]),
    ("host", [43, 250, 0]),
    ("lists", [21, 200, 2]),
    ("node_files", [5, 110, 0]),
    ("pem", [31, 70, 0]),
    ("pools", [8, 0, 0]),
    ("previous", [10, 130, 0]),
    ("results", [0, 130, 0]),
    ("stdin", [59, 270, 1]),
    ("stored", [59, 270, 1]),
    ("verdict", [0, 130, 1]),
];

fn replay(kind: &str) {
    let folder = support::root().join("fuzz").join(kind);
    let kind = KINDS.iter().position(|known| *known == kind).expect("a kind of inputs");
    let known = fuzz::TARGETS.map(|(name, _)| name);
    assert_eq!(LEAST.map(|(name, _)| name), known, "a target has no least number of inputs");
    let strange: Vec<String> = names(&folder).into_iter().filter(|name| !known.contains(&&**name)).collect();
    assert!(strange.is_empty(), "{} has {strange:?}, which are no targets", folder.display());
    let mut failures = Vec::new();
    for ((name, target), (_, least)) in fuzz::TARGETS.into_iter().zip(LEAST) {
        let inputs = inputs(&folder.join(name));
        let (found, least) = (inputs.len(), least[kind]);
        assert!(found >= least, "{}/{name} has {found} inputs, not {least}", folder.display());
        for (input, bytes) in &inputs {
            if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
                failures.push(format!("{name}/{input}"));
            }
        }
    }
    assert!(failures.is_empty(), "of {}: {failures:?}", folder.display());
}

fn inputs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    names(folder).into_iter().map(|name| (name.clone(), read(&folder.join(name)))).collect()
}

/// The names in a folder, in order; none if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.map(|entry| entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())));
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_seed_keeps_its_promise() {
    replay("seeds");
}

#[test]
fn every_input_of_the_corpora_keeps_its_promise() {
    replay("corpus");
}

#[test]
fn what_once_broke_something_does_not_again() {
    replay("regressions");
}

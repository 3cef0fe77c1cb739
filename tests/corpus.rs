//! Inputs that somebody thought of, those that fuzzing found interesting, and those that once broke something, through
//! the functions of `fuzz/` on a plain build. `hack/fuzz` looks for more of them.

#[allow(missing_docs, unreachable_pub, dead_code, reason = "a library of its own, for libFuzzer")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

fn replay(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(folder);
    let mut failures = Vec::new();
    for (name, target) in fuzz::TARGETS {
        let inputs = inputs(&folder.join(name));
        for (input, bytes) in &inputs {
            if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
                failures.push(format!("{name}/{input}"));
            }
        }
    }
    assert!(failures.is_empty(), "of {}: {failures:?}", folder.display());
}

fn inputs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut inputs: Vec<_> =
        entries.flatten().map(|entry| (name(&entry.path()), read(&entry.path()))).collect();
    inputs.sort();
    inputs
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

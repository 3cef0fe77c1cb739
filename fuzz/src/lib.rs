//! What must hold for any input: one function for each way that bytes of others come in. libFuzzer looks for
//! an input for which it does not hold (`hack/fuzz`); `tests/corpus.rs` replays those that it has found interesting.
//!
//! None of them may panic, and none does so but for a promise that is broken.

mod args;
mod choice;
mod config;
mod definitions;
mod dice;
mod host;
mod lists;
mod node_files;
mod pem;
mod previous;
mod results;
mod stdin;
mod stored;
mod verdict;

/// Something that takes any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its corpus.
pub const TARGETS: [(&str, Target); 12] = [
    ("args", args::args),
    ("choice", choice::choice),
    ("definitions", definitions::definitions),
    ("host", host::host),
    ("lists", lists::lists),
    ("node_files", node_files::node_files),
    ("pem", pem::pem),
    ("previous", previous::previous),
    ("results", results::results),
    ("stdin", stdin::stdin),
    ("stored", stored::stored),
    ("verdict", verdict::verdict),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Target {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    *target
}
